"""Rows into a table: appended, or each key's newest in the place of an older one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, insert
from sqlalchemy.dialects import postgresql, sqlite

from tidegate.sinks.sql.layout import Layout

Row = Mapping[str, Any]
_INSERT: Mapping[str, Callable[..., Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def write(connection: Connection, layout: Layout, rows: Sequence[Row], deleted: Sequence[bool]) -> None:
    """Write emissions in their order. `deleted` says which of them take their key away."""
    if layout.target.mode == "append":
        _execute(connection, insert(layout.table), rows)
        return
    key = [layout.keys[name] for name in layout.target.key]
    newest = {tuple(row[each] for each in key): (row, gone) for row, gone in zip(rows, deleted, strict=True)}
    there = [row for row, gone in newest.values() if not gone]
    replaces = connection.dialect.name not in _INSERT
    leave = [row for row, gone in newest.values() if gone or replaces]
    _execute(connection, _delete(layout, key), [{f"of_{each}": row[each] for each in key} for row in leave])
    _execute(connection, insert(layout.table) if replaces else _upsert(connection, layout, key), there)


def _upsert(connection: Connection, layout: Layout, key: Sequence[str]) -> Any:
    statement = _INSERT[connection.dialect.name](layout.table)
    changed = {name: statement.excluded[name] for name in layout.keys.values() if name not in key}
    return statement.on_conflict_do_update(
        index_elements=[layout.table.c[each] for each in key], set_=changed
    )


def _delete(layout: Layout, key: Sequence[str]) -> Any:
    # not `c0`, which would be taken for the column itself
    return delete(layout.table).where(
        and_(*(layout.table.c[each] == bindparam(f"of_{each}") for each in key))
    )


def _execute(connection: Connection, statement: Any, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(statement, rows)
