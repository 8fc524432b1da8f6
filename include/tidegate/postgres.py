"""Options and errors of PostgreSQL's driver (psycopg), for the ledger and for SQL sinks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

# SQLSTATE codes: invalid_sql_statement_name, duplicate_prepared_statement.
_NO_SUCH_STATEMENT = "26000"
_STATEMENT_EXISTS = "42P05"


def connect_options(url: URL) -> dict[str, Any]:
    """Return options of PostgreSQL's driver; empty for other drivers.

    A server that stops answering is noticed within a minute, unless the URL sets the option itself. The
    driver prepares no statements: a pooler that gives each transaction another session (PgBouncer in
    transaction mode, RDS Proxy) would lose a statement that one session has prepared.

    Example: `create_engine(url, connect_args=connect_options(url))`
    """
    if url.drivername != "postgresql+psycopg":
        return {}
    options: dict[str, Any] = {"connect_timeout": 15, "tcp_user_timeout": 60_000}
    options |= {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
    options["application_name"] = "tidegate"
    missing = {name: value for name, value in options.items() if name not in url.query}
    return missing | {"prepare_threshold": None}


def is_lost_statement(error: DBAPIError) -> bool:
    """Return whether the error says that a prepared statement is missing or exists already.

    Then a pooler has changed the session between two statements.
    """
    return getattr(error.orig, "sqlstate", None) in (_NO_SUCH_STATEMENT, _STATEMENT_EXISTS)


LOST_STATEMENT_FIX = (
    "A pooler between here and PostgreSQL changes sessions within a transaction, or prepares statements by "
    "itself. Set it to the mode `transaction` or `session`: see docs/postgresql.md."
)
