"""Airflow's connections become the settings' variables, with the driver that is installed."""

from __future__ import annotations

import json
import os

import pytest
from sqlalchemy import make_url

pytestmark = pytest.mark.airflow

POSTGRES = {
    "conn_type": "postgres",
    "host": "db",
    "port": 5433,
    "login": "u@x",
    "password": "p/w:d",
    "schema": "reports",
    "extra": {"sslmode": "require", "cursor": "realdictcursor", "nested": {"a": 1}},
}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What the connections are exported to is gone after the test."""
    for variable in ("TIDEGATE_SQL", "TIDEGATE_SQL_REPORTS"):
        monkeypatch.setenv(variable, "before")
        monkeypatch.delenv(variable)
    return monkeypatch


def test_a_connection_of_a_sql_sink_becomes_its_variable(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_sql_connections

    exported.setenv("AIRFLOW_CONN_TIDEGATE_SQL_REPORTS", json.dumps(POSTGRES))
    export_sql_connections(["reports"])
    url = make_url(os.environ["TIDEGATE_SQL_REPORTS"])
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == (
        *("u@x", "p/w:d", "db", 5433),
        "reports",
    )
    assert dict(url.query) == {"sslmode": "require"}


def test_a_sqlite_connection_is_its_file(exported: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.connections import export_sql_connections

    exported.setenv("AIRFLOW_CONN_TIDEGATE_SQL", '{"conn_type": "sqlite", "host": "/data/sink.db"}')
    export_sql_connections([None])
    assert os.environ["TIDEGATE_SQL"] == "sqlite:////data/sink.db"


def test_a_connection_that_airflow_does_not_have_leaves_the_environment_as_it_is(
    exported: pytest.MonkeyPatch,
) -> None:
    from tidegate_airflow.connections import export_sql_connections

    exported.setenv("TIDEGATE_SQL", "sqlite:///from-the-environment.db")
    export_sql_connections([None, "reports"])
    assert os.environ["TIDEGATE_SQL"] == "sqlite:///from-the-environment.db"
    assert "TIDEGATE_SQL_REPORTS" not in os.environ
