"""Open a sink's database, and classify its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import ArgumentError, DBAPIError, IdentifierError, NoSuchModuleError

from tidegate.database_url import database_url, names_no_file
from tidegate.errors import (
    OutcomeUnknown,
    SettingsInvalid,
    SetupFailed,
    SinkRefused,
    SinkUnavailable,
    TidegateError,
)
from tidegate.extras import missing_extra
from tidegate.failpoints import failpoint
from tidegate.postgres import LOST_STATEMENT_FIX, is_lost_statement
from tidegate.redaction import redacted, secrets_of
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named, why_unfit

_WAIT_SECONDS = 30.0
_FIX = "Check that it runs, takes connections and has space; then run again, nothing is lost or sent twice."


class Database:
    """A database.

    A publisher that stops in the middle of a transaction would block all others: the server ends its session
    after `idle_s`, and others give up after `wait_s`.

    Args:
        url: Its URL, which no error or log shows, since it can contain a password.
        variable: The setting that contains the URL, which errors name.

    Example::

        with Database(url, "TIDEGATE_SQL") as database, database.transaction() as connection:
            connection.execute(statement)
    """

    def __init__(
        self, url: str, variable: str, wait_s: float = _WAIT_SECONDS, idle_s: float = 2 * _WAIT_SECONDS
    ) -> None:
        self.variable = variable
        self._url = url
        self._limits_s = (wait_s, idle_s)
        parsed = _parsed(url, variable)
        self._secrets = secrets_of(parsed)
        self._engine = _engine(parsed, variable, wait_s)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark tasks open the same database.
        return Database, (self._url, self.variable, *self._limits_s)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    @property
    def dialect(self) -> SqlDialect:
        """The kind of database."""
        return dialect_named(self._engine.dialect.name)

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that does not exist: connecting would create it."""
        name = self._engine.url.database
        return self.dialect.is_file and bool(name) and not Path(str(name)).exists()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that commits completely or not at all.

        Raises SinkUnavailable, SinkRefused; OutcomeUnknown if only the commit failed.
        """
        with self._errors(), self._connection() as connection, connection.begin() as transaction:
            self.dialect.begin(connection, *self._limits_s)
            yield connection
            with self._commit_errors(), failpoint("sql.commit"):
                transaction.commit()

    @contextmanager
    def trial(self) -> Iterator[Connection]:
        """Open a transaction that is always rolled back. Raises SinkUnavailable, SinkRefused."""
        with self._errors(), self._connection() as connection, connection.begin() as transaction:
            self.dialect.begin(connection, *self._limits_s)
            self.dialect.begin_trial(connection)
            yield connection
            transaction.rollback()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection for reading. Raises SinkUnavailable, SinkRefused."""
        with self._errors(), self._engine.connect() as connection:
            yield connection

    def _connection(self) -> Connection:
        with failpoint("sql.connect"):
            return self._engine.connect()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        # `from None`: the driver's own errors contain statements, rows and connection options
        try:
            yield
        except TidegateError:
            raise
        except DBAPIError as error:
            message = self.message(error)
            if self._passes(error):
                raise SinkUnavailable(f"The database in {self.variable} fails: {message}", _FIX) from None
            if is_lost_statement(error):
                raise SettingsInvalid(
                    f"The database in {self.variable} lost a statement: {message}", LOST_STATEMENT_FIX
                ) from None
            raise SinkRefused(
                f"The database in {self.variable} refuses the emissions: {message}",
                "Correct its tables, rules or rights, then run again: nothing of the batch is in it yet.",
            ) from None
        except (IdentifierError, UnicodeError) as error:
            raise SinkRefused(
                f"The database in {self.variable} cannot take the emissions: {error}",
                "Use other names, or another database.",
            ) from None

    @contextmanager
    def _commit_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            # The server has refused the commit, such as by a deferred constraint: nothing was written.
            if not self._passes(error):
                raise
            raise OutcomeUnknown(
                f"The database in {self.variable} did not confirm a commit: {self.message(error)}",
                "Run again: it reads the progress row and goes on from what is true.",
            ) from None

    def _passes(self, error: DBAPIError) -> bool:
        """Whether the failure is temporary, instead of an error in the statement."""
        return error.connection_invalidated or self.dialect.is_temporary(error)

    def message(self, error: DBAPIError) -> str:
        """Return the first line of the driver's message without secrets, since a driver can repeat its
        options.
        """
        lines = str(error.orig).strip().splitlines()
        message = lines[0] if lines else type(error.orig).__name__
        return redacted(message, self._secrets)[:300]


def _parsed(url: str, variable: str) -> URL:
    # a driver that tidegate brings along
    parsed = database_url(url, lambda kind: dialect_named(kind).driver)
    if parsed is None:
        raise _not_a_url(variable)
    unfit = why_unfit(parsed.get_backend_name())
    if unfit is not None:
        raise SettingsInvalid(
            f"{variable} is of a database that a SQL sink cannot write to exactly once: {unfit}",
            "Use another database, or another kind of sink; docs/databases.md has those that work.",
        )
    dialect = dialect_named(parsed.get_backend_name())
    if dialect.is_file and names_no_file(parsed):
        raise SettingsInvalid(
            f"{variable} is a {dialect.title} database in memory, which is lost after each transaction",
            f"Name a file: {parsed.get_backend_name()}:////path/to/file.db.",
        )
    return parsed


def dialect_of(url: str, variable: str) -> SqlDialect:
    """Return the kind of database that a URL names, without connecting. Raises SettingsInvalid."""
    return dialect_named(_parsed(url, variable).get_backend_name())


def _engine(url: URL, variable: str, wait_s: float) -> Engine:
    dialect = dialect_named(url.get_backend_name())
    try:
        engine = create_engine(
            url, poolclass=NullPool, connect_args=dialect.connect_options(url, wait_s), hide_parameters=True
        )
    except ModuleNotFoundError as error:
        raise missing_extra(error) or _not_a_url(variable) from None
    except NoSuchModuleError:
        raise _missing_dialect(dialect) or _not_a_url(variable) from None
    except (ArgumentError, ImportError):
        raise _not_a_url(variable) from None
    dialect.prepare(engine)
    return engine


def _missing_dialect(dialect: SqlDialect) -> SetupFailed | None:
    if dialect.package is None:
        return missing_extra(ModuleNotFoundError(name=dialect.plugin))
    return SetupFailed(
        f"{dialect.title} needs {dialect.plugin}, which is not installed here",
        f"pip install {dialect.package}.",
    )


def _not_a_url(variable: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{variable} is not the URL of a database that can be used here",
        "Write postgresql+psycopg://user:password@host/database, or the same with mysql+pymysql, or "
        "sqlite:////path/to/file.db.",
    )
