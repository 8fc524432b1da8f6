"""COPY of PostgreSQL: into a temporary table for the rows of a statement, and into tables of shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import WriteOptions, write_csv
from sqlalchemy import Boolean, Column, Connection, MetaData, Table, func, inspect, select
from sqlalchemy.exc import DBAPIError

from tidegate.sinks.sql.dialects.base import IS_DELETION
from tidegate.sinks.sql.dialects.staging import (
    StagedWriter,
    delete_rows,
    insert_missing_rows,
    insert_rows,
    upsert_rows,
)


class CopyWriter(StagedWriter):
    """Loads rows by COPY, as CSV: Arrow writes it column by column."""

    schema = "pg_temp"

    def load(self, staged: Table, rows: pa.RecordBatch) -> None:
        with _driver_cursor(self._connection) as cursor:
            _create(cursor, "TEMPORARY", staged, self._table, "ON COMMIT DROP")
            _copy(cursor, staged, [rows])

    def drop(self, staged: Table) -> None:
        with _driver_cursor(self._connection) as cursor:
            _execute(cursor, "DROP TABLE {}", staged)


@dataclass(frozen=True)
class OnePerKey:
    """The first row of each key, or the last one, by the column `order`."""

    key: Sequence[str]
    order: str
    is_last: bool


class ShardTables:
    """Tables beside the sink's table, into which tasks load the shards of a batch.

    They have no write-ahead log, which would cost as much as the rows. A server that crashes empties them.

    Args:
        connection: A connection within a transaction.
        table: The sink's table.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table

    def can_be_made(self) -> bool:
        """Return whether the user may create tables in the schema of the sink's table."""
        query = "SELECT has_schema_privilege(coalesce(%(schema)s, current_schema()), 'CREATE')"
        return bool(self._connection.exec_driver_sql(query, {"schema": self._table.schema}).scalar())

    def load(self, name: str, rows: Iterable[pa.RecordBatch], chosen: OnePerKey | None) -> int:
        """Create the table of a shard, in place of one with that name, and return how many rows it has.

        Args:
            rows: The rows, with IS_DELETION.
            chosen: The rows that the table has; None: all of them.
        """
        shard = self._named(name)
        with _driver_cursor(self._connection) as cursor:
            # A second attempt of the task waits until the first has ended.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
            _execute(cursor, "DROP TABLE IF EXISTS {}", shard)
            if chosen is None:
                _create(cursor, "UNLOGGED", shard, self._table)
                return _copy(cursor, shard, rows)
            loaded = self._named("tidegate_rows", "pg_temp")
            _create(cursor, "TEMPORARY", loaded, self._table, "ON COMMIT DROP")
            _copy(cursor, loaded, rows)
            key = [shard.c[column] for column in chosen.key]
            names = ", ".join(["{}"] * len(key))
            return _execute(
                cursor,
                f"CREATE UNLOGGED TABLE {{}} AS SELECT DISTINCT ON ({names}) * FROM {{}} "
                f"ORDER BY {names}, {{}} {'DESC' if chosen.is_last else 'ASC'}",
                *(shard, *key, loaded, *key, shard.c[chosen.order]),
            )

    def count(self, name: str) -> tuple[int, int]:
        """Return how many rows of a shard's table are no deletions, and how many are; none if another
        publisher has dropped it.
        """
        shard = self._named(name)
        if not inspect(self._connection).has_table(name, shard.schema):
            return 0, 0
        deletions = func.count().filter(shard.c[IS_DELETION])
        rows, deleted = self._connection.execute(select(func.count(), deletions).select_from(shard)).one()
        return rows - deleted, deleted

    def insert(self, name: str) -> int:
        """Insert all rows into the sink's table, and return how many it took."""
        return insert_rows(self._connection, self._table, self._rows(self._named(name)))

    def upsert(self, name: str, key: Sequence[str]) -> int:
        """Insert the rows that are no deletions, or replace those with the same key."""
        shard = self._named(name)
        rows = self._rows(shard).where(~shard.c[IS_DELETION])
        return upsert_rows(self._connection, self._table, key, rows)

    def insert_missing(self, name: str, key: Sequence[str]) -> None:
        """Insert the rows whose keys the sink's table does not have."""
        insert_missing_rows(self._connection, self._table, key, self._rows(self._named(name)))

    def delete(self, name: str, key: Sequence[str]) -> None:
        """Delete the rows of the sink's table whose keys are deleted."""
        shard = self._named(name)
        delete_rows(self._connection, self._table, key, shard, shard.c[IS_DELETION])

    def drop(self, prefix: str) -> None:
        """Drop all tables of shards whose names begin with the prefix."""
        names = inspect(self._connection).get_table_names(self._table.schema)
        with _driver_cursor(self._connection) as cursor:
            for name in names:
                if name.startswith(prefix):
                    _execute(cursor, "DROP TABLE IF EXISTS {}", self._named(name))

    def _rows(self, shard: Table) -> Any:
        return select(*(shard.c[column.key] for column in self._table.columns))

    def _named(self, name: str, schema: str | None = None) -> Table:
        """Return a table with the columns of the sink's table, and IS_DELETION."""
        columns = (Column(column.name, column.type, key=column.key) for column in self._table.columns)
        return Table(
            name, MetaData(schema=schema or self._table.schema), *columns, Column(IS_DELETION, Boolean())
        )


def _create(cursor: Any, kind: str, new: Table, table: Table, end: str = "") -> None:
    """Create a table with columns of another one, which keep their types, and others of their own."""
    # `LIKE` would also copy NOT NULL of columns that only the sink's table fills
    columns = [column for column in new.columns if column.key in table.c]
    more = ", false AS {}" * (len(new.columns) - len(columns))
    _execute(
        cursor,
        f"CREATE {kind} TABLE {{}} {end} AS SELECT {', '.join(['{}'] * len(columns))}{more} FROM {{}} "
        "WITH NO DATA",
        *(new, *new.columns, table),
    )


def _copy(cursor: Any, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
    """Copy rows into a table, and return how many it took."""
    from psycopg.sql import SQL

    columns = SQL(", ").join(map(_identifier, table.columns))
    statement = SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(_identifier(table), columns)
    with cursor.copy(statement) as copy:
        for rows in batches:
            copy.write(memoryview(_csv(rows)))
    copied: int = cursor.rowcount
    return copied


def _csv(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as CSV. Texts are in quotes, so that an empty one differs from null."""
    columns = [_written(column) for column in rows.columns]
    stream = pa.BufferOutputStream()
    options = WriteOptions(include_header=False)
    write_csv(pa.RecordBatch.from_arrays(columns, rows.schema.names), stream, options)
    return stream.getvalue()


def _written(column: pa.Array) -> pa.Array:
    """Return a column whose values Arrow writes as PostgreSQL reads them: lists and bytes as the driver
    writes them.
    """
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # Arrow looks the zone up for each value, which takes twenty times as long.
        times = column.cast(pa.timestamp("us", column.type.tz)).view(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(times, "+00", "")
    if not (pa.types.is_nested(column.type) or pa.types.is_binary(column.type)):
        return column
    from psycopg.adapt import PyFormat, Transformer  # only with PostgreSQL is it installed

    driver = Transformer()

    def text_of(value: Any) -> bytes:
        return bytes(driver.get_dumper(value, PyFormat.TEXT).dump(value) or b"")

    texts = [None if value is None else text_of(value) for value in column.to_pylist()]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _execute(cursor: Any, statement: str, *names: Any) -> int:
    """Execute a statement with quoted names, and return the number of its rows."""
    from psycopg.sql import SQL

    cursor.execute(SQL(statement).format(*map(_identifier, names)))
    number: int = cursor.rowcount
    return number


def _identifier(named: Any) -> Any:
    from psycopg.sql import Identifier

    if isinstance(named, Table) and named.schema is not None:
        return Identifier(str(named.schema), named.name)
    return Identifier(named.name)


@contextmanager
def _driver_cursor(connection: Connection) -> Iterator[Any]:
    """Give psycopg's own cursor, since SQLAlchemy has no COPY. Its errors become those of SQLAlchemy."""
    from psycopg import Error

    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor:
            yield cursor
    except Error as error:
        raise DBAPIError.instance(
            None, None, error, Error, hide_parameters=True, connection_invalidated=driver.closed
        ) from error
