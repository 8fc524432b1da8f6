"""Write many rows through a temporary table: load them in bulk, and change the sink's table by one statement.

Loading into the sink's table itself would ignore its rules, and cannot replace rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from sqlalchemy import Column, ColumnElement, Connection, MetaData, Select, Table, delete, insert, select
from sqlalchemy.dialects import postgresql

from tidegate.sinks.sql.dialects.base import Row, inserting, replacing


def changed_rows(connection: Connection, statement: Any, rows: Sequence[Row] | None = None) -> int:
    """Execute a statement, for each row if there are some, and return the number of rows that it changed, or
    -1 if it is unknown.
    """
    # SQLAlchemy keeps the count of an INSERT only when it is asked to.
    return connection.execute(statement, rows, execution_options={"preserve_rowcount": True}).rowcount


def insert_rows(connection: Connection, table: Table, rows: Select[Any]) -> int:
    """Insert the rows of a query, and return how many the table took."""
    return changed_rows(connection, insert(table).from_select(rows.selected_columns.keys(), rows))


def upsert_rows(connection: Connection, table: Table, key: Sequence[str], rows: Select[Any]) -> int:
    """Insert the rows of a query, or replace those with the same key."""
    statement = postgresql.insert(table).from_select(rows.selected_columns.keys(), rows)
    return changed_rows(connection, replacing(statement, table, key))


def insert_missing_rows(connection: Connection, table: Table, key: Sequence[str], rows: Select[Any]) -> None:
    """Insert the rows of a query whose keys the table does not have."""
    statement = postgresql.insert(table).from_select(rows.selected_columns.keys(), rows)
    connection.execute(inserting(statement, table, key))


def delete_rows(
    connection: Connection, table: Table, key: Sequence[str], keys: Table, *conditions: ColumnElement[bool]
) -> int:
    """Delete the rows whose keys another table has, and for which conditions are true there."""
    matches = (table.c[column] == keys.c[column] for column in key)
    return changed_rows(connection, delete(table).where(*matches, *conditions))


class StagedWriter(ABC):
    """Writes rows by way of a temporary table; for databases with PostgreSQL's statements."""

    schema: str | None = None
    """The schema of the temporary table."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table

    @abstractmethod
    def load(self, staged: Table, rows: pa.RecordBatch) -> None:
        """Create the temporary table with the rows."""

    @abstractmethod
    def drop(self, staged: Table) -> None:
        """Drop the temporary table."""

    def insert(self, rows: pa.RecordBatch) -> int:
        with self._staged(rows) as staged:
            return insert_rows(self._connection, self._table, select(*staged.c))

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int:
        with self._staged(rows) as staged:
            return upsert_rows(self._connection, self._table, key, select(*staged.c))

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None:
        with self._staged(rows) as staged:
            insert_missing_rows(self._connection, self._table, key, select(*staged.c))

    def delete(self, keys: pa.RecordBatch) -> int:
        with self._staged(keys) as staged:
            return delete_rows(self._connection, self._table, keys.schema.names, staged)

    @contextmanager
    def _staged(self, rows: pa.RecordBatch) -> Iterator[Table]:
        """Give a temporary table with the rows. Its columns have the types of the sink's table."""
        columns = [self._table.c[key] for key in rows.schema.names]
        staged = Table(
            "tidegate_rows",
            MetaData(schema=self.schema),
            *(Column(column.name, column.type, key=column.key) for column in columns),
        )
        self.load(staged, rows)
        yield staged
        self.drop(staged)
