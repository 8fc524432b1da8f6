"""Intervals in order: which of a DAG's runs go first, as the plan of a run that is at work finds out.

`max_active_runs` is no help: a backfill has its own, ten by default, beside that of the DAG. Who waits gives
its slot back; nothing is planned, and no lease is taken.

No two runs may wait for each other, though Airflow starts a queued run only where its kind (the runs of the
backfill, or all others) may have one more at work. So nobody waits for a later run, and nobody for a queued
run that cannot start because of it:

* A run waits for every earlier one that is running.
* It waits for an earlier one that is queued only if that is of the other kind, and if nobody else is at work.
  Of its own kind Airflow starts the earliest first; one that is queued all the same was cleared, or belongs
  to a backfill that goes backwards, which `protocol.plan` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

_NEXT_TURN = timedelta(seconds=15)
_TURN = timedelta(seconds=30)
"""How long a run is at work about, once it is its turn: five tasks, and Spark's start in one of them."""

_LONGEST_WAIT = timedelta(minutes=10)
_MOST_QUEUED = 50
"""So many queued runs are looked at: of a backfill that goes backwards there may be thousands."""


@dataclass(frozen=True)
class RunAhead:
    """A run of an earlier interval that goes first, and how many there are that do (at least)."""

    run_id: str
    state: str
    ahead: int = 1

    @property
    def wait(self) -> timedelta:
        """When to look again. Each look is a task of Airflow's: who stands far behind does so less often."""
        return _NEXT_TURN if self.ahead == 1 else min(self.ahead * _TURN, _LONGEST_WAIT)

    def __str__(self) -> str:
        others = f", and {self.ahead - 1} more before that" if self.ahead > 1 else ""
        hint = (
            "; a backfill that is paused has to go on, or to be cancelled" if self.state == "queued" else ""
        )
        return f"waits for {self.run_id} ({self.state}), which is of an earlier interval{others}{hint}"


class ActiveRuns:
    """A DAG's runs that are not over, asked of Airflow by a task that is at work."""

    def __init__(self, dag_id: str) -> None:
        self._dag_id = dag_id

    def before(self, instant: datetime, state: str) -> Iterator[Any]:
        """The runs in a state whose logical date is earlier, the latest first. A manual run without a logical
        date is never among them."""
        from airflow.sdk.execution_time.comms import GetPreviousDagRun

        at: datetime | None = instant
        while at is not None:
            answer = _ask(GetPreviousDagRun(dag_id=self._dag_id, logical_date=at, state=state))
            if answer.dag_run is None:
                return
            yield answer.dag_run
            at = answer.dag_run.logical_date

    def count_running(self) -> int:
        """How many are at work, or wait at their plan; with the one that asks."""
        from airflow.sdk.execution_time.comms import GetDRCount

        return int(_ask(GetDRCount(dag_id=self._dag_id, states=["running"])).count)


def run_ahead(run: Any) -> RunAhead | None:
    """The run that a run (Airflow's `DagRun`) has to wait for before it plans; None: it is its turn.

    A run without a logical date stands where it was triggered. Runs that failed, and later ones, hold up
    nobody.
    """
    runs = ActiveRuns(run.dag_id)
    at = run.logical_date or run.run_after
    # in this order: who is started between two questions is seen by the later one
    queued = islice(runs.before(at, "queued"), _MOST_QUEUED)
    startable = next((other for other in queued if is_backfill(other) != is_backfill(run)), None)
    is_alone = runs.count_running() <= 1
    running = list(runs.before(at, "running"))
    if running:
        return RunAhead(running[0].run_id, "running", len(running))
    if startable is not None and is_alone:
        return RunAhead(startable.run_id, "queued")
    return None


def is_backfill(run: Any) -> bool:
    """Whether a run is one of a backfill's."""
    return bool(run.run_type == "backfill")


def _ask(question: Any) -> Any:
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    return SUPERVISOR_COMMS.send(question)
