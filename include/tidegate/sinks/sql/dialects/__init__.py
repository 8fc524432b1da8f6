"""The kinds of databases that SQL sinks write to: one file for each."""

from __future__ import annotations

from importlib import import_module

from tidegate.sinks.sql.dialects.base import SqlDialect

_MODULES = {
    "duckdb": "duckdb",
    "mariadb": "mysql",
    "mssql": "mssql",
    "mysql": "mysql",
    "oracle": "oracle",
    "postgresql": "postgresql",
    "snowflake": "snowflake",
    "sqlite": "sqlite",
}
"""The name of SQLAlchemy's dialect -> the module here."""
_CLICKHOUSE = "ClickHouse has no transaction that covers rows and progress; `kind: clickhouse` writes to it"
_UNFIT = {
    "bigquery": "BigQuery keeps the transaction of a publisher that died open for a day",
    "clickhouse": _CLICKHOUSE,
    "clickhousedb": _CLICKHOUSE,
    "redshift": "Redshift does not enforce keys, so that two publishers could write a batch",
}
"""The name of SQLAlchemy's dialect -> why a SQL sink cannot write to the database exactly once."""


def dialect_named(name: str) -> SqlDialect:
    """Return the class of a kind of database by the name of SQLAlchemy's dialect.

    Example: `dialect_named("mariadb").title`
    """
    if name not in _MODULES:
        return SqlDialect()
    dialect: SqlDialect = import_module(f"{__name__}.{_MODULES[name]}").DIALECT
    return dialect


def why_unfit(name: str) -> str | None:
    """Return why a SQL sink cannot write to a kind of database exactly once, as a sentence; None if it can,
    or if tidegate does not know the kind.
    """
    return _UNFIT.get(name)


__all__ = ["SqlDialect", "dialect_named", "why_unfit"]
