"""Write emissions to the table of a sink: row by row, or many rows of PostgreSQL through a staging table.

Rows are appended, or each key's newest row replaces an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.layout import Layout

STAGED_ROWS = 1_000
"""From so many rows on they are staged: for fewer, a temporary table costs more than it saves."""

_UNKNOWN_ROWCOUNT = -1
"""What DB-API says where a driver does not know how many rows a statement changed."""

Row = Mapping[str, Any]
_INSERT: Mapping[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def write(connection: Connection, layout: Layout, rows: Sequence[Row], deleted: Sequence[bool]) -> None:
    """Write emissions in their order. Raises SinkRefused where the database silently takes fewer rows.

    Args:
        connection: A connection within a transaction.
        layout: The table.
        rows: One row per emission.
        deleted: Which of the emissions delete their key.
    """
    writer = _writer(connection, layout, len(rows))
    if layout.target.adds_rows:
        _require_all(layout, writer.insert(rows), len(rows))
        return
    key = [layout.keys[name] for name in layout.target.key]
    # Later rows replace earlier ones of the same key: one statement must not touch a row twice.
    newest = {
        tuple(row[column] for column in key): (row, is_deleted)
        for row, is_deleted in zip(rows, deleted, strict=True)
    }
    live = [row for row, is_deleted in newest.values() if not is_deleted]
    # Other dialects have no portable upsert: the old row is deleted first, in the same transaction.
    replaces = connection.dialect.name not in _INSERT
    removed = [row for row, is_deleted in newest.values() if is_deleted or replaces]
    if removed:
        writer.delete([{column: row[column] for column in key} for row in removed])
    if live:
        _require_all(layout, writer.insert(live) if replaces else writer.upsert(key, live), len(live))


class _Writer(Protocol):
    """Changes the table. Each method returns the number of rows that changed, or `_UNKNOWN_ROWCOUNT`."""

    def insert(self, rows: Sequence[Row]) -> int: ...

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int: ...

    def delete(self, keys: Sequence[Row]) -> int: ...


def _writer(connection: Connection, layout: Layout, rows: int) -> _Writer:
    is_staged = rows >= STAGED_ROWS and connection.dialect.driver == "psycopg" and _may_stage(connection)
    return _StagedWriter(connection, layout) if is_staged else _RowWriter(connection, layout)


class _RowWriter:
    """Executes a statement for each row."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._table = layout.table

    def insert(self, rows: Sequence[Row]) -> int:
        return _changed(self._connection, insert(self._table), rows)

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        statement = _INSERT[self._connection.dialect.name](self._table)
        return _changed(self._connection, _replacing(statement, self._table, key), rows)

    def delete(self, keys: Sequence[Row]) -> int:
        # not `c0`, which would be taken for the column itself
        parameters = [{f"of_{column}": value for column, value in row.items()} for row in keys]
        conditions = (self._table.c[column] == bindparam(f"of_{column}") for column in keys[0])
        return _changed(self._connection, delete(self._table).where(and_(*conditions)), parameters)


class _StagedWriter:
    """Copies the rows to a temporary table by COPY, and changes the sink's table by one statement.

    COPY into the sink's table itself would ignore its rules, and cannot replace rows.
    """

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self._table = layout.table

    def insert(self, rows: Sequence[Row]) -> int:
        with self._staged(rows) as staged:
            return _changed(self._connection, insert(self._table).from_select([*rows[0]], select(*staged.c)))

    def upsert(self, key: Sequence[str], rows: Sequence[Row]) -> int:
        with self._staged(rows) as staged:
            statement = postgresql.insert(self._table).from_select([*rows[0]], select(*staged.c))
            return _changed(self._connection, _replacing(statement, self._table, key))

    def delete(self, keys: Sequence[Row]) -> int:
        with self._staged(keys) as staged:
            conditions = (self._table.c[column] == staged.c[column] for column in keys[0])
            return _changed(self._connection, delete(self._table).where(and_(*conditions)))

    @contextmanager
    def _staged(self, rows: Sequence[Row]) -> Iterator[Table]:
        """Give a temporary table with the rows. Its columns have the types of the sink's table."""
        from psycopg.sql import SQL, Identifier  # only with PostgreSQL is it installed

        # a row's names are the keys of the columns
        columns = [self._table.c[key] for key in rows[0]]
        staged = Table(
            "tidegate_rows",
            MetaData(schema="pg_temp"),
            *(Column(column.name, column.type, key=column.key) for column in columns),
        )
        target = self._layout.target
        names = SQL(", ").join(Identifier(column.name) for column in columns)
        parts = {
            "staged": Identifier(str(staged.schema), staged.name),
            "table": Identifier(*filter(None, (target.schema, target.name))),
            "columns": names,
        }
        # `LIKE` would also copy NOT NULL of columns that only the sink's table fills
        create = (
            "CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA"
        )
        with _driver_cursor(self._connection) as cursor:
            cursor.execute(SQL(create).format(**parts))
            with cursor.copy(SQL("COPY {staged} ({columns}) FROM STDIN").format(**parts)) as copy:
                for row in rows:
                    copy.write_row(tuple(row.values()))
        yield staged
        with _driver_cursor(self._connection) as cursor:
            cursor.execute(SQL("DROP TABLE {staged}").format(**parts))


def _changed(connection: Connection, statement: Any, rows: Sequence[Row] | None = None) -> int:
    # SQLAlchemy keeps the count of an INSERT only when it is asked to.
    return connection.execute(statement, rows, execution_options={"preserve_rowcount": True}).rowcount


def _may_stage(connection: Connection) -> bool:
    """Return whether the user may create temporary tables, which a database can forbid."""
    allowed = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
    return bool(connection.exec_driver_sql(allowed).scalar())


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


def _replacing(statement: Any, table: Table, key: Sequence[str]) -> Any:
    changed = {column.key: statement.excluded[column.key] for column in table.c if column.key not in key}
    return statement.on_conflict_do_update(index_elements=[table.c[column] for column in key], set_=changed)


def _require_all(layout: Layout, changed: int, rows: int) -> None:
    if changed not in (_UNKNOWN_ROWCOUNT, rows):
        raise SinkRefused(
            f"The SQL table {layout.target.table} took {changed} of {rows} rows: a trigger or a "
            "rule of the database swallows the others",
            "Remove the trigger or rule, or let it raise an error; nothing was published. Then run again.",
        )
