"""DuckDB: a file, which one process writes at a time. Many rows come as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Connection,
    Double,
    Engine,
    Integer,
    Numeric,
    SmallInteger,
    Table,
    Text,
    event,
    literal_column,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import TypeEngine

from tidegate.sinks.sql.dialects.base import SqlDialect, Writer, inserting, replacing
from tidegate.sinks.sql.dialects.staging import StagedWriter

_PASSING = (
    "IOException",
    "TransactionException",
    "ConnectionException",
    "OutOfMemoryException",
    "InterruptException",
)
_OF_TABLE = "schema_name = coalesce(:schema, current_schema()) AND table_name = :table"


_SIZES: Mapping[str, type[TypeEngine[Any]]] = {
    "SMALLINT": SmallInteger,
    "INTEGER": Integer,
    "BIGINT": BigInteger,
    "FLOAT": REAL,
    "DOUBLE": Double,
}


class Duckdb(SqlDialect):
    title = "DuckDB"
    plugin = "duckdb_engine"
    is_file = True
    ignores_case = True
    json_name = "JSON"
    has_arrays = True

    def prepare(self, engine: Engine) -> None:
        @event.listens_for(engine, "connect")
        def _connect(connection: Any, _record: Any) -> None:
            # A column without a time zone in a table of your own gets UTC, and not the time of the machine.
            connection.execute("SET TimeZone = 'UTC'")

    def is_temporary(self, error: DBAPIError) -> bool:
        return isinstance(error, OperationalError) and type(error.orig).__name__ in _PASSING

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        return replacing(postgresql.insert(table), table, key)

    def insert_missing(self, table: Table, key: Sequence[str]) -> Any:
        return inserting(postgresql.insert(table), table, key)

    def updated(self, connection: Connection, statement: Any) -> int:
        # the driver counts no rows
        return len(connection.execute(statement.returning(literal_column("1"))).all())

    def columns(self, connection: Connection, table: Table) -> Mapping[str, TypeEngine[Any]]:
        query = f"SELECT column_name, data_type FROM duckdb_columns() WHERE {_OF_TABLE}"
        return {name: _type(declared) for name, declared in connection.execute(text(query), _names(table))}

    def unique_columns(self, connection: Connection, table: Table) -> Iterator[Sequence[str | None]]:
        # SQLAlchemy's dialect for DuckDB reads no indexes
        constraints = (
            f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {_OF_TABLE} "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        )
        yield from (names for (names,) in connection.execute(text(constraints), _names(table)))
        indexes = f"SELECT expressions FROM duckdb_indexes() WHERE {_OF_TABLE} AND is_unique"
        for (names,) in connection.execute(text(indexes), _names(table)):
            yield [name.strip(" '\"") for name in names.strip("[]").split(",")]

    def bulk_writer(self, connection: Connection, table: Table, rows: int) -> Writer | None:
        # also for one row: as a parameter, a decimal with many digits would become a float
        return _ArrowTable(connection, table)


def _type(declared: str) -> TypeEngine[Any]:
    """Return SQLAlchemy's type for a declared one, such as `DECIMAL(10,2)` or `BIGINT[]`."""
    if declared.endswith("[]"):
        return ARRAY(_type(declared.removesuffix("[]")))
    name, _, size = declared.partition("(")
    if name == "DECIMAL":
        precision, scale = size.rstrip(")").split(",")
        return Numeric(int(precision), int(scale))
    return _SIZES.get(name, Text)()


def _names(table: Table) -> dict[str, str | None]:
    return {"schema": table.schema, "table": table.name}


class _ArrowTable(StagedWriter):
    """Loads rows as an Arrow table, which DuckDB reads where it is."""

    def load(self, staged: Table, rows: pa.RecordBatch) -> None:
        names = [column.name for column in staged.columns]
        self._driver.register(staged.name, pa.Table.from_batches([rows.rename_columns(names)]))

    def drop(self, staged: Table) -> None:
        self._driver.unregister(staged.name)

    @property
    def _driver(self) -> Any:
        return self._connection.connection.driver_connection


DIALECT = Duckdb()
