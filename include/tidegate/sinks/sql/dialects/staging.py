"""Write many rows through a temporary table: load them in bulk, and change the sink's table by one statement.

Loading into the sink's table itself would ignore its rules, and cannot replace rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, and_, delete, insert, select
from sqlalchemy.dialects import postgresql

from tidegate.sinks.sql.dialects.base import Row, inserting, replacing


def changed_rows(connection: Connection, statement: Any, rows: Sequence[Row] | None = None) -> int:
    """Execute a statement, and return the number of rows that it changed, or -1 if it is unknown."""
    # SQLAlchemy keeps the count of an INSERT only when it is asked to.
    return connection.execute(statement, rows, execution_options={"preserve_rowcount": True}).rowcount


class StagedWriter(ABC):
    """Writes rows by way of a temporary table; for databases with PostgreSQL's statements."""

    schema: str | None = None
    """The schema of the temporary table."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table

    @abstractmethod
    def load(self, staged: Table, rows: Sequence[Row]) -> None:
        """Create the temporary table with the rows."""

    @abstractmethod
    def drop(self, staged: Table) -> None:
        """Drop the temporary table."""

    def insert(self, rows: Sequence[Row]) -> int:
        with self._staged(rows) as staged:
            statement = insert(self._table).from_select([*rows[0]], select(*staged.c))
            return changed_rows(self._connection, statement)

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        with self._staged(rows) as staged:
            statement = postgresql.insert(self._table).from_select([*rows[0]], select(*staged.c))
            return changed_rows(self._connection, replacing(statement, self._table, key))

    def insert_missing(self, key: Sequence[str], rows: Sequence[Row]) -> None:
        with self._staged(rows) as staged:
            statement = postgresql.insert(self._table).from_select([*rows[0]], select(*staged.c))
            self._connection.execute(inserting(statement, self._table, key))

    def delete(self, keys: Sequence[Row]) -> int:
        with self._staged(keys) as staged:
            conditions = (self._table.c[column] == staged.c[column] for column in keys[0])
            return changed_rows(self._connection, delete(self._table).where(and_(*conditions)))

    @contextmanager
    def _staged(self, rows: Sequence[Row]) -> Iterator[Table]:
        """Give a temporary table with the rows. Its columns have the types of the sink's table."""
        # a row's names are the keys of the columns
        columns = [self._table.c[key] for key in rows[0]]
        staged = Table(
            "tidegate_rows",
            MetaData(schema=self.schema),
            *(Column(column.name, column.type, key=column.key) for column in columns),
        )
        self.load(staged, rows)
        yield staged
        self.drop(staged)
