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


def dialect_named(name: str) -> SqlDialect:
    """Return the class of a kind of database by the name of SQLAlchemy's dialect.

    Example: `dialect_named("mariadb").title`
    """
    if name not in _MODULES:
        return SqlDialect()
    dialect: SqlDialect = import_module(f"{__name__}.{_MODULES[name]}").DIALECT
    return dialect


__all__ = ["SqlDialect", "dialect_named"]
