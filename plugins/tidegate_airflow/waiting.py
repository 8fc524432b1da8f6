"""Tasks that do not start, and why.

Airflow leaves a task in the state `scheduled` whose pool does not exist, with a warning in the scheduler's
log alone, and a task in the state `queued` whose queue no worker takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

_LONGEST_QUEUED = timedelta(minutes=10)
_MOST_SHOWN = 20


@dataclass(frozen=True)
class WaitingTask:
    """A task that Airflow has not started yet."""

    task_id: str
    run_id: str
    state: str
    pool: str
    queue: str
    queued_at: datetime | None

    def reason(self, pools: Collection[str], now: datetime) -> str | None:
        """Return why it does not start, with what to do; None: it may start at any time.

        Args:
            pools: The names of Airflow's pools.
            now: The present instant, with a time zone.
        """
        task = f"The task {self.task_id} of the run {self.run_id}"
        if self.pool not in pools:
            return (
                f"{task} never starts: Airflow has no pool {self.pool}. Create the pool in Airflow, or "
                "correct `airflow: {pool: …}` in the pipeline file or in defaults.yaml."
            )
        # A short queue is normal: an executor takes a while to start a task.
        if self.state == "queued" and self.queued_at is not None and now - self.queued_at > _LONGEST_QUEUED:
            minutes = (now - self.queued_at) // timedelta(minutes=1)
            return (
                f"{task} has been queued for {minutes} minutes: no worker takes the queue {self.queue}, or "
                "none has a free slot. Start a worker for it, or correct `airflow: {queue: …}`."
            )
        return None


def waiting_reasons(dag_id: str) -> list[str]:
    """Return a sentence for each task of a DAG that does not start, as of now."""
    table = TaskInstance
    columns = (table.task_id, table.run_id, table.state, table.pool, table.queue, table.queued_dttm)
    query = select(*columns).where(table.dag_id == dag_id, table.state.in_(["scheduled", "queued"]))
    with create_session(scoped=False) as session:
        pools = set(session.scalars(select(Pool.pool)))
        # Bounded: a large backfill may have thousands of scheduled tasks.
        tasks = [WaitingTask(*row) for row in session.execute(query.limit(_MOST_SHOWN))]
    now = datetime.now(timezone.utc)
    reasons = (task.reason(pools, now) for task in tasks)
    return [reason for reason in reasons if reason is not None]
