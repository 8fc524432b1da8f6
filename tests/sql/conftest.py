"""Every test of the sink runs on a SQLite file and on a PostgreSQL server that the tests start."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sink.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found
