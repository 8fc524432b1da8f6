"""Who may see what, by Airflow's own permissions on DAGs; and tidegate as this Airflow knows it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import lru_cache
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
from tidegate.ledger import Ledger
from tidegate.settings import Settings
from tidegate.spec import Connection
from tidegate_airflow.connections import connection_environment, ledger_environment


def open_app() -> App:
    """With this process's settings and Airflow's connections. Raises SettingsInvalid, LedgerUnavailable."""
    settings = Settings.from_environment({**os.environ, **ledger_environment()})
    return App(settings, _ledger(settings.ledger))


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


@lru_cache(maxsize=2)
def _ledger(url: str) -> Ledger:
    """One for all requests: it has a pool of connections."""
    return Ledger.open_for_reading(url)


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


def existing_runs(dag_id: str, run_ids: Collection[str]) -> set[str]:
    """Those of some runs that Airflow has: a batch may have been run without it."""
    query = select(DagRun.run_id).where(DagRun.dag_id == dag_id, DagRun.run_id.in_(run_ids))
    with create_session(scoped=False) as session:
        return set(session.scalars(query))
