"""Runs of a DAG: their ids in the ledger, their order, and the last valid text of each pipeline file.

Airflow can use the id of a run again: a DagRun is deleted and created again, or is triggered with a fixed id.
The ledger would take it for the earlier run, which has nothing left to read. So the ledger's id also contains
the DagRun's `run_after`, the earliest instant at which it can start. Airflow sets it when it creates the
DagRun, and neither a retry nor clearing changes it. Ids that Airflow generates contain the instant already.

The runs of a DAG stay in the order of their intervals: a run's plan step waits for earlier runs.

`max_active_runs` does not do this, because a backfill has its own limit, ten by default, beside that of the
DAG. A run that waits gives its slot back; it plans nothing and takes no lease.

No two runs may wait for each other. Airflow starts a queued run only if its kind (runs of the backfill, or
all others) may have one more running. So no run waits for a later one, nor for a queued run that cannot start
because of it:

* A run waits for every earlier one that is running.
* It waits for an earlier one that is queued only if that is of the other kind, and no other run is running.
  Of its own kind Airflow starts the earliest first; if such a run is queued all the same, it was cleared, or
  belongs to a backfill that goes backwards, which `batch.plan` refuses.

The last valid text of each pipeline file is in TIDEGATE_HOME, for the DAG processor.
A file with a mistake in its `schedule` keeps its last valid schedule. Parsing must not read the ledger, so
`plan` stores the text. If the DAG processor does not share the folder with the workers, the text is missing:
then such a file has no schedule until it is corrected.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any

_SEPARATOR = "@"
_CREATED = re.compile(rf"{_SEPARATOR}\d{{4}}-\d\d-\d\dT[\d:.]+\+00:00$")
_NEXT_TURN = timedelta(seconds=15)
_TURN = timedelta(seconds=30)
"""The usual duration of a run: five tasks, and Spark's start in one of them."""
_LONGEST_WAIT = timedelta(minutes=10)
_MOST_QUEUED = 50
"""The largest number of queued runs that are read: a backfill that goes backwards can have thousands."""
log = logging.getLogger(__name__)


def ledger_run_id(run_id: str, run_after: datetime) -> str:
    """Return the ledger's id of a DagRun. An id that contains the instant already stays as it is.

    Example: `nightly@2026-01-31T02:00:00.123456+00:00` for the run id `nightly`.
    """
    # The same instant can arrive in different time zones; its text must not differ.
    created = run_after.astimezone(timezone.utc).isoformat()
    return run_id if created in run_id else f"{run_id}{_SEPARATOR}{created}"


def airflow_run_id(ledger_id: str) -> str:
    """Return Airflow's id of a run, from the ledger's id of the run or of one of its later batches.

    Example: `nightly` for `nightly@2026-01-31T02:00:00.123456+00:00#2`.
    """
    from tidegate.batch import run_of_batch

    return _CREATED.sub("", run_of_batch(ledger_id))


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
    if startable is not None and runs.count_running() > 1:
        startable = None
    running = list(runs.before(at, "running"))
    # A running run is safe to wait for: it has its slot, and waits only for earlier ones itself.
    if running:
        return RunAhead(running[0].run_id, "running", len(running))
    if startable is not None:
        return RunAhead(startable.run_id, "queued")
    return None


def is_backfill(run: Any) -> bool:
    """Return whether a run belongs to a backfill."""
    return bool(run.run_type == "backfill")


def _ask(question: Any) -> Any:
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    # A task process asks the supervisor, because it has no access to Airflow's database.
    return SUPERVISOR_COMMS.send(question)


def recall_text(home: Path, name: str) -> str:
    """Return the text with which a batch of the file `name` was last planned; empty if none is stored.

    Args:
        home: TIDEGATE_HOME.
        name: The name of the pipeline file, without `.yaml`.
    """
    try:
        return _path(home, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def remember_text(home: Path, name: str, text: str) -> None:
    """Store a text with which a batch was planned. If the disk refuses it, it logs a warning, and the batch
    continues.

    Args:
        home: TIDEGATE_HOME.
        name: The name of the pipeline file, without `.yaml`.
        text: The text of the file.
    """
    # Each batch calls this, and the text seldom changes: a read is cheaper than a write.
    if recall_text(home, name) == text:
        return
    path = _path(home, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # By process id: two runs of a file may write at the same time.
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)  # atomic, so that the DAG processor never reads half of it
    except OSError as error:
        log.warning("The text of %s cannot be kept for the DAG processor: %s", name, error)


def _path(home: Path, name: str) -> Path:
    return home / "last_good" / f"{name}.yaml"
