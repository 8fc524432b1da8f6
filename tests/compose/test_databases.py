"""The stack's databases: the statements of `postgres-init`, on a PostgreSQL server of the test's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.compose.model import environment_of, filled, resolved
from tests.postgres import postgres_server
from tidegate.ledger import Ledger

pytestmark = pytest.mark.process

FILE = resolved(filled())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of an empty server whose superuser has the stack's password."""
    with postgres_server(environment_of(SERVICES["postgres"])["POSTGRES_PASSWORD"]) as running:
        yield running.port


def _initialise(port: int, folder: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the step's command as the stack does."""
    script = folder / "databases.sql"
    script.write_text(FILE["configs"]["databases"]["content"])
    step = SERVICES["postgres-init"]
    variables = {**environment_of(step), "PGHOST": "127.0.0.1", "PGPORT": str(port), **changed}
    command = [word.replace("/databases.sql", str(script)) for word in step["command"]]
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _url(variable: str, port: int) -> URL:
    """Return the URL of a service's database, on this machine."""
    url = make_url(environment_of(SERVICES["airflow-scheduler"])[variable])
    return url.set(host="127.0.0.1", port=port)


def _connects(url: URL) -> bool:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return connection.execute(text("SELECT current_database()")).scalar() == url.database
    except OperationalError:
        return False
    finally:
        engine.dispose()


URLS: Mapping[str, str] = {
    "airflow": "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "tidegate": "TIDEGATE_LEDGER",
    "sink": "TIDEGATE_SQL",
}


def test_second_start_finds_all_databases(server: int, tmp_path: Path) -> None:
    for _ in range(2):
        done = _initialise(server, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    for database, variable in URLS.items():
        assert _url(variable, server).database == database
        assert _connects(_url(variable, server))


def test_the_ledger_can_be_opened_in_its_database(server: int, tmp_path: Path) -> None:
    assert _initialise(server, tmp_path).returncode == 0
    ledger = Ledger.open(_url("TIDEGATE_LEDGER", server).render_as_string(hide_password=False))
    assert ledger.streams() == []


@pytest.mark.airflow
@pytest.mark.long
def test_airflow_makes_its_tables_and_reads_them_asynchronously(server: int, tmp_path: Path) -> None:
    assert _initialise(server, tmp_path).returncode == 0
    variables = dict(os.environ, AIRFLOW_HOME=str(tmp_path))
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"):
        variables[name] = _url(name, server).render_as_string(hide_password=False)
    airflow = [sys.executable, "-m", "airflow", "db"]
    for word in ("migrate", "check-migrations"):
        done = subprocess.run(
            [*airflow, word], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]

    async def versions() -> int:
        engine = create_async_engine(variables["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"])
        async with engine.connect() as connection:
            count = await connection.scalar(text("SELECT count(*) FROM alembic_version"))
        await engine.dispose()
        return int(count or 0)

    assert asyncio.run(versions()) == 1


def test_no_owner_gets_into_another_s_database(server: int, tmp_path: Path) -> None:
    assert _initialise(server, tmp_path).returncode == 0
    for owner, variable in URLS.items():
        reached = [name for name in URLS if _connects(_url(variable, server).set(database=name))]
        assert reached == [owner]


def test_changed_password_counts_from_the_next_start(server: int, tmp_path: Path) -> None:
    old = _url("TIDEGATE_LEDGER", server)
    assert _initialise(server, tmp_path, LEDGER_DB_PASSWORD="another-one").returncode == 0
    assert not _connects(old)
    assert _connects(old.set(password="another-one"))
    assert _initialise(server, tmp_path).returncode == 0
    assert _connects(old)


def test_password_unfit_for_a_url_is_refused(server: int, tmp_path: Path) -> None:
    done = _initialise(server, tmp_path, LEDGER_DB_PASSWORD="p@ss/word")
    assert done.returncode == 3
    assert "use only letters, digits" in done.stderr
    assert "p@ss" not in done.stderr
