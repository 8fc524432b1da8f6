"""Opening the ledger's database: SQLite or PostgreSQL, at the newest schema."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from tidegate.errors import LedgerUnavailable, SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.postgres import connect_options

SCHEMA_REVISION = "0010"
_OLDEST_REVISION = "0010"
_BUSY_TIMEOUT_MS = 30_000
_AT_LEAST_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
"""For one transaction. `local` is durable on the server itself; replicas are the operator's business."""
_READ_ONLY = "25006"  # a server that has just become a replica


def open_database(url: str) -> Engine:
    """An engine on the ledger, migrated to `SCHEMA_REVISION`.

    Raises SettingsInvalid for an unusable URL and for a ledger of another version of tidegate,
    LedgerUnavailable when the database does not answer.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, pool_pre_ping=True, connect_args=connect_options(parsed))
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise SettingsInvalid(
            "TIDEGATE_LEDGER is not a database URL",
            "Write sqlite:///path/to/ledger.db or postgresql+psycopg://user@host/database.",
        ) from error
    except OSError as error:
        raise LedgerUnavailable(
            f"The ledger's folder cannot be made: {error}", "Make it writable, or set TIDEGATE_LEDGER."
        ) from error
    if engine.dialect.name == "sqlite":
        _make_sqlite_transactional(engine)
    if engine.dialect.name == "postgresql":
        _make_postgresql_durable(engine)
    with answering(engine.url.render_as_string(hide_password=True)):
        _migrate(engine)
    return engine


@contextmanager
def answering(name: str) -> Iterator[None]:
    """Turn the database's failures into LedgerUnavailable; constraint violations pass."""
    try:
        yield
    except DBAPIError as error:
        is_read_only = getattr(error.orig, "sqlstate", None) == _READ_ONLY
        if not (isinstance(error, OperationalError) or error.connection_invalidated or is_read_only):
            raise
        raise LedgerUnavailable(
            f"The ledger {name} does not answer: {str(error.orig).splitlines()[0]}",
            "Check that the database runs, is writable and not full; then run again, nothing is lost.",
        ) from error


def for_reading(engine: Engine) -> Engine:
    """The same engine, whose transactions see one state of the database throughout and cannot change it.

    They wait for no writer, and no writer waits for them.
    """
    return engine.execution_options(tidegate_reads=True)


def _make_sqlite_transactional(engine: Engine) -> None:
    """Real transactions, DDL included, and one writer at a time from BEGIN on: not the driver's default.

    Who only reads takes no lock: in WAL mode its first read fixes what it sees. It is kept from writing,
    which would fail as soon as somebody else has written meanwhile.
    """

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = _reads(connection)
        connection.exec_driver_sql(f"PRAGMA query_only={reads:d}")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _make_postgresql_durable(engine: Engine) -> None:
    """A commit that was answered outlives the server, also where server, database or user have it otherwise.
    What is safer than that stays, such as waiting for a replica.

    And nobody waits for ever: the server ends the session of one that stops in the middle of a transaction.
    """

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if _reads(connection):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        else:
            connection.exec_driver_sql(_AT_LEAST_DURABLE)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_BUSY_TIMEOUT_MS}")
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {2 * _BUSY_TIMEOUT_MS}")


def _reads(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("tidegate_reads"))


def _write_ahead(connection: Any) -> None:
    """Keep a log of writes. Of two first users at once, one hears that the file is locked: it tries again."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(engine: Engine) -> None:
    with for_reading(engine).connect() as connection:
        revision = _revision(connection)
    if revision == SCHEMA_REVISION:
        return
    if revision is not None:
        _require_known(engine, revision)
    # Imported late: only the first use of a database needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.connect() as connection, connection.begin() as transaction:
        if engine.dialect.name == "postgresql":
            # Two first users at once: the second waits here and finds the work done.
            connection.execute(text("SELECT pg_advisory_xact_lock(745369)"))
        config.attributes["connection"] = connection
        command.upgrade(config, SCHEMA_REVISION)
        with failpoint("ledger.migrate"):
            transaction.commit()


def _require_known(engine: Engine, revision: str) -> None:
    """A ledger of an unknown schema is never taken for an empty one. Raises SettingsInvalid."""
    name = engine.url.render_as_string(hide_password=True)
    if revision < _OLDEST_REVISION:
        raise SettingsInvalid(
            f"The ledger {name} is of a tidegate from before the first release (schema {revision})",
            "It cannot be converted. Set TIDEGATE_LEDGER and TIDEGATE_LAKE to new places, and raise "
            "`generation` of pipelines that have published.",
        )
    if revision > SCHEMA_REVISION:
        raise SettingsInvalid(
            f"The ledger {name} has schema {revision}; this tidegate reads {SCHEMA_REVISION}",
            "Use the version of tidegate that last wrote to it, or a newer one.",
        )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("tidegate_schema"):
        return None
    return connection.execute(text("SELECT version_num FROM tidegate_schema")).scalar()
