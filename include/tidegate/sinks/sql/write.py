"""Write emissions to the table of a sink: row by row, or many rows through a staging table.

Rows are appended, or each key's newest row replaces an older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.sinks.sql.dialects.base import Row, Writer
from tidegate.sinks.sql.dialects.staging import changed_rows
from tidegate.sinks.sql.layout import Layout

UNKNOWN_ROWCOUNT = -1
"""What DB-API says where a driver does not know how many rows a statement changed."""


def write(writer: Writer, layout: Layout, rows: Sequence[Row], deleted: Sequence[bool]) -> None:
    """Write emissions in their order. Raises SinkRefused where the database silently takes fewer rows.

    Args:
        writer: Changes the table of `layout`, within a transaction.
        layout: The table.
        rows: One row per emission.
        deleted: Which of the emissions delete their key.
    """
    if layout.target.adds_rows:
        _require_all(layout, writer.insert(rows), len(rows))
        return
    key = [layout.keys[name] for name in layout.target.key]
    if not layout.target.overwrites:
        first: dict[tuple[Any, ...], Row] = {}
        for row, is_deleted in zip(rows, deleted, strict=True):
            if not is_deleted:
                first.setdefault(tuple(row[column] for column in key), row)
        if first:
            writer.insert_missing(key, [*first.values()])
        return
    # Later rows replace earlier ones of the same key: one statement must not touch a row twice.
    newest = {
        tuple(row[column] for column in key): (row, is_deleted)
        for row, is_deleted in zip(rows, deleted, strict=True)
    }
    live = [row for row, is_deleted in newest.values() if not is_deleted]
    removed = [row for row, is_deleted in newest.values() if is_deleted]
    if removed:
        writer.delete([{column: row[column] for column in key} for row in removed])
    if live:
        _require_all(layout, writer.upsert(key, live), len(live))


class TableWriter:
    """Writes to the table of a sink: many rows in bulk where the database has a way, others by statements."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._table = layout.table
        self._dialect = dialect_named(connection.dialect.name)

    def insert(self, rows: Sequence[Row]) -> int:
        return self._writer(rows).insert(rows)

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        changed = self._writer(rows).upsert(key, rows)
        return changed if self._dialect.counts_upserts else UNKNOWN_ROWCOUNT

    def insert_missing(self, key: Sequence[str], rows: Sequence[Row]) -> None:
        self._writer(rows).insert_missing(key, rows)

    def delete(self, keys: Sequence[Row]) -> int:
        return self._writer(keys).delete(keys)

    def _writer(self, rows: Sequence[Row]) -> Writer:
        bulk = self._dialect.bulk_writer(self._connection, self._table, len(rows))
        return bulk or StatementWriter(self._connection, self._table, self._dialect)


class StatementWriter:
    """Executes a statement for each row."""

    def __init__(self, connection: Connection, table: Table, dialect: SqlDialect) -> None:
        self._connection = connection
        self._table = table
        self._dialect = dialect

    def insert(self, rows: Sequence[Row]) -> int:
        return changed_rows(self._connection, insert(self._table), rows)

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        statement = self._dialect.upsert(self._table, key)
        if statement is not None:
            return changed_rows(self._connection, statement, rows)
        # There is no portable upsert: the old row is deleted first, in the same transaction.
        self.delete([{column: row[column] for column in key} for row in rows])
        return self.insert(rows)

    def insert_missing(self, key: Sequence[str], rows: Sequence[Row]) -> None:
        self._connection.execute(self._dialect.insert_missing(self._table, key), rows)

    def delete(self, keys: Sequence[Row]) -> int:
        # not `c0`, which would be taken for the column itself
        parameters = [{f"of_{column}": value for column, value in row.items()} for row in keys]
        conditions = (self._table.c[column] == bindparam(f"of_{column}") for column in keys[0])
        return changed_rows(self._connection, delete(self._table).where(and_(*conditions)), parameters)


def _require_all(layout: Layout, changed: int, rows: int) -> None:
    if changed not in (UNKNOWN_ROWCOUNT, rows):
        raise SinkRefused(
            f"The SQL table {layout.target.table} took {changed} of {rows} rows: a trigger or a "
            "rule of the database swallows the others",
            "Remove the trigger or rule, or let it raise an error; nothing was published. Then run again.",
        )
