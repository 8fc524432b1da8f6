"""Check that the columns of an existing table can store what is emitted, since an edit can have widened a
type.

A person must change the column: a database may rewrite a large table for it, and views may depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import REAL, BigInteger, Dialect, Float, Integer, Numeric, SmallInteger
from sqlalchemy.types import TypeEngine

from tidegate.errors import SinkRefused
from tidegate.kernel.equality import widens
from tidegate.sinks.sql.layout import Layout, Part
from tidegate.spec.arrow import type_of

_SQLITE_DIGITS = 15
"""The digits of a decimal that SQLite's numbers store exactly; decimals with more digits are stored as
texts.
"""


def require_room(dialect: Dialect, layout: Layout, existing: Mapping[str, TypeEngine[Any]]) -> None:
    """Check that each column of the table can store the emitted type.

    Types of another kind are left to the database, since a person may have made the table.

    Args:
        existing: name -> type of the table's columns.

    Raises SinkRefused, which says which statement to run.
    """
    for part in layout.parts:
        type_ = existing.get(part.name)
        if type_ is not None and _is_narrower(dialect, type_, part):
            raise _refused(dialect, layout, part, type_)


def _is_narrower(dialect: Dialect, existing: TypeEngine[Any], part: Part) -> bool:
    if dialect.name == "sqlite":  # in SQLite a type only says in which form numbers are stored
        is_number = isinstance(existing, Integer | Numeric)
        return bool(pa.types.is_decimal(part.type) and part.type.precision > _SQLITE_DIGITS and is_number)
    stored = _arrow_type(existing)
    return stored is not None and stored != part.type and widens(stored, part.type)


def _arrow_type(type_: TypeEngine[Any]) -> pa.DataType | None:
    """Return the type whose values fit into a column of numbers; None for other columns, or if all numbers
    fit.
    """
    # SmallInteger and BigInteger are subclasses of Integer, so Integer comes last.
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
