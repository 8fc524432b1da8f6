"""Try the rows of a batch in a transaction that is rolled back: which of them does the database refuse?

Rows are written under savepoints, as `write` writes them. Where the database refuses rows, they are tried in
halves, until each refused row is alone. If more rows are refused than the batch may have, the rest is not
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Sized

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects.base import Row
from tidegate.sinks.sql.layout import Layout
from tidegate.sinks.sql.write import UNKNOWN_ROWCOUNT, TableWriter, write
from tidegate.storage.schema import ORDINAL


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
            # Of few rows, one by one takes fewer statements than halves.
            size = 1 if len(rows) <= _FEW else (len(rows) + 1) // 2
            return sum(self._tried(change, rows[place : place + size]) for place in range(0, len(rows), size))
        return len(rows) if changed == UNKNOWN_ROWCOUNT else changed


_FEW = 8


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
