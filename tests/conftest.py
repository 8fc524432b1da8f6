"""The real parts that tests share: one broker, one Spark session, one PostgreSQL; and what each has anew."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.clickhouse import ClickHouseServer, clickhouse_server
from tests.examples import DEFAULT_EXAMPLES
from tests.mariadb import MariaDbServer, mariadb_server
from tests.memory import folder_in_memory
from tests.postgres import PostgresServer, postgres_server
from tests.sampling import SEED, leave_a_sample
from tests.secured import SecuredBroker
from tests.world import World
from tidegate import failpoints
from tidegate_dev.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parent.parent

if (memory := folder_in_memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))

# A JVM that ends after some minutes of small batches does not earn what its second compiler costs.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# How long an example takes says nothing about what it shows; in CI the same examples run every time.
settings.register_profile(
    "tidegate",
    max_examples=DEFAULT_EXAMPLES,
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("tidegate")


_HISTORIES = ("app/test_tables", "erasure/", "generations/", "maintenance/", "recovery/")
"""Tests that play histories of batches. Each takes seconds; together, a third of the time of all others."""


def pytest_report_header() -> str:
    return f"samples of cases: TIDEGATE_TEST_SEED={SEED}"


def pytest_collection() -> None:
    # What is imported before the first test stays: to look for garbage among it costs collection a fifth of
    # its time, and drawn tests a tenth.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


_MARKS = {
    "spark": {"spark"},
    "broker": {"broker", "secured"},
    "process": {"clickhouse", "clickhouse_url", "mariadb", "postgres", "postgres_url"},
}
"""Mark -> the fixtures that say that a test needs it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server or Spark, by their fixtures, those of whole histories as `heavy`,
    and the cases that a sample leaves out as `long`.
    """
    leave_a_sample(items)
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(_HISTORIES):
            item.add_marker(pytest.mark.heavy)
        fixtures = {*getattr(item, "fixturenames", ())}
        for mark, servers in _MARKS.items():
            if fixtures & servers:
                item.add_marker(mark)
        # A database that a parameter chooses is a fixture that is asked for only when the test runs.
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if any(
            value.startswith(("mariadb", "postgresql"))
            for value in parameters.values()
            if isinstance(value, str)
        ):
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def installed() -> Path:
    """Return the folder in which `make setup` installed the broker."""
    return Path(os.environ.get("TIDEGATE_HOME") or REPOSITORY / ".tidegate").absolute()


@pytest.fixture(scope="session")
def home(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TIDEGATE_HOME of this test run's own, with the installed broker."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "jars").symlink_to(installed / "jars", target_is_directory=True)
    return folder


@pytest.fixture(scope="session")
def broker(home: Path) -> Iterator[KafkaBroker]:
    """A real broker, for all tests that need one and do not kill it."""
    with KafkaBroker(home) as running:
        yield running


@pytest.fixture(scope="session")
def secured(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Another real broker, with TLS and logins."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "jars").symlink_to(installed / "jars", target_is_directory=True)
    with SecuredBroker(folder) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run."""
    from tidegate.spark.session import open_session

    session = open_session("local[2]")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def unhit_failpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits of failpoints are counted from each test's begin, whatever the process has run before."""
    monkeypatch.setattr(failpoints, "_hits", Counter())


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on Python's path, for a user's modules; a test's imports are forgotten."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    packages = {path.stem for path in folder.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, for all tests that need one; who stops it starts it again."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """An empty database of one test's own on that server."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A real MariaDB server, for all tests that need one."""
    with mariadb_server() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouseServer]:
    """The engine of ClickHouse behind HTTP, for all tests that need one."""
    with clickhouse_server() as server:
        yield server


@pytest.fixture
def clickhouse_url(clickhouse: ClickHouseServer) -> str:
    """An empty database of one test's own on that server."""
    return clickhouse.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, for ledger or sink: a test of it runs on a SQLite file and on that server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'database.db'}"
    fixture_url: str = request.getfixturevalue("postgres_url")
    return fixture_url


@pytest.fixture
def world(broker: KafkaBroker, spark: SparkSession, tmp_path: Path) -> World:
    """Topics, ledger and lake of one test's own, on the shared broker and session."""
    return World(broker.bootstrap_servers, tmp_path, lambda _: spark)
