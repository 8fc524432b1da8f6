"""Airflow's own API server with tidegate's plugin, in this process, on a metadata database of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from tests.conftest import REPOSITORY

HTML = {"accept": "text/html"}


@dataclass(frozen=True)
class Airflow:
    """The server. Its users are those of Airflow's simple auth manager."""

    client: TestClient

    def token(self, role: str | None = "viewer", teams: Sequence[str] = ()) -> str:
        """Return the login token of a user with a role (None: without any right) in some teams."""
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        user = SimpleAuthManagerUser(username="somebody", role=role, teams=list(teams))
        return str(get_auth_manager().generate_jwt(user))

    def get(self, path: str, token: str | None = None, **headers: str) -> Response:
        """A page below /tidegate, as a browser asks for it."""
        cookies = {"cookie": f"_token={token}"} if token else {}
        return self.client.get(f"/tidegate{path}", headers=HTML | cookies | headers, follow_redirects=False)


@contextmanager
def airflow_server(folder: Path) -> Iterator[Airflow]:
    """Made anew, with the plugin from this checkout."""
    from airflow import plugins_manager, settings
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from airflow.utils.db import initdb

    caches = (
        *(plugins_manager._get_plugins, plugins_manager._get_ui_plugins),
        plugins_manager.get_fastapi_plugins,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{folder / 'airflow.db'}")
        patch.setenv("AIRFLOW__CORE__PLUGINS_FOLDER", str(REPOSITORY / "plugins"))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(folder / "passwords.json"))
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "long enough to sign tokens with " * 2)
        _configure(settings, caches)
        initdb()
        try:
            with TestClient(create_app(apps="core")) as client:
                yield Airflow(client)
        finally:
            purge_cached_app()
            settings.dispose_orm(do_log=False)
    _configure(settings, caches)


def _configure(settings: Any, caches: Sequence[Any]) -> None:
    for cache in caches:
        cache.cache_clear()
    settings.configure_vars()
    settings.configure_orm()


def add_dag(dag_id: str, team: str) -> None:
    """A DAG that Airflow knows, of a team."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    with create_session(scoped=False) as session:
        bundle = DagBundleModel(name=f"bundle-{team}")
        bundle.teams.append(Team(name=team))
        session.add(bundle)
        session.flush()
        session.add(
            DagModel(
                dag_id=dag_id,
                bundle_name=bundle.name,
                max_active_tasks=1,
                max_active_runs=1,
                max_consecutive_failed_dag_runs=0,
                has_task_concurrency_limits=False,
            )
        )
