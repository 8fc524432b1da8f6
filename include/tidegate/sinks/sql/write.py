"""Rows into a table: appended, or each key's newest in the place of an older one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, insert
from sqlalchemy.dialects import postgresql, sqlite

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.layout import Layout

_UNKNOWN_ROWCOUNT = -1
"""What DB-API says where a driver does not know how many rows a statement changed."""

Row = Mapping[str, Any]
_INSERT: Mapping[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def write(connection: Connection, layout: Layout, rows: Sequence[Row], deleted: Sequence[bool]) -> None:
    """Write emissions in their order. `deleted` says which of them take their key away."""
    if layout.target.mode == "append":
        _insert(connection, layout, insert(layout.table), rows)
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
        keys = [{f"of_{column}": row[column] for column in key} for row in removed]
        connection.execute(_delete(layout, key), keys)
    _insert(connection, layout, insert(layout.table) if replaces else _upsert(connection, layout, key), live)


def _upsert(connection: Connection, layout: Layout, key: Sequence[str]) -> Any:
    statement = _INSERT[connection.dialect.name](layout.table)
    changed = {name: statement.excluded[name] for name in layout.keys.values() if name not in key}
    return statement.on_conflict_do_update(
        index_elements=[layout.table.c[column] for column in key], set_=changed
    )


def _delete(layout: Layout, key: Sequence[str]) -> Any:
    # not `c0`, which would be taken for the column itself
    return delete(layout.table).where(
        and_(*(layout.table.c[column] == bindparam(f"of_{column}") for column in key))
    )


def _insert(connection: Connection, layout: Layout, statement: Any, rows: Sequence[Row]) -> None:
    """Insert or replace all of the rows. Raises SinkRefused where the database silently takes fewer."""
    if not rows:
        return
    # SQLAlchemy keeps the count of an INSERT only when it is asked to.
    result = connection.execute(statement, rows, execution_options={"preserve_rowcount": True})
    if result.rowcount not in (_UNKNOWN_ROWCOUNT, len(rows)):
        raise SinkRefused(
            f"The SQL table {layout.target.table} took {result.rowcount} of {len(rows)} rows: a trigger or a "
            "rule of the database swallows the others",
            "Remove the trigger or rule, or let it raise an error; nothing was published. Then run again.",
        )
