"""Create, extend and check a sink's tables, before anything is written to them.

An edit can have widened a type. A person must change the column then: a database may rewrite a large table
for it, and views may depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    String,
    Table,
    inspect,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

from tidegate.errors import SinkRefused
from tidegate.expressions.arrow import type_of
from tidegate.kernel.json_text import json_texts
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.sinks.sql.dialects.base import Unusable, has_type
from tidegate.sinks.sql.history import update_validity
from tidegate.sinks.sql.layout import IS_CURRENT, EmittedType, ExactText, Layout, Target
from tidegate.storage.schema import KEY, SOURCE


class _AddColumn(ExecutableDDLElement):
    """Adds an empty column. It allows null, since existing rows have no value for it."""

    def __init__(self, table: Table, column: Column[Any]) -> None:
        self.table = table
        self.column = column


@compiles(_AddColumn)
def _compile(added: _AddColumn, compiler: Any, **_: Any) -> str:
    prepare, column = compiler.preparer, added.column
    clause = dialect_named(compiler.dialect.name).add_column
    type_ = column.type.compile(compiler.dialect)
    return f"ALTER TABLE {prepare.format_table(added.table)} {clause} {prepare.quote(column.name)} {type_}"


def require_room(dialect: Dialect, layout: Layout, existing: Mapping[str, TypeEngine[Any]]) -> None:
    """Check that each column of the table can store the emitted type.

    Args:
        existing: name -> type of the table's columns.

    Raises SinkRefused, which says which statement to run.
    """
    sql = dialect_named(dialect.name)
    for column in layout.table.columns:
        type_ = existing.get(column.name)
        if type_ is None or not isinstance(column.type, EmittedType):
            continue
        if sql.is_other_kind(type_, column.type.arrow):
            raise _of_other_kind(dialect, layout, column, type_)
        if sql.lacks_room(type_, column.type.arrow):
            raise _too_narrow(dialect, layout, column, type_)


def _of_other_kind(
    dialect: Dialect, layout: Layout, column: Column[Any], existing: TypeEngine[Any]
) -> SinkRefused:
    was, now = (type_.compile(dialect) for type_ in (existing, column.type))
    return SinkRefused(
        f"The column {column.name} of the SQL table {layout.target.table} is {was}, and tidegate writes "
        f"{now}",
        f"Name another table; or change the column to {now}, with the values that it has, and run again.",
    )


def _too_narrow(
    dialect: Dialect, layout: Layout, column: Column[Any], existing: TypeEngine[Any]
) -> SinkRefused:
    was, now = (type_.compile(dialect) for type_ in (existing, column.type))
    prepare = dialect.identifier_preparer
    table, name = prepare.format_table(layout.table), prepare.quote_identifier(column.name)
    (emitted,) = (type_of(part.type).text for part in layout.parts if part.name == column.name)
    return SinkRefused(
        f"The column {column.name} of the SQL table {layout.target.table} is {was}, and has no room for "
        f"every {emitted} that is emitted",
        dialect_named(dialect.name).widening(table, name, now),
    )


_NO_TIME = "a time outside of the years 1 to 9999"
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_ZERO = "a character with the code 0"
_ZERO_ESCAPE = r"(^|[^\\])(\\\\)*\\u0000"
"""The character with the code 0 in a JSON text; of `\\\\u0000`, the first character escapes the second."""

FORMAT = 1
"""The format version of a progress row; it is raised when the meaning of the row changes."""

progress = Table(
    "tidegate_progress",
    MetaData(),
    Column("shard", ExactText(700), primary_key=True),
    Column("format", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),  # the newest batch in the table
    Column("attempt", String(300)),  # the attempt that computed the rows; null if that is unknown
    Column("rows", BigInteger, nullable=False),  # the number of rows of that batch
    Column("updated_at", DateTime(timezone=True), nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


def lock_for_changes(connection: Connection) -> None:
    """Lock the database's tables: a second process that creates the same table waits here, and then finds
    it.
    """
    dialect_named(connection.dialect.name).lock_for_changes(connection)


def lock_progress(connection: Connection) -> None:
    """Lock the database's tables, and create that of the progress rows if it does not exist."""
    lock_for_changes(connection)
    if not inspect(connection).has_table(progress.name):
        progress.create(connection)
        # Where a change of a table commits by itself, it has released a lock of the transaction.
        lock_for_changes(connection)


def exists(connection: Connection, target: Target) -> bool:
    """Return whether the table exists."""
    return inspect(connection).has_table(target.name, target.schema)


def make_or_extend(connection: Connection, layout: Layout) -> None:
    """Create the table, or add missing columns, which must allow null.

    Raises SinkRefused if the table has another key, or if a column cannot store what is emitted since an
    edit.
    """
    dialect = dialect_named(connection.dialect.name)
    if not exists(connection, layout.target):
        if dialect.has_indexes:
            layout.table.create(connection)
        else:
            connection.execute(CreateTable(layout.table))  # the table alone
        return
    missing = _missing_columns(connection, layout)
    for column in missing:
        connection.execute(_AddColumn(layout.table, column))
    becomes_history = IS_CURRENT in (column.name for column in missing)  # so far it was of `mode: append`
    # Without transactional DDL, the process can have ended between the table and its index.
    if becomes_history or not dialect.has_transactional_ddl:
        for index in layout.table.indexes if dialect.has_indexes else ():
            index.create(connection, checkfirst=True)
    if becomes_history:
        update_validity(connection, layout.target)


def extend_existing(connection: Connection, layout: Layout) -> None:
    """Add the columns that an existing table lacks. Raises SinkRefused as `make_or_extend`."""
    if _missing_columns(connection, layout):
        lock_for_changes(connection)
        make_or_extend(connection, layout)


def check_table(connection: Connection, layout: Layout) -> None:
    """Check that an existing table can take the emissions. Raises SinkRefused."""
    if exists(connection, layout.target):
        _missing_columns(connection, layout)


def _missing_columns(connection: Connection, layout: Layout) -> list[Column[Any]]:
    """Return the columns that a table lacks. Raises SinkRefused if it has another key, or no room."""
    dialect = dialect_named(connection.dialect.name)
    existing = dialect.columns(connection, layout.table)
    missing = [column for column in layout.table.columns if column.name not in existing]
    if dialect.ignores_case:
        _check_case(dialect, layout, missing, existing)
    _check_key(connection, layout, missing)
    require_room(connection.dialect, layout, existing)
    unusable = dialect.check_existing(connection, layout.table, layout.target.mode)
    if IS_CURRENT in (column.name for column in missing) and not dialect.has_transactional_ddl:
        why = f"{dialect.title} cannot turn it into a history in one transaction"
        unusable = Unusable(why, "Name another table")
    if unusable is not None:
        raise SinkRefused(
            f"The SQL table {layout.target.table} cannot be used: {unusable.why}",
            f"{unusable.fix}; nothing was published.",
        )
    return missing


def _check_case(
    dialect: SqlDialect, layout: Layout, missing: Iterable[Column[Any]], existing: Iterable[str]
) -> None:
    """Check that no column that is missing differs from an existing one in case only. Raises SinkRefused."""
    spelled = {name.lower(): name for name in existing}
    for column in missing:
        if (was := spelled.get(column.name.lower())) is not None:
            raise SinkRefused(
                f"The SQL table {layout.target.table} has the column {was}, and {column.name} is emitted: "
                f"{dialect.title} takes both for one",
                f"Emit it as {was}, or rename the column of the table; nothing was published.",
            )


def _check_key(connection: Connection, layout: Layout, missing: Sequence[Column[Any]]) -> None:
    """Check the key, also of a table that a person has made: the key makes duplicates impossible."""
    target = layout.target
    dialect, prepare = dialect_named(connection.dialect.name), connection.dialect.identifier_preparer
    unique = dialect.unique_columns(connection, layout.table)
    if any(set(columns) == set(target.key) for columns in unique):
        return
    quote, table = prepare.quote, prepare.format_table(layout.table)
    run = [
        f"ALTER TABLE {table} ADD COLUMN {quote(column.name)} {column.type.compile(connection.dialect)}; "
        for column in missing
        if column.name in target.key
    ]
    add_key = dialect.add_key(quote(f"{target.name}_key"), table, ", ".join(map(quote, target.key)))
    raise SinkRefused(
        f"The SQL table {target.table} exists, but not with the key that `mode: {target.mode}` needs",
        f"Name another table, or run: {''.join(run)}{add_key}",
    )


def check_emissions(dialect: SqlDialect, layout: Layout, emissions: Iterable[pa.RecordBatch]) -> None:
    """Check that the database can store each value, before the batch is decided. Raises SinkRefused."""
    _check_names(dialect, layout)
    for _, why in unfit_emissions(dialect, layout, emissions):
        raise SinkRefused(
            f"An emission does not fit into the SQL table {layout.target.table}: {why}",
            "Correct or leave out such values in the stage (`select`, `where`); nothing was published.",
        )


def unfit_emissions(
    dialect: SqlDialect, layout: Layout, emissions: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, str]]:
    """Yield the emissions with a value that the database cannot store: the place in the batch, and why."""
    first = 0
    for chunk in emissions:
        for name, unfit in _unfit_columns(dialect, layout, chunk):
            for is_unfit, what in unfit:
                rows = pc.indices_nonzero(pc.fill_null(is_unfit, False)).to_pylist()
                yield from ((first + row, f"its column {name} holds {what}") for row in rows)
        if dialect.longest_key is not None and layout.target.indexes_key:
            unit = "bytes" if dialect.measures_bytes else "characters"
            for row, length in enumerate(dialect.lengths(chunk.column(KEY)).to_pylist()):
                if length > dialect.longest_key:
                    yield first + row, f"a key has {length} {unit}; {dialect.longest_key} are possible"
        first += chunk.num_rows


def _check_names(dialect: SqlDialect, layout: Layout) -> None:
    """Check the length of names: PostgreSQL would cut longer ones silently."""
    most = dialect.longest_name
    for name in (layout.target.name, *layout.keys):
        if most is not None and len(name.encode()) > most:
            raise SinkRefused(
                f"The name {name} has {len(name.encode())} bytes; {dialect.title} takes {most}",
                "Give the table or the column a shorter one; nothing was published.",
            )
        if name in dialect.taken_names:
            raise SinkRefused(
                f"Each table of {dialect.title} has a column {name} already",
                f"`select` it under another name, such as event_{name}; nothing was published.",
            )
        if any(character in name for character in dialect.refused_in_names):
            raise SinkRefused(
                f"The name {name} has one of the characters {dialect.refused_in_names}, which the driver of "
                f"{dialect.title} does not take",
                "Give the table or the column another name; nothing was published.",
            )


_Unfit = Iterator[tuple[pa.BooleanArray, str]]
"""Which values of a column cannot be stored, and what they are."""


def _unfit_columns(
    dialect: SqlDialect, layout: Layout, emissions: pa.RecordBatch
) -> Iterator[tuple[str, _Unfit]]:
    for name in (KEY, SOURCE):
        yield name, _unfit_values(dialect, emissions.column(name))
    for name, column in layout.times.items():
        yield name, _unfit_times(emissions.column(column))
    for part in layout.parts:
        values = part.values(emissions)
        yield part.name, _unfit_values(dialect, values)
        if part.is_json_text:
            yield part.name, _unfit_json(dialect, values)
        if pa.types.is_nested(part.stored) and not dialect.has_zero_character:
            yield part.name, _zero_characters(values)


def _zero_characters(values: pa.Array) -> _Unfit:
    """Yield which texts within nested values, or within JSON texts, have a character with the code 0."""
    if has_type(values.type, pa.types.is_string):
        texts = json_texts(values) if pa.types.is_nested(values.type) else values
        yield pc.match_substring_regex(texts, _ZERO_ESCAPE), _ZERO


def _unfit_json(dialect: SqlDialect, texts: pa.StringArray) -> _Unfit:
    depths = pa.array([None if text is None else _json_depth(text) for text in texts.to_pylist()], pa.int64())
    yield pc.less(depths, 0), "a text that is no JSON"
    if dialect.deepest_json is not None:
        is_deeper = pc.greater(depths, dialect.deepest_json)
        yield is_deeper, f"JSON that is nested more than {dialect.deepest_json} deep"


def _json_depth(text: str) -> int:
    """Return how deep a JSON text is nested; -1 if it is none."""
    try:
        return _depth(_JSON.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return -1


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _double(text: str) -> float:
    """Return a number of JSON. Raises ValueError if it is too large or too small for a double."""
    number = float(text)
    if math.isinf(number) or (not number and Decimal(text)):
        raise ValueError(f"{text} is no double")
    return number


_JSON = msgspec.json.Decoder(float_hook=_double)


def _unfit_times(epoch_ms: pa.Int64Array) -> _Unfit:
    yield pc.or_(pc.less(epoch_ms, _FIRST_MS), pc.greater(epoch_ms, _LAST_MS)), _NO_TIME


def _unfit_values(dialect: SqlDialect, values: pa.Array) -> _Unfit:
    if has_type(values.type, pa.types.is_temporal):
        try:
            # `Layout.rows` converts in the same way, and would fail after the decision.
            values.to_pylist()
        except (OverflowError, ValueError):
            yield pa.array(map(_is_no_time, values)), _NO_TIME
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if is_text and not dialect.has_zero_character:
        yield pc.match_substring(values, "\0"), _ZERO
    if pa.types.is_floating(values.type):
        refused = {"NaN": (dialect.has_nan, pc.is_nan), "Infinity": (dialect.has_infinity, pc.is_inf)}
        for number, (has_number, is_number) in refused.items():
            if not has_number:
                yield is_number(values), f"{number}, which {dialect.title} does not have"


def _is_no_time(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return True
    return False
