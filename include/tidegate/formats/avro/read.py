"""Readers of Avro values: one reader for each type of the writer that a column needs.

A reader reads the values at all positions of a cursor, moves the cursor behind them, and returns an Arrow
array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.formats import binary
from tidegate.formats.avro.skip import Passage, Skip, branch_places, item_places
from tidegate.formats.wire import Cursor, Ints, ValueOrigin, Wire

Read = Callable[[Wire, Cursor], pa.Array]


def read_boolean(path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read booleans, each of one byte. Faults are recorded in the wire, by the `path` of the values."""
    values = wire.octets(cursor, path)
    wrong = values > 1
    if wrong.any():
        wire.fault(cursor.rows[wrong], "Expected a boolean", path)
    return pa.array(values == 1)


def read_integer(type_: pa.DataType, is_int: bool, path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read integers. `is_int`: whether the writer's type is `int`, which has 32 bits."""
    origin, values = ValueOrigin(wire, cursor.rows, path), wire.longs(cursor, path)
    # an `int` beyond 32 bits is a fault, although the column has room for it
    if is_int and type_.bit_width > 32:
        binary.integers(origin, values, pa.int32())
    return binary.integers(origin, values, type_)


def read_float(kind: str, type_: pa.DataType, path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read numbers of any kind as floating-point numbers. `kind`: the writer's."""
    if kind == "float":
        return pa.array(wire.halves(cursor, path).view(np.float32)).cast(type_)
    if kind == "double":
        return pa.array(wire.words(cursor, path).view(np.float64))
    return pa.array(wire.longs(cursor, path).astype(type_.to_pandas_dtype()))


def read_date(path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read days since 1970."""
    return binary.dates(ValueOrigin(wire, cursor.rows, path), wire.longs(cursor, path))


def read_timestamp(factor: int, type_: pa.TimestampType, path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read timestamps that count units of `factor` microseconds."""
    return binary.timestamps(ValueOrigin(wire, cursor.rows, path), wire.longs(cursor, path), factor, type_)


def _spans(size: int | None, path: str, wire: Wire, cursor: Cursor) -> tuple[Ints, Ints]:
    """Return the spans of a `fixed` type of this size; None: each value begins with its size."""
    return wire.spans(cursor, wire.longs(cursor, path) if size is None else size, path)


def read_bytes(size: int | None, is_text: bool, path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read bytes or texts.

    Args:
        size: The size of a `fixed` type; None if each value begins with its size.
    """
    values = wire.binary(*_spans(size, path, wire, cursor))
    return wire.texts(cursor.rows, values, path) if is_text else values


@dataclass(frozen=True)
class ReadDecimal:
    """Reads decimals. `size` as in `read_bytes`; `scale` is the writer's."""

    size: int | None
    scale: int
    type: pa.Decimal128Type
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        spans = _spans(self.size, self.path, wire, cursor)
        return binary.decimals(ValueOrigin(wire, cursor.rows, self.path), spans, self.scale, self.type)


def read_uuid(path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read UUIDs of sixteen bytes."""
    return binary.uuids(wire, _spans(16, path, wire, cursor)[0])


def read_enum(symbols: Sequence[str | None], path: str, wire: Wire, cursor: Cursor) -> pa.Array:
    """Read symbols.

    Args:
        symbols: The reader's symbol for each of the writer's; None where the reader has none.
    """
    numbers = wire.longs(cursor, path)
    has_symbol = np.array([symbol is not None for symbol in symbols] + [False])
    inside = (numbers >= 0) & (numbers < len(symbols))
    # numbers outside of the enum point to the entry None at the end
    numbers = np.where(inside, numbers, len(symbols))
    wrong = ~has_symbol[numbers]
    if wrong.any():
        wire.fault(cursor.rows[wrong], "An enum has no such symbol", path)
    return pa.array([*symbols, None], pa.string()).take(pa.array(numbers))


@dataclass(frozen=True)
class ReadNull:
    """Reads nulls. `why` is the fault if the reader does not allow null; None if it does."""

    type: pa.DataType
    path: str
    why: str | None = None

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        if self.why is not None and len(cursor):
            wire.fault(cursor.rows, self.why, self.path)
        return pa.nulls(len(cursor), self.type)


@dataclass(frozen=True)
class ReadUnion:
    """Reads unions, with one reader for each branch of the writer."""

    branches: Sequence[Read]
    type: pa.DataType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        places, parts = [], []
        for number, at in branch_places(wire, cursor, len(self.branches), self.path):
            branch = self.branches[number]
            # usually all values are of one branch, and nothing is copied
            part = cursor if len(at) == len(cursor) else cursor.part(at)
            values = branch(wire, part)
            cursor.put(at, part)
            # nulls are what `placed` leaves where no part is
            if not isinstance(branch, ReadNull):
                places.append(at)
                parts.append(values)
        return binary.placed(len(cursor), places, parts, self.type)


@dataclass(frozen=True)
class ReadMisfit:
    """Skips values that cannot become the column's type, and records each of them as a fault."""

    skip: Skip
    type: pa.DataType
    path: str
    why: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        self.skip(wire, cursor)
        wire.fault(cursor.rows, self.why, self.path)
        return pa.nulls(len(cursor), self.type)


@dataclass(frozen=True)
class ReadRecord:
    """Reads records.

    Args:
        fields: In the writer's order, each with the index of its column; None for a field that is skipped.
        constants: The columns that the writer does not have, with one value each.
    """

    fields: Sequence[tuple[int | None, Read | Skip]]
    constants: Sequence[tuple[int, pa.Array]]
    type: pa.StructType

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        columns: dict[int, pa.Array] = {}
        # in the writer's order: a field begins where the one before it ends
        for place, read in self.fields:
            values = read(wire, cursor)
            if place is not None:
                columns[place] = values
        # repeats the value for each row
        zeros = pa.array(np.zeros(len(cursor), np.int64))
        columns |= {place: value.take(zeros) for place, value in self.constants}
        arrays = [columns[place] for place in range(len(self.type))]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


@dataclass(frozen=True)
class ReadArray:
    """Reads arrays. `passage` skips an item, to find where each begins."""

    item: Read
    passage: Passage
    type: pa.ListType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        counts, items = item_places(wire, cursor, self.passage, self.path)
        return binary.lists(counts, self.item(wire, items), self.type)


@dataclass(frozen=True)
class ReadMap:
    """Reads maps. `passage` skips an entry, to find where each begins."""

    item: Read
    passage: Passage
    type: pa.MapType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        counts, entries = item_places(wire, cursor, self.passage, self.path)
        # a map's entry is its key and then its value: `entries` moves over both
        keys = read_bytes(None, True, self.path, wire, entries)
        return binary.maps(counts, keys.fill_null(""), self.item(wire, entries), self.type)
