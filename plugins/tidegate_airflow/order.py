"""Keep the runs of a DAG in the order of their intervals: a run's plan step waits for earlier runs.

`max_active_runs` does not do this, because a backfill has its own limit, ten by default, beside that of the
DAG. A run that waits gives its slot back; it plans nothing and takes no lease.

No two runs may wait for each other. Airflow starts a queued run only if its kind (runs of the backfill, or
all others) may have one more running. So no run waits for a later one, nor for a queued run that cannot start
because of it:

* A run waits for every earlier one that is running.
* It waits for an earlier one that is queued only if that is of the other kind, and no other run is running.
  Of its own kind Airflow starts the earliest first; if such a run is queued all the same, it was cleared, or
  belongs to a backfill that goes backwards, which `batch.plan` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

_NEXT_TURN = timedelta(seconds=15)
_TURN = timedelta(seconds=30)
"""The usual duration of a run: five tasks, and Spark's start in one of them."""

_LONGEST_WAIT = timedelta(minutes=10)
_MOST_QUEUED = 50
"""The largest number of queued runs that are read: a backfill that goes backwards can have thousands."""


@dataclass(frozen=True)
class RunAhead:
    """A run of an earlier interval that goes first, and the number of such runs (at least)."""

    run_id: str
    state: str
    ahead: int = 1

    @property
    def wait(self) -> timedelta:
        """The time until the next look. Each look is a task of Airflow, so a run far behind looks less
        often.
        """
        return _NEXT_TURN if self.ahead == 1 else min(self.ahead * _TURN, _LONGEST_WAIT)

    def __str__(self) -> str:
        more = f", and {self.ahead - 1} more before that" if self.ahead > 1 else ""
        hint = (
            "; a backfill that is paused has to go on, or to be cancelled" if self.state == "queued" else ""
        )
        return f"waits for {self.run_id} ({self.state}), which is of an earlier interval{more}{hint}"


class ActiveRuns:
    """The runs of a DAG that are queued or running, by questions to Airflow from inside of a task."""

    def __init__(self, dag_id: str) -> None:
        self._dag_id = dag_id

    def before(self, instant: datetime, state: str) -> Iterator[Any]:
        """Yield the runs in a state whose logical date is earlier than `instant`, the latest first.

        A manual run without a logical date is never among them.

        Args:
            instant: A logical date, which is exclusive.
            state: Airflow's state of runs, such as `queued`.
        """
        from airflow.sdk.execution_time.comms import GetPreviousDagRun

        at: datetime | None = instant
        # Airflow answers one run at a time, so each question begins where the last answer was.
        while at is not None:
            answer = _ask(GetPreviousDagRun(dag_id=self._dag_id, logical_date=at, state=state))
            if answer.dag_run is None:
                return
            yield answer.dag_run
            at = answer.dag_run.logical_date

    def count_running(self) -> int:
        """Return the number of running runs, including the one that asks and those that wait in their plan
        step.
        """
        from airflow.sdk.execution_time.comms import GetDRCount

        return int(_ask(GetDRCount(dag_id=self._dag_id, states=["running"])).count)


def run_ahead(run: Any) -> RunAhead | None:
    """Return the run that a run (Airflow's `DagRun`) has to wait for before it plans; None if it is its turn.

    A run without a logical date has the place at which it was triggered. Failed runs and later runs delay no
    run.

    Example: `run_ahead(context["dag_run"])` is None for the only run of a DAG.
    """
    runs = ActiveRuns(run.dag_id)
    # A manual run may have no logical date in Airflow 3.
    at = run.logical_date or run.run_after
    # Ask in this order: a run that Airflow starts between two questions is in the answer to the later one.
    queued = islice(runs.before(at, "queued"), _MOST_QUEUED)
    startable = next((earlier for earlier in queued if is_backfill(earlier) != is_backfill(run)), None)
    # Others that run may occupy the slots that the queued run needs: waiting for it could be forever.
    is_alone = runs.count_running() <= 1
    running = list(runs.before(at, "running"))
    # A running run is safe to wait for: it has its slot, and waits only for earlier ones itself.
    if running:
        return RunAhead(running[0].run_id, "running", len(running))
    if startable is not None and is_alone:
        return RunAhead(startable.run_id, "queued")
    return None


def is_backfill(run: Any) -> bool:
    """Return whether a run belongs to a backfill."""
    return bool(run.run_type == "backfill")


def _ask(question: Any) -> Any:
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    # A task process asks the supervisor, because it has no access to Airflow's database.
    return SUPERVISOR_COMMS.send(question)
