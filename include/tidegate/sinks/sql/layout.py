"""The table of a sink, the types of its columns in each kind of database, and the emissions as its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import BigInteger, Boolean, Column, Dialect, Index, MetaData, Table, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from tidegate.errors import SinkRefused
from tidegate.expressions.arrow import type_of
from tidegate.sinks.outbox import check_names
from tidegate.sinks.sql.dialects import SqlDialect, dialect_named
from tidegate.storage.schema import KEY, KEY_COLUMNS, ORDINAL, SOURCE, TIMESTAMP, VALUE, WINDOW

COLUMNS = (KEY, KEY_COLUMNS, VALUE, TIMESTAMP, SOURCE, *WINDOW)
"""The columns of an outbox that rows are made of."""

EMITTED, DELETED = "emitted_timestamp", "deleted"
"""The timestamp of an emission, and whether it is a deletion."""
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
"""In mode `history`, when a version begins and ends, and whether it is the valid one."""
ANY_JSON = pa.struct([])
"""The type that stands for JSON of any shape, such as that of a text."""
FORMS: Mapping[str, pa.DataType] = {"json": ANY_JSON, "text": pa.string()}
"""A word of `types` -> the type that a column is stored as."""


class EmittedType(TypeDecorator[Any]):
    """The type of a column for values of an Arrow type."""

    impl = Text
    cache_ok = True

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__()
        self.arrow = arrow

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect_named(dialect.name).column_type(self.arrow)


class ExactText(TypeDecorator[str]):
    """The type of a text that is compared exactly, such as a key.

    Args:
        longest: The most characters of the text where an index has the column; None: no index has it.
    """

    impl = Text
    cache_ok = True

    def __init__(self, longest: int | None = None) -> None:
        super().__init__()
        self.longest = longest

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect_named(dialect.name).name_type(dialect, self.longest)


_INSTANT = EmittedType(pa.timestamp("us", "UTC"))
_WINDOW: Mapping[str, TypeEngine[Any]] = dict.fromkeys(WINDOW, _INSTANT)
_LAST: Mapping[str, TypeEngine[Any]] = {
    EMITTED: _INSTANT,
    SOURCE: Text(),
    "stream": ExactText(255),
    "batch": BigInteger(),
    ORDINAL: BigInteger(),
}


KEY_CHARACTERS = 750
"""The most characters of a key where a type needs a limit to be indexed: InnoDB indexes 3,072 bytes."""
_INDEX_STEM = 54
"""The characters of a table's name that its index repeats: PostgreSQL cuts names after 63."""


@dataclass(frozen=True)
class Target:
    """The table that a sink declares.

    Args:
        table: Its name, optionally with a schema (`reports.visitors`).
        mode: `append`, `upsert`, `insert_ignore` or `history`.
        with_key: Whether rows contain the key's columns.
        windowed: Whether the stage keeps state per window, which the primary key then includes.
        types: Columns with another type than that of their values, and the word in `FORMS` for it.
    """

    table: str
    mode: str
    with_key: bool
    windowed: bool
    types: tuple[tuple[str, str], ...] = ()

    @property
    def schema(self) -> str | None:
        """The table's schema; None for the database's default schema."""
        return self.table.rpartition(".")[0] or None

    @property
    def name(self) -> str:
        """The table's name in its schema."""
        return self.table.rpartition(".")[2]

    @property
    def adds_rows(self) -> bool:
        """Return whether each emission is a row of its own, which no other replaces."""
        return self.mode in ("append", "history")

    @property
    def overwrites(self) -> bool:
        """Return whether a row replaces that of an earlier emission."""
        return self.mode == "upsert"

    @property
    def indexes_key(self) -> bool:
        """Return whether the primary key or an index has the key's text."""
        return self.mode != "append"

    @property
    def entry(self) -> tuple[str, ...]:
        """The columns that identify a key, or a key's window."""
        return (KEY, *WINDOW) if self.windowed else (KEY,)

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key: one row per emission of a stream, or else one per key (and window)."""
        return ("stream", "batch", ORDINAL) if self.adds_rows else self.entry

    @property
    def own_columns(self) -> Mapping[str, TypeEngine[Any]]:
        """The columns that every such table has beside the emitted ones."""
        deleted: Mapping[str, TypeEngine[Any]] = {DELETED: Boolean()} if self.adds_rows else {}
        validity: Mapping[str, TypeEngine[Any]] = {
            VALID_FROM: _INSTANT,
            VALID_TO: _INSTANT,
            IS_CURRENT: Boolean(),
        }
        return {
            KEY: ExactText(KEY_CHARACTERS if self.indexes_key else None),
            **(_WINDOW if self.windowed else {}),
            **_LAST,
            **deleted,
            **(validity if self.mode == "history" else {}),
        }


@dataclass(frozen=True)
class Part:
    """An emitted column or a key column.

    Args:
        struct: Its place in the outbox.
        type: Its type there.
        stored: The type that it is stored as.
    """

    struct: str
    name: str
    type: pa.DataType
    stored: pa.DataType

    @property
    def is_json_text(self) -> bool:
        """Whether its values are texts that must be JSON."""
        return self.stored == ANY_JSON and not pa.types.is_nested(self.type)

    def values(self, emissions: pa.RecordBatch) -> pa.Array:
        """Return the column's values, which are null where the struct is null."""
        struct = emissions.column(self.struct)
        return pc.struct_field(struct, [struct.type.get_field_index(self.name)])


class Layout:
    """The table of a target, for emissions of one shape.

    The columns of `table` have keys of their own (`c0`, `c1`, …), so that no column name becomes the name of
    a statement's parameter.

    Raises SinkRefused if a name has two meanings.
    """

    def __init__(self, target: Target, outbox: pa.Schema) -> None:
        self.target = target
        self.parts = _parts(target, outbox)
        check_names(f"SQL table {target.table}", target.own_columns, [part.name for part in self.parts])
        key, *rest = target.own_columns
        names = [key, *(part.name for part in self.parts), *rest]
        types = {**target.own_columns, **{part.name: EmittedType(part.stored) for part in self.parts}}
        self.keys = {name: f"c{number}" for number, name in enumerate(names)}
        self.table = Table(
            target.name,
            MetaData(schema=target.schema),
            *(
                Column(name, types[name], key=self.keys[name], primary_key=name in target.key)
                for name in names
            ),
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        if target.mode == "history":
            # The versions of a key are looked up whenever it gets one.
            columns = (self.table.c[self.keys[name]] for name in (*target.entry, VALID_FROM))
            Index(f"{target.name[:_INDEX_STEM]}_versions", *columns)

    def rows(
        self, dialect: SqlDialect, emissions: pa.RecordBatch, batch: tuple[str, int], first: int
    ) -> pa.RecordBatch:
        """Return the rows of some emissions. Their columns are named by the keys of the table's columns.

        Args:
            dialect: The kind of database.
            batch: The stream and the number of the batch.
            first: The ordinal of the first emission in the batch, from 0 on.
        """
        count = emissions.num_rows
        stream, seq = batch
        own = {
            KEY: emissions.column(KEY),
            SOURCE: emissions.column(SOURCE),
            "stream": pa.repeat(stream, count),
            "batch": pa.repeat(pa.scalar(seq, pa.int64()), count),
            ORDINAL: pa.array(range(first, first + count), pa.int64()),
            DELETED: emissions.column(VALUE).is_null(),
            # `update_validity` sets these, when all versions of the batch are written
            VALID_FROM: pa.nulls(count, _INSTANT.arrow),
            VALID_TO: pa.nulls(count, _INSTANT.arrow),
            IS_CURRENT: pa.repeat(False, count),
        }
        own |= {name: _instants(emissions.column(column)) for name, column in self.times.items()}
        emitted = {part.name: dialect.stored(part.values(emissions), part.stored) for part in self.parts}
        columns = emitted | {name: own[name] for name in self.target.own_columns}
        return pa.RecordBatch.from_pydict({key: columns[name] for name, key in self.keys.items()})

    @property
    def times(self) -> Mapping[str, str]:
        """The sink's own columns of times that come from the outbox, and their columns there (epoch ms)."""
        return {EMITTED: TIMESTAMP, **({name: name for name in WINDOW} if self.target.windowed else {})}


def _instants(epoch_ms: pa.Array) -> pa.TimestampArray:
    return epoch_ms.cast(pa.timestamp("ms", "UTC")).cast(_INSTANT.arrow)


def _parts(target: Target, outbox: pa.Schema) -> list[Part]:
    """Return the columns, key columns first. A key column that is also emitted occurs once, so a deletion
    has it, too. Raises SinkRefused for a type that values cannot have.
    """
    forms = dict(target.types)
    structs = [KEY_COLUMNS, VALUE] if target.with_key else [VALUE]
    parts: dict[str, Part] = {}
    for struct in structs:
        for field in outbox.field(struct).type:
            # Key columns come first, so `setdefault` prefers them: a deletion has a key and no value.
            stored = _stored(target, field, forms.get(field.name))
            parts.setdefault(field.name, Part(struct, field.name, field.type, stored))
    return list(parts.values())


def _stored(target: Target, field: pa.Field, form: str | None) -> pa.DataType:
    """Return the type that a column is stored as. Raises SinkRefused if its values cannot have it."""
    if form is None:
        return field.type
    if pa.types.is_nested(field.type) or (form == "json" and pa.types.is_string(field.type)):
        return FORMS[form]
    raise SinkRefused(
        f"The column {field.name} of the SQL table {target.table} is {type_of(field.type).text}, which "
        f"cannot have the type {form}",
        f"Leave {field.name} out of `types`, or `select` it as a string.",
    )
