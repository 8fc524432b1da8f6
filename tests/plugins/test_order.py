"""Intervals go in order: who waits for whom, asked in Airflow's own messages of a made-up scheduler."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
SEEDS = range(100)


def run(hour: int | None, state: str = "running", kind: str = "backfill") -> Any:
    """Return a run as Airflow has it; without an hour, a run that was triggered by hand after all others."""
    from airflow.sdk.api.datamodels._generated import DagRun

    at = None if hour is None else FIRST + timedelta(hours=hour)
    return DagRun(
        dag_id="p",
        run_id=f"{kind}-{hour}",
        logical_date=at,
        data_interval_start=at,
        data_interval_end=at and at + timedelta(hours=1),
        run_after=at or FIRST + timedelta(days=30),
        start_date=None,
        end_date=None,
        run_type=kind,
        state=state,
        consumed_asset_events=[],
        partition_key=None,
    )


@dataclass
class Scheduler:
    """A DAG's runs, and who may be started: so many of the backfill, and so many of all others."""

    runs: list[Any] = field(default_factory=list)
    most_of_backfill: int = 10
    most_of_others: int = 1
    backwards: bool = False

    def send(self, question: Any) -> Any:
        """Answer as Airflow's API does."""
        kind = type(question).__name__
        if kind == "GetDRCount":
            return SimpleNamespace(count=sum(run.state in question.states for run in self.runs))
        assert kind == "GetPreviousDagRun"
        earlier = [run for run in self._dated(question.state) if run.logical_date < question.logical_date]
        return SimpleNamespace(dag_run=max(earlier, key=lambda run: run.logical_date, default=None))

    def _dated(self, state: str) -> Iterator[Any]:
        return (run for run in self.runs if run.state == state and run.logical_date is not None)

    def start(self) -> None:
        """Start whom it may, as Airflow's scheduler does."""
        for is_backfill, most in ((True, self.most_of_backfill), (False, self.most_of_others)):
            same = [run for run in self.runs if (run.run_type == "backfill") == is_backfill]
            free = most - sum(run.state == "running" for run in same)
            queued = sorted((run for run in same if run.state == "queued"), key=lambda run: run.run_after)
            if is_backfill and self.backwards:
                queued.reverse()
            for run in queued[: max(0, free)]:
                run.state = "running"


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    from airflow.sdk.execution_time import task_runner

    scheduler = Scheduler()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", scheduler, raising=False)
    return scheduler


def ahead(scheduler: Scheduler, asking: Any, *other_runs: Any) -> str | None:
    """Whom a run waits for, among these."""
    from tidegate_airflow.runs import run_ahead

    scheduler.runs = [asking, *other_runs]
    blocking = run_ahead(asking)
    return blocking.run_id if blocking is not None else None


def test_run_waits_for_the_nearest_earlier_running_one(scheduler: Scheduler) -> None:
    assert ahead(scheduler, run(3), run(1), run(2), run(4), run(0, "queued")) == "backfill-2"


def test_a_run_waits_for_nobody_later(scheduler: Scheduler) -> None:
    assert ahead(scheduler, run(3), run(4), run(5, "queued"), run(9, kind="scheduled")) is None


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_run_waits_for_nobody_that_has_ended(scheduler: Scheduler, state: str) -> None:
    assert ahead(scheduler, run(3), run(2, state)) is None


def test_scheduled_run_waits_for_an_earlier_backfill(
    scheduler: Scheduler,
) -> None:
    scheduled = run(9, kind="scheduled")
    assert ahead(scheduler, scheduled, run(2)) == "backfill-2"
    assert ahead(scheduler, scheduled, run(2, "success"), run(3, "queued"), run(4, "queued")) == "backfill-4"


def test_later_backfill_waits_for_a_scheduled_run(scheduler: Scheduler) -> None:
    assert ahead(scheduler, run(3), run(2, kind="scheduled")) == "scheduled-2"
    assert ahead(scheduler, run(3), run(2, "queued", "scheduled")) == "scheduled-2"


def test_manual_run_without_date_waits_for_dated_runs(scheduler: Scheduler) -> None:
    by_hand = run(None, kind="manual")
    assert ahead(scheduler, by_hand, run(2)) == "backfill-2"
    assert ahead(scheduler, by_hand, run(2, "queued")) == "backfill-2"
    assert ahead(scheduler, run(2), by_hand) is None


def test_run_ignores_queued_runs_its_kind_blocks(
    scheduler: Scheduler,
) -> None:
    assert ahead(scheduler, run(3), run(2, "queued")) is None
    assert ahead(scheduler, run(9, kind="scheduled"), run(2, "queued", "manual")) is None
    # the backfill may have no slot left: all of its slots may be taken by later runs
    assert ahead(scheduler, run(5, kind="scheduled"), run(2, "queued"), run(7)) is None


def test_scheduled_run_sees_backfill_behind_queued_run(scheduler: Scheduler) -> None:
    scheduled = run(9, kind="scheduled")
    assert ahead(scheduler, scheduled, run(8, "queued", "manual"), run(2, "queued")) == "backfill-2"


def test_who_stands_far_behind_looks_less_often(scheduler: Scheduler) -> None:
    from tidegate_airflow.runs import run_ahead

    scheduler.runs = [run(hour) for hour in range(50)]
    waits = [
        blocking.wait.total_seconds() for blocking in map(run_ahead, scheduler.runs) if blocking is not None
    ]
    assert waits[:4] == [15, 60, 90, 120]
    assert max(waits) == 600


def test_log_names_the_awaited_run_and_queue_length(scheduler: Scheduler) -> None:
    from tidegate_airflow.runs import run_ahead

    scheduler.runs = [run(hour) for hour in range(4)]
    assert str(run_ahead(scheduler.runs[3])) == (
        "waits for backfill-2 (running), which is of an earlier interval, and 2 more before that"
    )
    scheduler.runs = [run(5, kind="scheduled"), run(1, "queued")]
    assert str(run_ahead(scheduler.runs[0])) == (
        "waits for backfill-1 (queued), which is of an earlier interval; "
        "a backfill that is paused has to go on, or to be cancelled"
    )


def play(scheduler: Scheduler, dice: random.Random) -> list[str]:
    """Let Airflow and the runs do what they do, in any order, to the end. In which order the runs planned."""
    from tidegate_airflow.runs import run_ahead

    planned: list[str] = []
    while any(run.state in ("queued", "running") for run in scheduler.runs):
        before = [run.state for run in scheduler.runs]
        scheduler.start()
        running = [run for run in scheduler.runs if run.state == "running"]
        dice.shuffle(running)
        for run in running[: dice.randint(1, len(running))] if dice.random() < 0.8 else running:
            if run_ahead(run) is None:
                planned.append(run.run_id)
                run.state = dice.choice(("success", "success", "failed"))
        stuck = before == [run.state for run in scheduler.runs] and all(map(run_ahead, running))
        assert not stuck, f"they wait for each other: {scheduler.runs}"
    return planned


def in_order(runs: Iterable[Any]) -> list[str]:
    return [run.run_id for run in sorted(runs, key=lambda run: run.run_after)]


@pytest.mark.parametrize("most", [1, 2, 10])
def test_backfill_and_scheduled_run_plan_in_order(scheduler: Scheduler, most: int) -> None:
    for seed in SEEDS:
        scheduler.most_of_backfill = most
        scheduler.runs = [run(20, "queued", "scheduled"), *(run(hour, "queued") for hour in range(12))]
        assert play(scheduler, random.Random(seed)) == in_order(scheduler.runs)


def test_queued_and_running_runs_never_deadlock(scheduler: Scheduler) -> None:
    for seed in SEEDS:
        dice = random.Random(seed)
        scheduler.most_of_backfill = dice.choice((1, 2, 10))
        scheduler.backwards = dice.random() < 0.3
        hours = dice.sample(range(30), 14)
        kinds = [dice.choice(("backfill", "backfill", "scheduled", "manual")) for _ in hours]
        scheduler.runs = [run(hour, "queued", kind) for hour, kind in zip(hours, kinds, strict=True)]
        if dice.random() < 0.3:
            scheduler.runs.append(run(None, "queued", "manual"))
        play(scheduler, dice)
