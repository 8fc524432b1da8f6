"""The databases that the tests of SQL sinks run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mariadb import MariaDbServer


def new_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty database of a kind; `postgresql, staged` gets all rows through a staging table, and
    `postgresql, in shards` through the tables of two shards.
    """
    kind, _, way = kind.partition(", ")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    if way == "staged":
        monkeypatch.setattr("tidegate.sinks.sql.dialects.postgresql.STAGED_ROWS", 1)
    elif way == "in shards":
        monkeypatch.setattr("tests.sinks.sql.sink.SHARDS", 2)
    if kind in ("sqlite", "duckdb"):
        return f"{kind}:///{folder / 'database.db'}"
    if kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        return server.new_database()
    return str(request.getfixturevalue("postgres_url"))


KEY_TYPE = {"mysql": "varchar(200) COLLATE utf8mb4_nopad_bin"}
"""The type of a key in a table that a person makes; elsewhere text."""


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "duckdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind that the tests have."""
    return new_database(request.param, request, tmp_path)
