"""Open the ledger's database, SQLite or PostgreSQL: for writing, for reading, and for a migration."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Row,
    Select,
    StaticPool,
    create_engine,
    event,
    extract,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from tidegate.database_url import database_url
from tidegate.errors import LedgerUnavailable, SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.ledger.schema import metadata
from tidegate.postgres import LOST_STATEMENT_FIX, connect_options, is_lost_statement
from tidegate.redaction import redacted, secrets_of, shown_url

SCRIPTS = Path(__file__).parent / "migrations"
SCHEMA_REVISION = "0001"
_LOCK = 745369  # an arbitrary number, tidegate's own among PostgreSQL's advisory locks


def schema_revision(engine: Engine) -> str | None:
    """Return the revision of the database's schema; None if it has no tables yet."""
    with engine.connect() as connection:
        return _revision(connection)


def migrate(engine: Engine) -> tuple[str | None, str]:
    """Bring the schema to `SCHEMA_REVISION`, in one transaction; returns the revision before and after.

    Raises SettingsInvalid for a schema that this version does not know.
    """
    revision = schema_revision(engine)
    if revision == SCHEMA_REVISION:
        return revision, revision
    if revision is not None:
        _require_known(engine, revision)
    # Imported late: only the first use of a database needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    with engine.connect() as connection, connection.begin() as transaction:
        if engine.dialect.name == "postgresql":
            # If two processes are the first users, the second one waits here and finds the tables.
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        config.attributes["connection"] = connection
        command.upgrade(config, SCHEMA_REVISION)
        with failpoint("ledger.migrate"):
            transaction.commit()
    return revision, SCHEMA_REVISION


def require_current(engine: Engine, revision: str) -> None:
    """Raise SettingsInvalid if the schema is not that of this version; its message says what to do."""
    _require_known(engine, revision)
    if revision != SCHEMA_REVISION:
        raise SettingsInvalid(
            f"The ledger {shown_url(engine.url)} has schema {revision}; "
            f"this tidegate needs {SCHEMA_REVISION}",
            "Let the older tidegate end its work, then run `tidegate migrate`, as the database's owner, or "
            "trigger the DAG tidegate_maintenance, whose first task does the same.",
        )


def _require_known(engine: Engine, revision: str) -> None:
    """Raise SettingsInvalid for the schema of a newer tidegate: it must never count as an empty ledger."""
    # Revisions are numbers as texts of one length, so texts compare as their numbers do.
    if revision > SCHEMA_REVISION:
        raise SettingsInvalid(
            f"The ledger {shown_url(engine.url)} has schema {revision}; "
            f"this tidegate reads {SCHEMA_REVISION}",
            "Use the version of tidegate that last wrote to it, or a newer one.",
        )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("tidegate_schema"):
        return None
    return connection.execute(text("SELECT version_num FROM tidegate_schema")).scalar()


_BUSY_TIMEOUT_MS = 30_000
_AT_LEAST_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
"""For one transaction. `local` is durable on the server itself; the operator decides about replicas."""
_EXAMPLES = "Write sqlite:///path/to/ledger.db or postgresql+psycopg://user@host/database."
_NOT_SQLITE = ("file is not a database", "database disk image is malformed")
_OTHER_TABLES = re.compile("no such (column|table)|has no column named")  # of SQLite
_OTHER_TABLES_CODES = ("42703", "42P01")  # undefined_column, undefined_table
_NO_PRIVILEGE = "42501"
_READ_ONLY = "25006"  # a server that has just become a replica


def open_database(url: str) -> Engine:
    """Return an engine for a process that runs batches. An empty database gets its tables.

    Raises SettingsInvalid if the URL is unusable or the ledger has the schema of another version of tidegate,
    LedgerUnavailable if the database does not answer.
    """
    engine = _engine(url)
    _make_folder(engine)
    with answering(engine.url):
        revision = schema_revision(for_reading(engine))
        if revision is None:
            # Only an empty database is changed here: an older tidegate may still use its own tables.
            migrate(engine)
        else:
            require_current(engine, revision)
    return engine


def open_for_reading(url: str) -> Engine:
    """Return an engine for a process that only reads, such as `status` or the page: it changes nothing.

    If no ledger exists yet, the engine has an empty one in memory, so that readers need no special case.
    Raises as `open_database` does.
    """
    engine = _engine(url)
    with answering(engine.url):
        revision = None if _is_absent(engine) else schema_revision(for_reading(engine))
        if revision is None:
            return _empty_in_memory()
        require_current(engine, revision)
    return engine


def migrate_database(url: str) -> tuple[str | None, str]:
    """Bring the ledger to this version's schema; an empty database gets its tables.

    Returns the revision before (None: the database had no tables) and the revision after. Raises as
    `open_database` does.
    """
    engine = _engine(url)
    _make_folder(engine)
    with answering(engine.url):
        return migrate(engine)


def database_clock(engine: Engine) -> Callable[[], float]:
    """Return a function that gives epoch seconds by the clock that all users of a ledger share.

    On PostgreSQL it is the clock of the server. The server is asked once, and the machine's monotonic clock
    counts from there, so a clock that is set on this machine changes nothing. A SQLite file belongs to one
    machine, so its clock is that of the machine. Raises LedgerUnavailable if the database does not answer.
    """
    if engine.dialect.name != "postgresql":
        return time.time
    with answering(engine.url), for_reading(engine).begin() as connection:
        now = connection.execute(select(extract("epoch", func.clock_timestamp()))).scalar_one()
    ahead = float(now) - time.monotonic()
    return lambda: time.monotonic() + ahead


def _engine(url: str) -> Engine:
    parsed = database_url(url, {"postgresql": "psycopg"}.get)
    if parsed is None:
        raise SettingsInvalid("TIDEGATE_LEDGER is not a database URL", _EXAMPLES)
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise SettingsInvalid(f"A ledger cannot be in {parsed.drivername}", _EXAMPLES)
    # A restart of the server breaks pooled connections: each is checked before it is used.
    engine = create_engine(parsed, pool_pre_ping=True, connect_args=connect_options(parsed))
    if engine.dialect.name == "sqlite":
        _make_sqlite_transactional(engine)
    if engine.dialect.name == "postgresql":
        _make_postgresql_durable(engine)
    return engine


def _make_folder(engine: Engine) -> None:
    """Make the folder of SQLite's file: SQLite creates the file, but not its folder."""
    try:
        if engine.dialect.name == "sqlite" and engine.url.database:
            Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerUnavailable(
            f"The ledger's folder cannot be made: {error}", "Make it writable, or set TIDEGATE_LEDGER."
        ) from error


def _is_absent(engine: Engine) -> bool:
    """Return whether SQLite has no file yet. Connecting would create it."""
    is_file = engine.dialect.name == "sqlite" and bool(engine.url.database)
    return is_file and not Path(str(engine.url.database)).exists()


def _empty_in_memory() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    _make_sqlite_transactional(engine)
    metadata.create_all(engine)
    return engine


@contextmanager
def answering(url: URL) -> Iterator[None]:
    """Turn failures of the database into LedgerUnavailable or SettingsInvalid; constraint violations pass
    through.

    Callers use a constraint violation as an answer: another process was first. Passwords of the URL never get
    into a message: if the driver's error contains one, the message is redacted and the error is not chained.
    """
    try:
        yield
    except DBAPIError as error:
        name, secrets = shown_url(url), secrets_of(url)
        first_line = (str(error.orig).splitlines() or [type(error.orig).__name__])[0]
        reason = redacted(first_line, secrets)
        cause = None if any(secret in str(error) for secret in secrets) else error
        state = getattr(error.orig, "sqlstate", None)
        if state == _NO_PRIVILEGE:
            raise SettingsInvalid(
                f"The user of the ledger {name} may not do that: {reason}",
                "Run `tidegate migrate` as the owner of the tables. docs/postgresql.md lists the privileges "
                "that each user needs.",
            ) from cause
        if is_lost_statement(error):
            raise SettingsInvalid(
                f"The ledger {name} lost a statement: {reason}", LOST_STATEMENT_FIX
            ) from cause
        if state in _OTHER_TABLES_CODES or _OTHER_TABLES.search(reason):
            raise SettingsInvalid(
                f"The ledger {name} lacks a table or column; another version of tidegate made it ({reason})",
                "Use that version, or set TIDEGATE_LEDGER or TIDEGATE_HOME for another ledger.",
            ) from cause
        if reason in _NOT_SQLITE:
            raise SettingsInvalid(
                f"The ledger {name} cannot be used: {reason}",
                "Correct TIDEGATE_LEDGER or TIDEGATE_HOME, or restore the file from a backup.",
            ) from cause
        is_read_only = state == _READ_ONLY
        if not (isinstance(error, OperationalError) or error.connection_invalidated or is_read_only):
            raise
        raise LedgerUnavailable(
            f"The ledger {name} does not answer: {reason}",
            "Check that the database runs, is writable and not full; then run again, nothing is lost.",
        ) from cause


def for_reading(engine: Engine) -> Engine:
    """Return the engine for transactions that see one state of the database throughout and cannot change it.

    They wait for no writer, and no writer waits for them.
    """
    return engine.execution_options(tidegate_reads=True)


def _make_sqlite_transactional(engine: Engine) -> None:
    """Give SQLite real transactions, DDL included, with one writer at a time from BEGIN on.

    Python's driver would begin a transaction only before the first INSERT, UPDATE or DELETE, so that reads
    and DDL before it would run outside. A reading transaction takes no lock: in WAL mode its first read fixes
    what it sees. It may not write, since SQLite refuses to upgrade it as soon as another process has written.
    """

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # turns off the driver's own BEGIN and COMMIT
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        _write_ahead(connection)
        # With a write-ahead log only FULL flushes every commit; NORMAL can lose the last ones.
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = _reads(connection)
        # A pooled connection serves readers and writers in turn, so each transaction sets it.
        connection.exec_driver_sql(f"PRAGMA query_only={reads:d}")
        # IMMEDIATE takes the write lock now. A plain BEGIN takes it at the first write, and SQLite refuses
        # that without waiting if another process has written since the first read.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _make_postgresql_durable(engine: Engine) -> None:
    """Make commits of PostgreSQL durable, even if server, database or user have set `synchronous_commit` to
    off.

    Stricter settings stay, such as waiting for a replica. The timeouts limit every wait: the server ends the
    session of a process that stops in the middle of a transaction.
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
    """Switch SQLite to its write-ahead log. If two processes are the first users, one finds the file locked:
    it retries.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def overwrite_removed_rows(engine: Engine) -> None:
    """Write SQLite's file anew, and empty its write-ahead log. Raises LedgerUnavailable."""
    with answering(engine.url), failpoint("ledger.vacuum"):
        connection = engine.raw_connection()
        try:
            connection.execute("PRAGMA query_only=0")
            # A deleted or changed row leaves its bytes in free parts of pages, and in the log.
            connection.execute("VACUUM")
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            connection.close()
    if is_busy:
        raise LedgerUnavailable(
            f"The write-ahead log of {shown_url(engine.url)} cannot be emptied: another process reads it",
            "Run again when it has ended.",
        )


class LedgerDatabase:
    """The database of a ledger, and its transactions. The failpoint `ledger.<name>` is around each.

    Args:
        engine: the database.
        now: gives epoch seconds; it only limits leases and dates rows, and decides nothing about data.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._reading = for_reading(engine)
        self._now = now

    @property
    def is_stored(self) -> bool:
        """Whether a ledger exists. If none exists, an empty one in memory takes its place."""
        return str(self._engine.url) != "sqlite://"

    def now(self) -> float:
        """Return epoch seconds by the clock that all users of this ledger share: see `database_clock`."""
        return self._now()

    @contextmanager
    def _transaction(self, name: str) -> Iterator[Connection]:
        """Open a transaction that only reads and sees the ledger as it is at one instant."""
        with answering(self._engine.url), failpoint(f"ledger.{name}"), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self, name: str) -> Iterator[Connection]:
        """Open a transaction that can write. On SQLite writers take turns from the beginning of the
        transaction.
        """
        with answering(self._engine.url), failpoint(f"ledger.{name}"), self._engine.begin() as connection:
            yield connection

    def _rows(self, name: str, query: Select[Any]) -> Sequence[Row[Any]]:
        with self._transaction(name) as connection:
            return connection.execute(query).all()

    def _row(self, name: str, query: Select[Any]) -> Row[Any] | None:
        with self._transaction(name) as connection:
            return connection.execute(query).first()
