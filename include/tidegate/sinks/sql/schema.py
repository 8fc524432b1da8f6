"""Create, extend and check a sink's tables, before anything is written to them.

An edit can have widened a type. A person must change the column then: a database may rewrite a large table
for it, and views may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Connection,
    DateTime,
    Dialect,
    Float,
    Inspector,
    Integer,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    inspect,
    text,
)
from sqlalchemy.types import TypeEngine

from tidegate.errors import SinkRefused
from tidegate.expressions.arrow import type_of
from tidegate.kernel.equality import widens
from tidegate.sinks.sql.history import update_validity
from tidegate.sinks.sql.layout import IS_CURRENT, Layout, Part, Target
from tidegate.storage.schema import KEY, SOURCE


def add_columns(connection: Connection, target: Target, columns: Iterable[Column[Any]]) -> None:
    """Add empty columns. They allow null, since existing rows have no value for them."""
    # Late: Alembic is slow to import, and few batches need it.
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    operations = Operations(MigrationContext.configure(connection))
    for column in columns:
        operations.add_column(target.name, Column(column.name, column.type), schema=target.schema)


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
            raise _too_narrow(dialect, layout, part, type_)


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


def _too_narrow(dialect: Dialect, layout: Layout, part: Part, existing: TypeEngine[Any]) -> SinkRefused:
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


FORMAT = 1
"""The format version of a progress row; it is raised when the meaning of the row changes."""

progress = Table(
    "tidegate_progress",
    MetaData(),
    Column("shard", String(700), primary_key=True),
    Column("format", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),  # the newest batch in the table
    Column("attempt", String(300)),  # the attempt that computed the rows; null if that is unknown
    Column("rows", BigInteger, nullable=False),  # the number of rows of that batch
    Column("updated_at", DateTime(timezone=True), nullable=False),
)
# PostgreSQL: an index entry, with the window's numbers and headers, must fit into a third of a page of 8 KiB
_INDEXED_BYTES = 2_600
_NAME_BYTES = 63


def lock_for_changes(connection: Connection) -> None:
    """Lock the database's tables: a second process that creates the same table waits here, and then finds
    it.
    """
    if connection.dialect.name == "postgresql":
        # The number is tidegate's own; SQLite needs none, since BEGIN IMMEDIATE lets in one writer.
        connection.execute(text("SELECT pg_advisory_xact_lock(745370)"))


def exists(connection: Connection, target: Target) -> bool:
    """Return whether the table exists."""
    return inspect(connection).has_table(target.name, target.schema)


def make_or_extend(connection: Connection, layout: Layout) -> None:
    """Create the table, or add missing columns, which must allow null.

    Raises SinkRefused if the table has another key, or if a column cannot store what is emitted since an
    edit.
    """
    if not exists(connection, layout.target):
        layout.table.create(connection)
        return
    missing = _missing_columns(connection, layout)
    if missing:
        add_columns(connection, layout.target, missing)
    if IS_CURRENT in (column.name for column in missing):  # so far the table was one of `mode: append`
        for index in layout.table.indexes:
            index.create(connection, checkfirst=True)
        update_validity(connection, layout.target)


def check_table(connection: Connection, layout: Layout) -> None:
    """Check that an existing table can take the emissions. Raises SinkRefused."""
    if exists(connection, layout.target):
        _missing_columns(connection, layout)


def _missing_columns(connection: Connection, layout: Layout) -> list[Column[Any]]:
    """Return the columns that a table lacks. Raises SinkRefused if it has another key, or no room."""
    target = layout.target
    existing = {
        column["name"]: column["type"]
        for column in inspect(connection).get_columns(target.name, target.schema)
    }
    missing = [column for column in layout.table.columns if column.name not in existing]
    _check_key(connection, layout, missing)
    require_room(connection.dialect, layout, existing)
    return missing


def _check_key(connection: Connection, layout: Layout, missing: Sequence[Column[Any]]) -> None:
    """Check the key, also of a table that a person has made: the key makes duplicates impossible."""
    target = layout.target
    if any(set(columns) == set(target.key) for columns in _unique(inspect(connection), target)):
        return
    prepare = connection.dialect.identifier_preparer
    quote, table = prepare.quote_identifier, prepare.format_table(layout.table)
    run = [
        f"ALTER TABLE {table} ADD COLUMN {quote(column.name)} {column.type.compile(connection.dialect)}; "
        for column in missing
        if column.name in target.key
    ]
    index, key = quote(f"{target.name}_key"), ", ".join(map(quote, target.key))
    raise SinkRefused(
        f"The SQL table {target.table} exists, but not with the key that `mode: {target.mode}` needs",
        f"Name another table, or run: {''.join(run)}CREATE UNIQUE INDEX {index} ON {table} ({key})",
    )


def _unique(inspector: Inspector, target: Target) -> Iterator[Sequence[str | None]]:
    yield inspector.get_pk_constraint(target.name, target.schema)["constrained_columns"]
    unique = inspector.get_unique_constraints(target.name, target.schema)
    yield from (constraint["column_names"] for constraint in unique)
    indexes = inspector.get_indexes(target.name, target.schema)
    yield from (index["column_names"] for index in indexes if index["unique"])


def check_emissions(dialect: str, layout: Layout, emissions: Iterable[pa.RecordBatch]) -> None:
    """Check that the database can store each value, before the batch is decided. Raises SinkRefused."""
    if dialect == "postgresql":
        _check_names(layout)
    for chunk in emissions:
        for name, values in _columns(layout, chunk):
            _check_values(dialect, layout, name, values)
        if dialect == "postgresql" and layout.target.mode != "append":
            longest = pc.max(pc.binary_length(chunk.column(KEY))).as_py() or 0
            if longest > _INDEXED_BYTES:
                raise _refused(layout, f"a key has {longest} bytes; {_INDEXED_BYTES} are possible")


def _check_names(layout: Layout) -> None:
    """Check the length of names: PostgreSQL would cut longer ones silently."""
    for name in (layout.target.name, *layout.keys):
        if len(name.encode()) > _NAME_BYTES:
            raise SinkRefused(
                f"The name {name} has {len(name.encode())} bytes; PostgreSQL takes {_NAME_BYTES}",
                "Give the table or the column a shorter one; nothing was published.",
            )


def _check_values(dialect: str, layout: Layout, name: str, values: pa.Array) -> None:
    if _has_time(values.type):
        try:
            # `Layout.rows` converts in the same way, and would fail after the decision.
            values.to_pylist()
        except (OverflowError, ValueError):
            raise _refused(layout, f"its column {name} holds a time outside of the years 1 to 9999") from None
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    # PostgreSQL's text type cannot contain this character
    if is_text and dialect == "postgresql" and pc.any(pc.match_substring(values, "\0")).as_py():
        raise _refused(layout, f"its column {name} holds a character with the code 0")


def _columns(layout: Layout, emissions: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    yield from ((name, emissions.column(name)) for name in (KEY, SOURCE))
    for part in layout.parts:
        yield part.name, part.values(emissions)


def _has_time(type_: pa.DataType) -> bool:
    if pa.types.is_temporal(type_):
        return True
    return any(_has_time(type_.field(number).type) for number in range(type_.num_fields))


def _refused(layout: Layout, why: str) -> SinkRefused:
    return SinkRefused(
        f"An emission does not fit into the SQL table {layout.target.table}: {why}",
        "Correct or leave out such values in the stage (`select`, `where`); nothing was published.",
    )
