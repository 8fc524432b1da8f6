"""Whether the columns of a table that is there have room for what is emitted: an edit may have widened it.

A person changes the column: a database may write all of a large table anew for it, and views may stand on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import REAL, BigInteger, Dialect, Float, Integer, Numeric, SmallInteger
from sqlalchemy.types import TypeEngine

from tidegate.core.widening import widens
from tidegate.errors import SinkRefused
from tidegate.sinks.sql.layout import Layout, Part
from tidegate.spec.arrow import type_of

_SQLITE_DIGITS = 15
"""What a column of SQLite's numbers keeps of a decimal; others are texts there."""


def require_room(dialect: Dialect, layout: Layout, existing: Mapping[str, TypeEngine[Any]]) -> None:
    """`existing`: the types of the table's columns. Raises SinkRefused, which says what to run.

    Types that are of another kind are left to the database: a person may have made the table.
    """
    for part in layout.parts:
        type_ = existing.get(part.name)
        if type_ is not None and _is_narrower(dialect, type_, part):
            raise _refused(dialect, layout, part, type_)


def _is_narrower(dialect: Dialect, existing: TypeEngine[Any], part: Part) -> bool:
    if dialect.name == "sqlite":  # where a type only says in which form numbers are kept
        is_number = isinstance(existing, Integer | Numeric)
        return bool(pa.types.is_decimal(part.type) and part.type.precision > _SQLITE_DIGITS and is_number)
    stored = _arrow_type(existing)
    return stored is not None and stored != part.type and widens(stored, part.type)


def _arrow_type(type_: TypeEngine[Any]) -> pa.DataType | None:
    """What fits into a column of numbers; None: it is none, or takes all."""
    sizes = ((SmallInteger, pa.int16()), (BigInteger, pa.int64()), (Integer, pa.int32()))
    if isinstance(type_, Integer):
        return next(arrow for kind, arrow in sizes if isinstance(type_, kind))
    if isinstance(type_, Float):
        return pa.float32() if isinstance(type_, REAL) else pa.float64()
    if isinstance(type_, Numeric) and type_.precision is not None:
        return pa.decimal128(min(type_.precision, 38), type_.scale or 0)
    return None


def _refused(dialect: Dialect, layout: Layout, part: Part, existing: TypeEngine[Any]) -> SinkRefused:
    column = layout.table.c[layout.keys[part.name]]
    was, now = (type_.compile(dialect) for type_ in (existing, column.type))
    prepare = dialect.identifier_preparer
    table, name = prepare.format_table(layout.table), prepare.quote_identifier(part.name)
    fix = f"Let it have the type {now}; then run again, nothing is lost."
    if dialect.name == "postgresql":
        fix = f"Run `ALTER TABLE {table} ALTER COLUMN {name} TYPE {now}`; then run again, nothing is lost."
    elif dialect.name == "sqlite":
        fix = f"Write the table anew with {name} as {now}, which SQLite does not change; then run again."
    return SinkRefused(
        f"The column {part.name} of the SQL table {layout.target.table} is {was}, and has no room for every "
        f"{type_of(part.type).text} that is emitted",
        fix,
    )
