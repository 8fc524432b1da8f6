"""Who may see what, by Airflow's own permissions on DAGs; and tidegate as this Airflow knows it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

from tidegate import protocol
from tidegate.app import App
from tidegate.errors import TidegateError
from tidegate.inspect import CatalogEntry
from tidegate.ledger.current import current_ledger
from tidegate.protocol import run_of_batch
from tidegate.settings import Settings
from tidegate.spec import Connection
from tidegate_airflow.connections import connection_environment, ledger_environment, require_absolute_home
from tidegate_airflow.runs import airflow_run_id, ledger_run_id


def open_app() -> App:
    """With this process's settings and Airflow's connections. Raises SettingsInvalid, LedgerUnavailable."""
    require_absolute_home()
    settings = Settings.from_environment({**os.environ, **ledger_environment()})
    return App(settings, current_ledger(settings.ledger))


def connected(app: App, entries: Iterable[CatalogEntry]) -> App:
    """The same, with Airflow's connections to what these pipelines' streams read and send to."""
    connections: set[Connection] = set()
    for entry in entries:
        more = [entry.pipeline] if entry.pipeline is not None else []
        for stream in entry.streams:
            with suppress(TidegateError):  # a plan that cannot be read is among the stream's problems
                connections |= protocol.connections(app.ledger, stream, *more)
    settings = Settings.from_environment({**os.environ, **connection_environment(connections)})
    return App(settings, app.ledger)


def readable_dags(user: Any, dag_ids: Collection[str]) -> set[str]:
    """Those of some DAGs that a user may read; whether Airflow knows the DAG does not matter."""
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
    """Whether a user may read the logs of a DAG's tasks, where what records hold is quoted as well."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method="GET", access_entity=DagAccessEntity.TASK_LOGS, details=details, user=user
        )
    )


def existing_runs(dag_id: str, ledger_ids: Collection[str]) -> dict[str, str]:
    """Return Airflow's id of each of some runs of the ledger that Airflow has: a batch may have been run
    without it, and a DagRun that was made anew with an old id is another one.
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
        if existing.get(run_id) == run_of_batch(ledger_id)
    }


def run_in_ledger(dag_id: str, run_id: str) -> str:
    """Return the id under which the ledger has a run of Airflow's, or the id itself if Airflow has none."""
    query = select(DagRun.run_after).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    with create_session(scoped=False) as session:
        run_after = session.scalars(query).first()
    return run_id if run_after is None else ledger_run_id(run_id, run_after)
