"""Permissions of users, by Airflow's own on DAGs; and the app with Airflow's connections."""

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

from tidegate.app import App
from tidegate.batch import connections, run_of_batch
from tidegate.errors import TidegateError
from tidegate.inspect import CatalogEntry
from tidegate.ledger.current import current_ledger
from tidegate.settings import Settings
from tidegate.spec import Connection
from tidegate_airflow.connections import connection_environment, ledger_environment, require_absolute_home
from tidegate_airflow.runs import airflow_run_id, ledger_run_id


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
