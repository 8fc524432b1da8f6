"""Write emissions to the table of a sink, or try them: which rows does the database refuse?

Rows are appended, or each key's newest row replaces an older one; one by one, or many rows through a staging
table. A trial writes them in the same way, under savepoints of a transaction that is rolled back. Where the
database refuses rows, they are tried in halves, until each refused row is alone. If more rows are refused
than the batch may have, the rest is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert
from sqlalchemy.exc import DBAPIError

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.sinks.sql.dialects.base import Row, Writer
from tidegate.sinks.sql.dialects.staging import changed_rows
from tidegate.sinks.sql.layout import Layout
from tidegate.storage.schema import ORDINAL

UNKNOWN_ROWCOUNT = -1
"""What DB-API says where a driver does not know how many rows a statement changed."""
_FEW = 8
"""Rows of which a trial takes fewer statements one by one than in halves."""


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


class TryingWriter:
    """A `Writer` that leaves out rows that the database refuses, and counts them as written.

    `refused` has them: the place in the batch -> what the database says. A deletion is not tried: if the
    database refuses it, the error is raised.

    Args:
        most: The most rows that may be refused; None: any number.
    """

    def __init__(self, database: Database, connection: Connection, layout: Layout, most: int | None) -> None:
        self._database = database
        self._connection = connection
        self._place = layout.keys[ORDINAL]
        self._writer = TableWriter(connection, layout)
        self._most = most
        self.refused: dict[int, str] = {}

    def insert(self, rows: Sequence[Row]) -> int:
        return self._tried(self._writer.insert, rows)

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        return self._tried(lambda part: self._writer.upsert(key, part), rows)

    def insert_missing(self, key: Sequence[str], rows: Sequence[Row]) -> None:
        def insert(part: Sequence[Row]) -> int:
            self._writer.insert_missing(key, part)
            return UNKNOWN_ROWCOUNT

        self._tried(insert, rows)

    def delete(self, keys: Sequence[Row]) -> int:
        return self._writer.delete(keys)

    def _tried(self, change: Callable[[Sequence[Row]], int], rows: Sequence[Row]) -> int:
        if exceeds(self.refused, self._most):
            return len(rows)
        try:
            with self._connection.begin_nested():
                changed = change(rows)
        except DBAPIError as error:
            if error.connection_invalidated or not self._database.dialect.refuses_row(error):
                raise
            if len(rows) == 1:
                self.refused[rows[0][self._place]] = self._database.message(error)
                return 1
            size = 1 if len(rows) <= _FEW else (len(rows) + 1) // 2
            return sum(self._tried(change, rows[place : place + size]) for place in range(0, len(rows), size))
        return len(rows) if changed == UNKNOWN_ROWCOUNT else changed


def exceeds(refused: Sized, most: int | None) -> bool:
    """Return whether more is refused than may be."""
    return most is not None and len(refused) > most


def refused_rows(
    database: Database,
    connection: Connection,
    layout: Layout,
    emissions: Iterable[tuple[Row, bool]],
    most: int | None,
) -> dict[int, str]:
    """Write emissions without those that the database refuses, and return these: the place in the batch ->
    what the database says.

    Args:
        connection: A connection within a transaction that is rolled back.
        emissions: The rows, and whether each deletes its key.
        most: The most rows that may be refused: more are not looked for. None: any number.
    """
    refused: dict[int, str] = {}
    pending = list(emissions)
    while pending and not exceeds(refused, most):
        writer = TryingWriter(database, connection, layout, None if most is None else most - len(refused))
        write(writer, layout, [row for row, _ in pending], [is_deletion for _, is_deletion in pending])
        refused |= writer.refused
        # Another emission of the key takes the place of the one that is refused.
        places = layout.keys[ORDINAL]
        keys = {_key(layout, row) for row, _ in pending if row[places] in writer.refused}
        pending = [
            (row, is_deletion)
            for row, is_deletion in pending
            if row[places] not in refused and _key(layout, row) in keys
        ]
    return refused


def _key(layout: Layout, row: Row) -> Hashable:
    return tuple(row[layout.keys[name]] for name in layout.target.key)
