"""Runs as Airflow makes them: five tasks in order, each try a process of its own; and who clears a task.

A process that stops answering is given up and tried again beside it: it may wake up later, as a zombie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.app import Places
from tests.simulator.world import Crashed, Process, Violation
from tidegate import steps
from tidegate.errors import Halted, LeaseHeld, Permanent, QualityFailed, TidegateError, TopicMissing
from tidegate.spec import Pipeline

STEPS = ("plan", "compute", "validate", "commit", "publish")
RETRIES = 3
RETRY_SECONDS = 10.0
LEASE_WAIT_SECONDS = 10.0


@dataclass
class Airflow:
    """All runs of one pipeline."""

    places: Places
    pipeline: Pipeline
    runs: dict[str, Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places.world.on_pause = self._paused

    def step(self, run_id: str, name: str) -> Any:
        """One task's work, as `plugins` and `spark_jobs` do it."""
        app = self.places.app()
        plan = steps.planned_for(app, self.pipeline.pipeline, self.pipeline.generation, run_id)
        if name == "compute":
            return steps.compute_batch(app, plan, run_id, no_session)
        return getattr(steps, f"{name}_batch")(app, plan, run_id)

    def clear(self, run_id: str, name: str) -> None:
        """Somebody clears a task: it runs again, whatever else does."""
        world = self.places.world
        world.counts["cleared"] += 1
        world.start(f"{run_id}.{name}(cleared)", lambda: self.step(run_id, name), _bearable, 0.0)

    def drop_plan(self, patience: int = 4) -> None:
        """Somebody calls `tidegate doctor --drop-plan`, and again while the lease is held."""
        world = self.places.world
        stream = steps.stream_of(self.pipeline)

        def work() -> None:
            held = self.places.app().ledger.acquire(stream, f"doctor-{len(world.trace)}")
            try:
                world.counts["plans dropped"] += held.drop_plan() is not None
            finally:
                held.release()

        def ended(process: Process) -> None:
            _bearable(process)
            if isinstance(process.error, LeaseHeld) and patience:
                world.at(world.now + 40.0, lambda: self.drop_plan(patience - 1))

        world.start("doctor.drop_plan", work, ended, 0.0)

    def _paused(self, process: Process) -> None:
        world = self.places.world
        if world.dice.random() < 0.1:  # it looks stuck, so somebody forgets its plan
            world.at(world.now + 30.0, self.drop_plan)
        for run in self.runs.values():
            if run.process is process and world.dice.random() < 0.7:
                after = world.dice.choice((1.0, 30.0, 125.0))
                world.at(world.now + after, lambda run=run: run.give_up(process))  # type: ignore[misc]


@dataclass
class Run:
    """A DAG run, or with `whole` one `tidegate run`, which is a single process."""

    airflow: Airflow
    trigger: steps.Trigger
    on_end: Callable[[Run], None]
    whole: bool = False
    patient: bool = False
    step: int = 0
    tries: int = 0
    process: Process | None = None
    nothing_to_do: bool = False
    failed: bool = False

    def start(self, delay: float = 0.0) -> None:
        """The next try of the step that is due."""
        self.airflow.runs[self.trigger.run_id] = self
        name = "run" if self.whole else STEPS[self.step]
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
            return steps.run_batch(airflow.places.app(), airflow.pipeline, self.trigger, no_session)
        if self.step == 0:
            return steps.plan_batch(airflow.places.app(), airflow.pipeline, self.trigger)
        return airflow.step(self.trigger.run_id, STEPS[self.step])

    def _ended(self, process: Process) -> None:
        error = process.error
        if process is not self.process:
            _bearable(process)
        elif error is None:
            self._done(process.result)
        elif isinstance(error, LeaseHeld):
            self.tries -= 1
            self.start(LEASE_WAIT_SECONDS)
        elif isinstance(error, Permanent):
            _bearable(process)
            self._over(failed=True)
        else:
            _bearable(process)
            dice = self.airflow.places.world.dice
            late = dice.choice((0.0, 60.0, 130.0)) if isinstance(error, Crashed) else 0.0
            self._again(RETRY_SECONDS + late)

    def _done(self, result: Any) -> None:
        if isinstance(result, steps.Outcome) and result.plan is None:
            self.nothing_to_do = True
            self._over(failed=False)
        elif self.whole or self.step == len(STEPS) - 1:
            self._over(failed=False)
        else:
            self.step, self.tries = self.step + 1, 0
            self.start(self.airflow.places.world.dice.choice((0.1, 3.0)))

    def _again(self, delay: float) -> None:
        if self.tries > RETRIES and not self.patient:
            self._over(failed=True)
        else:
            self.start(delay)

    def _over(self, failed: bool) -> None:
        self.process, self.failed = None, failed
        self.on_end(self)


def _bearable(process: Process) -> None:
    """A step may fail with an error that says what to do; a halt, only where nothing is lost by it."""
    error = process.error
    if error is None or isinstance(error, (Crashed, ConnectionError)):
        return
    if not isinstance(error, TidegateError):
        raise Violation(f"{process.name} failed with {error!r}") from error
    if isinstance(error, Permanent) and type(error) not in (Halted, QualityFailed, TopicMissing):
        raise Violation(f"{process.name} halted: {type(error).__name__}: {error}") from error


def no_session() -> Any:
    raise Violation("the simulated compute step needs no Spark")
