"""Under which id the ledger has a run of Airflow's, and whose run an id of the ledger is.

A run's id may come again: a DagRun is deleted and made anew, or one is triggered with a fixed id. The ledger
would take such a run for the one that it knows, which has nothing left to read. So the ledger's id also has
the DagRun's `run_after`, the instant at which it may start first: Airflow sets it when it makes the DagRun,
and no retry and no clearing changes it. The ids that Airflow itself makes up have that instant already.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

_SEPARATOR = "@"
_CREATED = re.compile(rf"{_SEPARATOR}\d{{4}}-\d\d-\d\dT[\d:.]+\+00:00$")


def ledger_run_id(run_id: str, run_after: datetime) -> str:
    """Return the id under which the ledger has a DagRun.

    For example `nightly@2026-01-31T02:00:00.123456+00:00`; an id that has the instant already stays as it is.
    """
    created = run_after.astimezone(timezone.utc).isoformat()
    return run_id if created in run_id else f"{run_id}{_SEPARATOR}{created}"


def airflow_run_id(ledger_id: str) -> str:
    """Return Airflow's id of the run that the ledger has under an id, which may be that of a later batch."""
    from tidegate.protocol import run_of_batch

    return _CREATED.sub("", run_of_batch(ledger_id))


__all__ = ["airflow_run_id", "ledger_run_id"]
