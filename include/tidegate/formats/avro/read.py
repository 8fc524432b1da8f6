"""Readers of Avro values: one reader for each type of the writer that a column needs.

A reader reads the values at all positions of a cursor, moves the cursor behind them, and returns an Arrow
array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.formats import binary
from tidegate.formats.avro.skip import Passage, Skip, branch_places, item_places
from tidegate.formats.wire import Cursor, Wire

Read = Callable[[Wire, Cursor], pa.Array]


@dataclass(frozen=True)
class ReadBoolean:
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        values = wire.octets(cursor, self.path)
        wrong = values > 1
        if wrong.any():
            wire.fault(cursor.rows[wrong], "Expected a boolean", self.path)
        return pa.array(values == 1)


@dataclass(frozen=True)
class ReadInteger:
    """Reads integers. `is_int`: whether the writer's type is `int`, which has 32 bits."""

    type: pa.DataType
    is_int: bool
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        values = wire.longs(cursor, self.path)
        # an `int` beyond 32 bits is a fault, although the column has room for it
        if self.is_int and self.type.bit_width > 32:
            binary.integers(wire, cursor.rows, values, pa.int32(), self.path)
        return binary.integers(wire, cursor.rows, values, self.type, self.path)


@dataclass(frozen=True)
class ReadFloat:
    """Reads a number of any kind as a floating-point number."""

    kind: str
    type: pa.DataType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        if self.kind == "float":
            return pa.array(wire.halves(cursor, self.path).view(np.float32)).cast(self.type)
        if self.kind == "double":
            return pa.array(wire.words(cursor, self.path).view(np.float64))
        return pa.array(wire.longs(cursor, self.path).astype(self.type.to_pandas_dtype()))


@dataclass(frozen=True)
class ReadDate:
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        return binary.dates(wire, cursor.rows, wire.longs(cursor, self.path), self.path)


@dataclass(frozen=True)
class ReadTimestamp:
    """Reads timestamps that count units of `factor` microseconds."""

    factor: int
    type: pa.TimestampType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        values = wire.longs(cursor, self.path)
        return binary.timestamps(wire, cursor.rows, values, self.factor, self.type, self.path)


@dataclass(frozen=True)
class ReadBytes:
    """Reads bytes or texts. `size` is the size of a `fixed` type; None if each value begins with its size."""

    size: int | None
    is_text: bool
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        sizes = wire.longs(cursor, self.path) if self.size is None else self.size
        values = wire.binary(*wire.spans(cursor, sizes, self.path))
        return wire.texts(cursor.rows, values, self.path) if self.is_text else values


@dataclass(frozen=True)
class ReadDecimal:
    """Reads decimals. `size` as in `ReadBytes`; `scale` is the writer's."""

    size: int | None
    scale: int
    type: pa.Decimal128Type
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        sizes = wire.longs(cursor, self.path) if self.size is None else self.size
        spans = wire.spans(cursor, sizes, self.path)
        return binary.decimals(wire, cursor.rows, spans, self.scale, self.type, self.path)


@dataclass(frozen=True)
class ReadUuid:
    """Reads UUIDs of sixteen bytes."""

    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        starts, _ = wire.spans(cursor, 16, self.path)
        return binary.uuids(wire, starts)


@dataclass(frozen=True)
class ReadEnum:
    """Reads symbols. `symbols` has the reader's symbol for each of the writer's; None where the reader has
    none.
    """

    symbols: Sequence[str | None]
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        numbers = wire.longs(cursor, self.path)
        has_symbol = np.array([symbol is not None for symbol in self.symbols] + [False])
        inside = (numbers >= 0) & (numbers < len(self.symbols))
        # numbers outside of the enum point to the entry None at the end
        numbers = np.where(inside, numbers, len(self.symbols))
        wrong = ~has_symbol[numbers]
        if wrong.any():
            wire.fault(cursor.rows[wrong], "An enum has no such symbol", self.path)
        return pa.array([*self.symbols, None], pa.string()).take(pa.array(numbers))


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
class Misfit:
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
    item: Read
    passage: Passage
    type: pa.ListType
    path: str

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        counts, items = item_places(wire, cursor, self.passage, self.path)
        return binary.lists(counts, self.item(wire, items), self.type)


@dataclass(frozen=True)
class ReadMap:
    item: Read
    passage: Passage
    type: pa.MapType
    path: str
    key: Read = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ReadBytes(None, True, self.path))

    def __call__(self, wire: Wire, cursor: Cursor) -> pa.Array:
        counts, entries = item_places(wire, cursor, self.passage, self.path)
        # a map's entry is its key and then its value: `entries` moves over both
        keys = self.key(wire, entries)
        return binary.maps(counts, keys.fill_null(""), self.item(wire, entries), self.type)
