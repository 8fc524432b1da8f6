"""Write emissions to the table of a sink, or try them: which rows does the database refuse?

Rows are appended, or each key's newest row replaces an older one; one by one, or many rows through a staging
table. A trial writes them in the same way, under savepoints of a transaction that is rolled back. Where the
database refuses rows, they are tried in halves, until each refused row is alone. If more rows are refused
than the batch may have, the rest is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Sized

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table, and_, bindparam, delete, insert
from sqlalchemy.exc import DBAPIError

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.sinks.sql.dialects.base import Writer, parameters
from tidegate.sinks.sql.dialects.staging import changed_rows
from tidegate.sinks.sql.layout import DELETED, Layout
from tidegate.storage.schema import ORDINAL

UNKNOWN_ROWCOUNT = -1
"""What DB-API says where a driver does not know how many rows a statement changed."""
_FEW = 8
"""Rows of which a trial takes fewer statements one by one than in halves."""


def write(writer: Writer, layout: Layout, rows: pa.RecordBatch, deleted: pa.BooleanArray) -> None:
    """Write emissions in their order. Raises SinkRefused where the database silently takes fewer rows.

    Args:
        writer: Changes the table of `layout`, within a transaction.
        layout: The table.
        rows: One row per emission.
        deleted: Which of the emissions delete their key.
    """
    if layout.target.adds_rows:
        require_all(layout, writer.insert(rows), rows.num_rows)
        return
    key = [layout.keys[name] for name in layout.target.key]
    if not layout.target.overwrites:
        first = _one_per_key(rows.filter(pc.invert(deleted)), key, "min")
        if first.num_rows:
            writer.insert_missing(key, first)
        return
    # Later rows replace earlier ones of the same key: one statement must not touch a row twice.
    marked = _one_per_key(rows.append_column(DELETED, deleted), key, "max")
    deleted, newest = marked.column(DELETED), marked.drop_columns([DELETED])
    removed, live = newest.filter(deleted), newest.filter(pc.invert(deleted))
    if removed.num_rows:
        writer.delete(removed.select(key))
    if live.num_rows:
        require_all(layout, writer.upsert(key, live), live.num_rows)


def _one_per_key(rows: pa.RecordBatch, key: Sequence[str], which: str) -> pa.RecordBatch:
    """Return the first (`min`) or the last (`max`) row of each key, in their order."""
    places = rows.select(key).append_column("place", pa.array(np.arange(rows.num_rows)))
    chosen = pa.Table.from_batches([places]).group_by(key).aggregate([("place", which)])
    return rows.take(chosen.column(f"place_{which}").combine_chunks().sort())


class TableWriter:
    """Writes to the table of a sink: many rows in bulk where the database has a way, others by statements."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._table = layout.table
        self._dialect = dialect_named(connection.dialect.name)

    def insert(self, rows: pa.RecordBatch) -> int:
        return self._writer(rows).insert(rows)

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int:
        changed = self._writer(rows).upsert(key, rows)
        return changed if self._dialect.counts_upserts else UNKNOWN_ROWCOUNT

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None:
        self._writer(rows).insert_missing(key, rows)

    def delete(self, keys: pa.RecordBatch) -> int:
        return self._writer(keys).delete(keys)

    def _writer(self, rows: pa.RecordBatch) -> Writer:
        bulk = self._dialect.bulk_writer(self._connection, self._table, rows.num_rows)
        return bulk or StatementWriter(self._connection, self._table, self._dialect)


class StatementWriter:
    """Executes a statement for each row."""

    def __init__(self, connection: Connection, table: Table, dialect: SqlDialect) -> None:
        self._connection = connection
        self._table = table
        self._dialect = dialect

    def insert(self, rows: pa.RecordBatch) -> int:
        return changed_rows(self._connection, insert(self._table), parameters(rows))

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int:
        statement = self._dialect.upsert(self._table, key)
        if statement is not None:
            return changed_rows(self._connection, statement, parameters(rows))
        # There is no portable upsert: the old row is deleted first, in the same transaction.
        self.delete(rows.select(key))
        return self.insert(rows)

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None:
        self._connection.execute(self._dialect.insert_missing(self._table, key), parameters(rows))

    def delete(self, keys: pa.RecordBatch) -> int:
        # not `c0`, which would be taken for the column itself
        names = {column: f"of_{column}" for column in keys.schema.names}
        conditions = (self._table.c[column] == bindparam(name) for column, name in names.items())
        statement = delete(self._table).where(and_(*conditions))
        return changed_rows(self._connection, statement, parameters(keys.rename_columns(names)))


def require_all(layout: Layout, changed: int, rows: int) -> None:
    """Raise SinkRefused if the table took fewer rows."""
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

    def insert(self, rows: pa.RecordBatch) -> int:
        return self._tried(self._writer.insert, rows)

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int:
        return self._tried(lambda part: self._writer.upsert(key, part), rows)

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None:
        def insert(part: pa.RecordBatch) -> int:
            self._writer.insert_missing(key, part)
            return UNKNOWN_ROWCOUNT

        self._tried(insert, rows)

    def delete(self, keys: pa.RecordBatch) -> int:
        return self._writer.delete(keys)

    def _tried(self, change: Callable[[pa.RecordBatch], int], rows: pa.RecordBatch) -> int:
        number: int = rows.num_rows
        if exceeds(self.refused, self._most):
            return number
        try:
            with self._connection.begin_nested():
                changed = change(rows)
        except DBAPIError as error:
            if error.connection_invalidated or not self._database.dialect.refuses_row(error):
                raise
            if number == 1:
                self.refused[rows.column(self._place)[0].as_py()] = self._database.message(error)
                return 1
            size = 1 if number <= _FEW else (number + 1) // 2
            return sum(self._tried(change, rows.slice(place, size)) for place in range(0, number, size))
        return number if changed == UNKNOWN_ROWCOUNT else changed


def exceeds(refused: Sized, most: int | None) -> bool:
    """Return whether more is refused than may be."""
    return most is not None and len(refused) > most


def refused_rows(
    database: Database,
    connection: Connection,
    layout: Layout,
    emissions: tuple[pa.RecordBatch, pa.BooleanArray],
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
    rows, deleted = emissions
    while rows.num_rows and not exceeds(refused, most):
        writer = TryingWriter(database, connection, layout, None if most is None else most - len(refused))
        write(writer, layout, rows, deleted)
        refused |= writer.refused
        # Another emission of the key takes the place of the one that is refused.
        places, keys = rows.column(layout.keys[ORDINAL]).to_pylist(), _keys(layout, rows)
        of_refused = {key for place, key in zip(places, keys, strict=True) if place in writer.refused}
        again = pa.array(
            [place not in refused and key in of_refused for place, key in zip(places, keys, strict=True)]
        )
        rows, deleted = rows.filter(again), deleted.filter(again)
    return refused


def _keys(layout: Layout, rows: pa.RecordBatch) -> list[Hashable]:
    columns = (rows.column(layout.keys[name]).to_pylist() for name in layout.target.key)
    return list(zip(*columns, strict=True))
