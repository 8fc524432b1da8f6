"""What the pages show of a stream, and who may see it: rows, access, and tasks that do not start.

Airflow leaves a task in the state `scheduled` whose pool does not exist, with a warning in the scheduler's
log alone, and a task in the state `queued` whose queue no worker takes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from tidegate.app import App
from tidegate.batch import connections, run_of_batch
from tidegate.errors import TidegateError
from tidegate.inspect import CatalogEntry, StreamDetails, StreamOverview
from tidegate.ledger import QualityResult, Stream
from tidegate.ledger.ledger import current_ledger
from tidegate.ledger.stream_condition import ConditionKind
from tidegate.model.connection import Connection
from tidegate.settings import Settings
from tidegate_airflow.connections import connection_environment, ledger_environment, require_absolute_home
from tidegate_airflow.runs import airflow_run_id, ledger_run_id

KINDS = {
    ConditionKind.HALTED: "bad",
    ConditionKind.FENCED: "bad",
    ConditionKind.FAILING: "bad",
    ConditionKind.CLOCK_AHEAD: "bad",
    ConditionKind.BEHIND: "warn",
    ConditionKind.RETIRED: "quiet",
    ConditionKind.WITHHELD: "quiet",
    ConditionKind.NOT_STARTED: "quiet",
    ConditionKind.OK: "good",
}
"""ConditionKind -> the CSS class of its colour."""
_LONGEST_QUEUED = timedelta(minutes=10)
_MOST_SHOWN = 20


@dataclass(frozen=True)
class Badge:
    """A word, and the CSS class of its colour."""

    kind: str
    label: str


def condition_badge(entry: CatalogEntry, overview: StreamOverview | None) -> Badge:
    """Return the badge of a stream's condition; for a file that names no stream, that it has mistakes."""
    if overview is not None:
        condition = overview.condition.condition
        return Badge(KINDS[condition], condition.label)
    return Badge("bad", "invalid file") if entry.problems else Badge("quiet", ConditionKind.NOT_STARTED.label)


@dataclass(frozen=True)
class IndexRow:
    """A pipeline in the list. `overview` is None if not even the generation is known."""

    entry: CatalogEntry
    overview: StreamOverview | None
    badge: Badge

    @classmethod
    def from_entry(cls, entry: CatalogEntry, overviews: Mapping[Stream, StreamOverview]) -> IndexRow:
        """Return the row of an entry, with the overview of its first stream.

        Args:
            entry: The pipeline.
            overviews: The overviews of all streams that are shown.
        """
        overview = overviews.get(entry.streams[0]) if entry.streams else None
        return cls(entry, overview, condition_badge(entry, overview))


@dataclass(frozen=True)
class PartitionRow:
    """A topic-partition of a source: the next offset to read, and where it ends now (None: not known)."""

    MOST: ClassVar[int] = 50

    topic: str
    partition: int
    offset: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets that are not read yet."""
        return None if self.end is None else max(0, self.end - self.offset)


def partition_rows(details: StreamDetails) -> list[PartitionRow]:
    """At most PartitionRow.MOST partitions, those that are furthest behind first.

    Args:
        details: The stream, with the ends of its topics if Kafka has answered.
    """
    status = details.overview.status
    if status is None:
        return []
    # Empty if the broker does not answer; partitions of the head are shown all the same.
    ends = details.lags.ends_of(status.head)
    offsets = status.head.offsets
    rows = [PartitionRow(*at, offsets.get(at, 0), ends.get(at)) for at in sorted({*offsets, *ends})]
    return sorted(rows, key=lambda row: -(row.lag or 0))[: PartitionRow.MOST]


def newest_try(results: Sequence[QualityResult]) -> list[QualityResult]:
    """Return the results of quality suites from the last try to validate a batch."""
    last = max((result.try_number for result in results), default=0)
    return [result for result in results if result.try_number == last]


def open_app() -> App:
    """Return an app with this process's settings and Airflow's ledger connection.

    Raises SettingsInvalid if a setting cannot be used, LedgerUnavailable if the database does not answer.
    """
    require_absolute_home()
    # A copy: the web server answers requests in threads, which share os.environ.
    settings = Settings.from_environment({**os.environ, **ledger_environment()})
    return App(settings, current_ledger(settings.ledger))


def connected(app: App, entries: Iterable[CatalogEntry]) -> App:
    """Return the app with Airflow's connections to the sources and sinks of these pipelines' streams."""
    used: set[Connection] = set()
    for entry in entries:
        more = [entry.pipeline] if entry.pipeline is not None else []
        for stream in entry.streams:
            with suppress(TidegateError):  # a plan that cannot be read is among the stream's problems
                used |= connections(app.ledger, stream, *more)
    settings = Settings.from_environment({**os.environ, **connection_environment(used)})
    return App(settings, app.ledger)


def readable_dags(user: Any, dag_ids: Collection[str]) -> set[str]:
    """Return which of the DAGs a user may read. A DAG that Airflow does not have can be among them.

    Args:
        user: Airflow's user of the request.
        dag_ids: Ids of DAGs.
    """
    # Auth managers check the DAGs of one team at a time.
    teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for dag_id in dag_ids:
        by_team[teams.get(dag_id)].add(dag_id)
    manager = get_auth_manager()
    readable: set[str] = set()
    for team, ids in by_team.items():
        readable |= manager.filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", team_name=team)
    return readable


def may_read_logs(user: Any, dag_id: str) -> bool:
    """Return whether a user may read the logs of a DAG's tasks, and so also pages that quote records.

    Args:
        user: Airflow's user of the request.
        dag_id: The id of the DAG.
    """
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method="GET", access_entity=DagAccessEntity.TASK_LOGS, details=details, user=user
        )
    )


def existing_runs(dag_id: str, ledger_ids: Collection[str]) -> dict[str, str]:
    """Return ledger's id -> Airflow's id, for those of the runs that Airflow has.

    A batch can have been run without Airflow, and a DagRun that was created again with an old id is another
    run.

    Example: `{"nightly@2026-01-31T02:00:00+00:00": "nightly"}`
    """
    runs = {ledger_id: airflow_run_id(ledger_id) for ledger_id in ledger_ids}
    query = select(DagRun.run_id, DagRun.run_after).where(
        DagRun.dag_id == dag_id, DagRun.run_id.in_(runs.values())
    )
    with create_session(scoped=False) as session:
        existing = {row.run_id: ledger_run_id(row.run_id, row.run_after) for row in session.execute(query)}
    return {
        ledger_id: run_id
        for ledger_id, run_id in runs.items()
        # Compared with `run_after` in the id: Airflow may have reused the run's id since.
        if existing.get(run_id) == run_of_batch(ledger_id)
    }


def run_in_ledger(dag_id: str, run_id: str) -> str:
    """Return the ledger's id of a run of Airflow; the given id if Airflow does not have the run.

    Example: `nightly@2026-01-31T02:00:00+00:00` for the run `nightly` of that instant.
    """
    query = select(DagRun.run_after).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    with create_session(scoped=False) as session:
        run_after = session.scalars(query).first()
    return run_id if run_after is None else ledger_run_id(run_id, run_after)


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
