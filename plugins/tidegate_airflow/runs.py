"""Translate between Airflow's id of a run and the ledger's.

Airflow can use the id of a run again: a DagRun is deleted and created again, or is triggered with a fixed id.
The ledger would take it for the earlier run, which has nothing left to read. So the ledger's id also contains
the DagRun's `run_after`, the earliest instant at which it can start. Airflow sets it when it creates the
DagRun, and neither a retry nor clearing changes it. Ids that Airflow generates contain the instant already.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

_SEPARATOR = "@"
_CREATED = re.compile(rf"{_SEPARATOR}\d{{4}}-\d\d-\d\dT[\d:.]+\+00:00$")


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


__all__ = ["airflow_run_id", "ledger_run_id"]
