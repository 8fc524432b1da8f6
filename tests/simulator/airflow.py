"""Runs as Airflow makes them: five tasks in order, each try a process of its own; and who clears a task.

Where runs cover their intervals, a sixth task makes the batches after the first, or one task makes them all.

A process that stops answering is given up and tried again beside it: it may wake up later, as a zombie.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulator.app import Places
from tests.simulator.world import Crashed, Process, Violation
from tidegate import batch
from tidegate.app import LONG_DONE, leased, planned_for
from tidegate.batch import (
    Outcome,
    Trigger,
    batches_of_run,
    compute_batch,
    has_more_batches,
    plan_batch,
    run_batch,
    run_of_batch,
)
from tidegate.errors import (
    BackwardsRefused,
    Halted,
    LeaseHeld,
    LogTruncated,
    LookupReplaced,
    OffsetsLost,
    Permanent,
    QualityFailed,
    SinkRefused,
    StateGivenUp,
    TidegateError,
    TopicMissing,
    TopicRecreated,
)
from tidegate.ledger import Snapshot, Stream
from tidegate.maintenance.cleaning import remove_history
from tidegate.model.pipeline import Pipeline
from tidegate.quarantine import ResolutionRequest, discard_records
from tidegate.recovery import Situation
from tidegate.recovery.next_batch import accept_gap, drop_plan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins"))
from tidegate_airflow import runs as airflow_runs

STEPS = ("plan", "compute", "validate", "commit", "publish")
COVER = "cover"
_TASKS = (*STEPS, COVER)
RETRIES = 3
RETRY_SECONDS = 10.0
LEASE_WAIT_SECONDS = 10.0
BEARABLE = (
    BackwardsRefused,
    Halted,
    LogTruncated,
    LookupReplaced,
    OffsetsLost,
    QualityFailed,
    SinkRefused,
    TopicMissing,
    TopicRecreated,
)
"""With these a run may end for good: somebody has to do something first, and nothing is lost by waiting."""


class NotYet(Exception):
    """A run of an earlier interval goes first."""


@dataclass
class Airflow:
    """The runs of one pipeline.

    With `in_order`, each run looks for runs of earlier intervals before it plans. `check_covered` raises
    Violation if the run of this id has succeeded and has not covered its interval.
    """

    places: Places
    pipeline: Pipeline
    runs: dict[str, Run] = field(default_factory=dict)
    in_order: bool = False
    check_covered: Callable[[str], None] = lambda _: None
    _asleep: dict[int, tuple[Run, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places.world.on_pause = self._paused
        self.places.world.on_wake = self._woken

    def plan(self, trigger: Trigger) -> Outcome:
        """The first task's work, or that of a later batch of a run."""
        app = self.places.app()
        run_id = run_of_batch(trigger.run_id)
        if self.in_order and app.ledger.run(self.places.stream, run_id) is None:
            with patch.object(airflow_runs, "ActiveRuns", lambda _: self):
                ahead = airflow_runs.run_ahead(_dag_run(trigger))
            if ahead is not None:
                self.places.world.counts["waited for an earlier interval"] += 1
                raise NotYet(str(ahead))
        return plan_batch(app, self.pipeline, trigger)

    def cover(self, trigger: Trigger, first: int = 1) -> None:
        """The batches of a run from its `first` on, as `BatchOperator` makes them."""
        for batch_trigger in batches_of_run(self.places.app(), self.places.stream, trigger, first):
            if self.plan(batch_trigger).plan is None:
                return
            for name in STEPS[1:]:
                self.step(batch_trigger.run_id, name)

    def has_more_batches(self, trigger: Trigger) -> bool:
        """Answer what the step publish asks at its end."""
        return has_more_batches(self.places.app(), self.places.stream, trigger)

    def before(self, instant: datetime, state: str) -> Iterator[Any]:
        """Yield the active runs before an instant, as `ActiveRuns` does; here no run is queued."""
        runs = [_dag_run(run.trigger) for run in self.runs.values() if not run.over and state == "running"]
        runs.sort(key=lambda run: run.logical_date, reverse=True)
        return (run for run in runs if run.logical_date < instant)

    def check_turn(self, run_id: str) -> None:
        """Nobody plans while a run of an earlier interval is at work.

        One that has failed holds up nobody. It may wake up and plan after later ones: that is up to the plan
        step, and `Watch` sees to the clocks.
        """
        at = _dag_run(self.trigger_of(run_id)).logical_date
        for ahead in self.before(at, "running"):
            raise Violation(f"{run_id} planned before {ahead.run_id}, which is of an earlier interval")

    def trigger_of(self, run_id: str) -> Trigger:
        """Return the trigger of a run, by its id or the id of one of its batches."""
        return self.runs[run_of_batch(run_id)].trigger

    def count_running(self) -> int:
        """Count the active runs, as `ActiveRuns` does."""
        return sum(not run.over for run in self.runs.values())

    def step(self, run_id: str, name: str) -> Any:
        """One task's work, as `plugins` and `spark_jobs` do it."""
        if name == "plan":
            return self.plan(self.runs[run_id].trigger)
        if name == COVER:
            return self.cover(self.runs[run_id].trigger, first=2)
        app = self.places.app()
        plan = planned_for(app, self.pipeline.pipeline, self.pipeline.generation, run_id)
        if plan is None:
            self.places.world.counts["cleared after its batch was removed"] += 1
            return LONG_DONE
        if name == "compute":
            return compute_batch(app, plan, run_id, no_session)
        return getattr(batch, f"{name}_batch")(app, plan, run_id)

    def clear(self, run_id: str, name: str) -> None:
        """Somebody clears a task: it runs again, whatever else does."""
        world = self.places.world
        world.counts["cleared"] += 1
        world.start(f"{run_id}.{name}(cleared)", lambda: self.step(run_id, name), _bearable, 0.0)

    def mark_success(self, run_id: str) -> None:
        """Somebody marks the task that is at work as a success: the next one begins beside it."""
        run = self.runs[run_id]
        if run.process is not None and not run.whole and 0 < run.step < len(STEPS) - 1:
            self.places.world.counts["marked as a success"] += 1
            run.go_on()

    def check_success(self, run_id: str) -> None:
        """A run that has succeeded has published its batch. One whose plan was dropped has none."""
        tables = self.places.store.streams[self.places.stream]
        run = tables.runs.get(run_id)
        if run is not None and run.seq is not None and (tables.head is None or tables.head.seq < run.seq):
            raise Violation(f"{run_id} has succeeded, and batch {run.seq} is not committed")

    def maintain(self) -> None:
        """The maintenance DAG, in a world without time travel and without anybody who reads for long."""
        self.places.world.start("maintenance", self._maintain, _bearable, 0.0)

    def _maintain(self) -> None:
        app, stream, world = self.places.app(), self.places.stream, self.places.world
        head, newest = app.ledger.head(stream).seq, _newest_snapshot(app, stream)
        if head > newest:
            try:
                manifests = app.ledger.state_manifests(stream, head)
            except StateGivenUp:  # another has folded more meanwhile; with time travel it could not be so
                return
            name = f"snapshot-{head}-{len(world.trace)}"
            folded = world.effect("lake.write", lambda: self.places.lake.snapshot(name, head, manifests))
            app.ledger.add_snapshot(Snapshot(stream, head, folded), newest)
        with leased(app, stream, "maintenance") as lease:
            lease.give_up(_newest_snapshot(app, stream))
            lease.release()
        world.counts["batches removed"] += remove_history(app, stream, world.now, timedelta(0))

    def drop_plan(self) -> None:
        """Somebody calls `tidegate recover --choose drop-plan`."""
        self._by_hand("drop_plan", lambda: drop_plan(self._situation()), patience=4)

    def discard(self, request: ResolutionRequest) -> None:
        """Somebody calls `tidegate quarantine discard`."""

        def call() -> None:
            discard_records(self.places.app(), self.places.stream, request)

        self._by_hand("discard", call, patience=6)

    def accept_gap(self) -> None:
        """Somebody calls `tidegate recover --choose accept-gap`."""
        self._by_hand("accept_gap", lambda: accept_gap(self._situation()), patience=4)

    def _situation(self) -> Situation:
        return Situation(self.places.app(), self.places.stream)

    def _by_hand(self, name: str, call: Callable[[], object], patience: int) -> None:
        """And again while the lease is held."""
        world = self.places.world

        def ended(process: Process) -> None:
            _bearable(process)
            if isinstance(process.error, LeaseHeld) and patience:
                world.at(world.now + 40.0, lambda: self._by_hand(name, call, patience - 1))

        world.start(f"by_hand.{name}", call, ended, 0.0)

    def _paused(self, process: Process) -> None:
        world = self.places.world
        if world.dice.random() < 0.3:  # it looks stuck, so somebody forgets its plan
            world.at(world.now + 30.0, self.drop_plan)
        for run in self.runs.values():
            if run.process is process and world.dice.random() < 0.7:
                after = world.dice.choice((1.0, 30.0, 125.0))
                world.at(world.now + after, lambda run=run: run.give_up(process))  # type: ignore[misc]
                self._asleep[id(process)] = (run, run.step, self._head_seq())

    def _woken(self, process: Process) -> None:
        """Count what a zombie finds."""
        run, step, head = self._asleep.pop(id(process), (None, 0, 0))
        if run is None or not process.wakes_as_zombie:
            return
        counts = self.places.world.counts
        counts["zombies"] += 1
        counts["zombie woken after its successor had finished"] += run.process is None or run.step > step
        counts["zombie woken after the commit"] += self._head_seq() > head

    def _head_seq(self) -> int:
        row = self.places.store.streams[self.places.stream].head
        return row.seq if row is not None else 0


@dataclass
class Run:
    """A DAG run, or with `whole` one that is a single process: `tidegate run`, or of a DAG with one task.
    `covers`: it reads on until its interval is covered.
    """

    airflow: Airflow
    trigger: Trigger
    on_end: Callable[[Run], None]
    whole: bool = False
    patient: bool = False
    covers: bool = False
    step: int = 0
    tries: int = 0
    process: Process | None = None
    crashes: int = 0
    nothing_to_do: bool = False
    failed: bool = False
    is_of_another_log: bool = False
    over: bool = False

    def start(self, delay: float = 0.0) -> None:
        """The next try of the step that is due."""
        self.airflow.runs[self.trigger.run_id] = self
        name = "run" if self.whole else _TASKS[self.step]
        world = self.airflow.places.world
        self.tries += 1
        self.process = world.start(
            f"{self.trigger.run_id}.{name}#{self.tries}", self._work, self._ended, delay
        )

    def give_up(self, process: Process) -> None:
        """No sign of life: try again beside it."""
        if process is self.process and process.paused:
            process.wakes_as_zombie = True
            self._again(RETRY_SECONDS)

    def _work(self) -> Any:
        airflow = self.airflow
        if self.whole:
            if self.covers:
                return airflow.cover(self.trigger)
            return run_batch(airflow.places.app(), airflow.pipeline, self.trigger, no_session)
        if self.step == 0:
            return airflow.plan(self.trigger)
        result = airflow.step(self.trigger.run_id, _TASKS[self.step])
        if self.covers and _TASKS[self.step] == STEPS[-1]:
            return airflow.has_more_batches(self.trigger)
        return result

    def _ended(self, process: Process) -> None:
        error = process.error
        if process is not self.process:
            _bearable(process)
            return
        self._count_crashes(error)
        if error is None:
            self._done(process.result)
        elif isinstance(error, (LeaseHeld, NotYet)):
            self.tries -= 1
            self.start(LEASE_WAIT_SECONDS)
        elif isinstance(error, Permanent):
            _bearable(process)
            if isinstance(error, BackwardsRefused):
                self._refused(process)
            if isinstance(error, OffsetsLost):
                self.airflow.accept_gap()
            if isinstance(error, (TopicRecreated, LogTruncated)):
                self.is_of_another_log = True
                self.airflow.drop_plan()
            if isinstance(error, LookupReplaced):
                self.airflow.drop_plan()
            self._over(failed=True)
        else:
            _bearable(process)
            dice = self.airflow.places.world.dice
            late = dice.choice((0.0, 60.0, 130.0)) if isinstance(error, Crashed) else 0.0
            self._again(RETRY_SECONDS + late)

    def _refused(self, process: Process) -> None:
        """It would have gone backwards, which is nobody's fate who has waited for its turn."""
        if self.airflow.in_order:
            raise Violation(f"{process.name} had its turn, and was refused") from process.error
        self.airflow.places.world.counts["refused to go backwards"] += 1

    def _count_crashes(self, error: BaseException | None) -> None:
        self.crashes = self.crashes + 1 if isinstance(error, Crashed) else 0
        self.airflow.places.world.counts["two crashes in a row"] += self.crashes == 2

    def _done(self, result: Any) -> None:
        if isinstance(result, Outcome) and result.plan is None:
            self.nothing_to_do = True
            self._over(failed=False)
        elif self.whole or self._is_last(result):
            self.airflow.check_success(self.trigger.run_id)
            if self.covers:
                self.airflow.check_covered(self.trigger.run_id)
            self._over(failed=False)
        else:
            self.go_on()

    def _is_last(self, result: Any) -> bool:
        """Whether the task that is done is the run's last; `publish` says whether `cover` follows."""
        task = _TASKS[self.step]
        return task == COVER or (task == STEPS[-1] and not (self.covers and result))

    def go_on(self) -> None:
        """The next step."""
        self.step, self.tries = self.step + 1, 0
        self.start(self.airflow.places.world.dice.choice((0.1, 3.0)))

    def _again(self, delay: float) -> None:
        if self.tries > RETRIES and not self.patient:
            self._over(failed=True)
        else:
            self.start(delay)

    def _over(self, failed: bool) -> None:
        self.process, self.failed, self.over = None, failed, True
        self.on_end(self)


def _bearable(process: Process) -> None:
    """A step may fail with an error that says what to do; a halt, only where nothing is lost by it."""
    error = process.error
    if error is None or isinstance(error, (Crashed, ConnectionError, NotYet)):
        return
    if not isinstance(error, TidegateError):
        raise Violation(f"{process.name} failed with {error!r}") from error
    if isinstance(error, Permanent) and type(error) not in BEARABLE:
        raise Violation(f"{process.name} halted: {type(error).__name__}: {error}") from error


def _dag_run(trigger: Trigger) -> Any:
    """Return the run as Airflow passes it to a task; here an interval has its end only."""
    at = datetime.fromtimestamp((trigger.interval_end_ms or trigger.clock_ms) / 1000, timezone.utc)
    kind = "backfill" if trigger.backfill else "scheduled"
    return SimpleNamespace(
        dag_id="simulated", run_id=trigger.run_id, logical_date=at, run_after=at, run_type=kind
    )


def _newest_snapshot(app: Any, stream: Stream) -> int:
    return max((snapshot.seq for snapshot in app.ledger.snapshots(stream)), default=0)


def no_session(_: int) -> Any:
    raise Violation("the simulated compute step needs no Spark")
