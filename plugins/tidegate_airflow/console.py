"""Airflow as the host of the console: its login, its rights on DAGs, its runs and connections, and the tasks
that do not start.

Airflow leaves a task in the state `scheduled` whose pool does not exist, with a warning in the scheduler's
log alone, and a task in the state `queued` whose queue no worker takes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from fastapi import Depends, Request, params
from sqlalchemy import select

from tidegate.app import App, OpenSession
from tidegate.batch import connections, run_of_batch
from tidegate.errors import TidegateError
from tidegate.inspect import CatalogEntry
from tidegate.ledger.ledger import current_ledger
from tidegate.model.connection import Connection
from tidegate.settings import Settings
from tidegate_airflow.connections import connection_environment, ledger_environment, require_absolute_home
from tidegate_airflow.operators import root_path
from tidegate_airflow.runs import airflow_run_id, ledger_run_id

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


def remember_user(request: Request, user: GetUserDep) -> None:
    """Note the user of a request, whom Airflow has logged in."""
    request.state.user = user


class AirflowHost:
    """Serves the pages behind Airflow's login, by the rights on each pipeline's DAG."""

    may_enter: Sequence[params.Depends] = (Depends(remember_user),)
    may_read_runs: Sequence[params.Depends] = (Depends(requires_access_dag("GET", DagAccessEntity.RUN)),)
    may_read_logs: Sequence[params.Depends] = (
        Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS)),
    )

    @property
    def airflow(self) -> str:
        """The path below which Airflow is served."""
        return root_path()

    def open_app(self) -> App:
        """Return an app with this process's settings and Airflow's ledger connection.

        Raises SettingsInvalid if a setting cannot be used, LedgerUnavailable if the database does not answer.
        """
        require_absolute_home()
        # A copy: the web server answers requests in threads, which share os.environ.
        settings = Settings.from_environment({**os.environ, **ledger_environment()})
        return App(settings, current_ledger(settings.ledger))

    def open_session(self, app: App) -> OpenSession | None:
        """Return None: a driver of Spark would take the memory of the web server that all users share."""
        del app
        return None

    def connected(self, app: App, entries: Iterable[CatalogEntry]) -> App:
        """Return the app with Airflow's connections to the sources and sinks of these pipelines' streams."""
        used: set[Connection] = set()
        for entry in entries:
            more = [entry.pipeline] if entry.pipeline is not None else []
            for stream in entry.streams:
                with suppress(TidegateError):  # a plan that cannot be read is among the stream's problems
                    used |= connections(app.ledger, stream, *more)
        settings = Settings.from_environment({**os.environ, **connection_environment(used)})
        return App(settings, app.ledger)

    def readable_dags(self, request: Request, dag_ids: Collection[str]) -> set[str]:
        """Return which of the DAGs a user may read. A DAG that Airflow does not have can be among them.

        Args:
            request: The request, with Airflow's user.
            dag_ids: Ids of DAGs.
        """
        # Auth managers check the DAGs of one team at a time.
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
        by_team: dict[str | None, set[str]] = defaultdict(set)
        for dag_id in dag_ids:
            by_team[teams.get(dag_id)].add(dag_id)
        manager, user = get_auth_manager(), request.state.user
        readable: set[str] = set()
        for team, ids in by_team.items():
            readable |= manager.filter_authorized_dag_ids(
                dag_ids=ids, user=user, method="GET", team_name=team
            )
        return readable

    def reads_logs(self, request: Request, dag_id: str) -> bool:
        """Return whether a user may read the logs of a DAG's tasks, and so also pages that quote records.

        Args:
            request: The request, with Airflow's user.
            dag_id: The id of the DAG.
        """
        return _is_authorized(request, dag_id, "GET", DagAccessEntity.TASK_LOGS)

    def may_trigger(self, request: Request, dag_id: str) -> bool:
        """Return whether a user may trigger runs of a DAG.

        Args:
            request: The request, with Airflow's user.
            dag_id: The id of the DAG.
        """
        return _is_authorized(request, dag_id, "POST", DagAccessEntity.RUN)

    def existing_runs(self, dag_id: str, ledger_ids: Collection[str]) -> dict[str, str]:
        """Return ledger's id -> Airflow's id, for those of the runs that Airflow has.

        A batch can have been run without Airflow, and a DagRun that was created again with an old id is
        another run.

        Example: `{"nightly@2026-01-31T02:00:00+00:00": "nightly"}`
        """
        runs = {ledger_id: airflow_run_id(ledger_id) for ledger_id in ledger_ids}
        query = select(DagRun.run_id, DagRun.run_after).where(
            DagRun.dag_id == dag_id, DagRun.run_id.in_(runs.values())
        )
        with create_session(scoped=False) as session:
            existing = {
                row.run_id: ledger_run_id(row.run_id, row.run_after) for row in session.execute(query)
            }
        return {
            ledger_id: run_id
            for ledger_id, run_id in runs.items()
            # Compared with `run_after` in the id: Airflow may have reused the run's id since.
            if existing.get(run_id) == run_of_batch(ledger_id)
        }

    def run_in_ledger(self, dag_id: str, run_id: str) -> str:
        """Return the ledger's id of a run of Airflow; the given id if Airflow does not have the run.

        Example: `nightly@2026-01-31T02:00:00+00:00` for the run `nightly` of that instant.
        """
        query = select(DagRun.run_after).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        with create_session(scoped=False) as session:
            run_after = session.scalars(query).first()
        return run_id if run_after is None else ledger_run_id(run_id, run_after)

    def waiting_reasons(self, dag_id: str) -> list[str]:
        """Return a sentence for each task of the DAG that does not start."""
        return waiting_reasons(dag_id)

    def login_path(self, request: Request) -> str:
        """Return the path of Airflow's login that leads back to the request's page."""
        return str(get_auth_manager().get_url_login(next_url=str(request.url)))


def _is_authorized(
    request: Request, dag_id: str, method: Literal["GET", "POST"], entity: DagAccessEntity
) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method, access_entity=entity, details=details, user=request.state.user
        )
    )
