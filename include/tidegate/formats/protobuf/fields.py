"""Collect the occurrences of one Protobuf field while messages are read side by side, and build its
column.

A field can occur anywhere in a message, and several times. Of a single value the last occurrence counts,
messages are merged, and of a oneof only the member that occurred last is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats import binary
from tidegate.formats.wire import EARLY_END, Cursor, Ints, ValueOrigin, Wire, Words, unzigzag

VARINT, EIGHT, SIZED, GROUP, GROUP_END, FOUR = range(6)
"""The wire types: the lowest three bits of a field's tag."""
_SIZES = {FOUR: 4, EIGHT: 8}


def _to_int32(raw: Words) -> npt.NDArray[np.int32]:
    """Return 32-bit numbers: negative ones are written with 64 bits."""
    return raw.astype(np.uint32).view(np.int32)


_NUMBERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "int32": (VARINT, _to_int32),
    "enum": (VARINT, _to_int32),
    "int64": (VARINT, lambda raw: raw.view(np.int64)),
    "uint32": (VARINT, lambda raw: raw.astype(np.uint32)),
    "uint64": (VARINT, lambda raw: raw),
    "sint32": (VARINT, lambda raw: unzigzag(raw & np.uint64(0xFFFFFFFF)).astype(np.int32)),
    "sint64": (VARINT, unzigzag),
    "bool": (VARINT, lambda raw: raw != 0),
    "fixed32": (FOUR, lambda raw: raw),
    "sfixed32": (FOUR, lambda raw: raw.view(np.int32)),
    "float": (FOUR, lambda raw: raw.view(np.float32)),
    "fixed64": (EIGHT, lambda raw: raw),
    "sfixed64": (EIGHT, lambda raw: raw.view(np.int64)),
    "double": (EIGHT, lambda raw: raw.view(np.float64)),
}
"""Kind -> its wire type, and what converts raw numbers to values."""


def is_number(kind: str) -> bool:
    """Return whether `Numbers` collects fields of a kind.

    Example: it is True for `sint64` and `enum`, and False for `string`.
    """
    return kind in _NUMBERS


def wire_type(kind: str) -> int:
    """Return the wire type of a kind.

    Example: it is SIZED for `string`, and VARINT for `int32`.
    """
    return _NUMBERS[kind][0] if kind in _NUMBERS else GROUP if kind == "group" else SIZED


@dataclass
class Numbers:
    """The values of a number field.

    Args:
        closed: The numbers of a closed enum (proto2); other numbers are ignored. None for any other field.
    """

    kind: str
    path: str
    closed: tuple[int, ...] | None = None
    unnamed: list[Ints] = field(default_factory=list)
    """The messages with numbers that the enum does not have."""
    places: list[Ints] = field(default_factory=list)
    parts: list[npt.NDArray[Any]] = field(default_factory=list)

    def take(self, wire: Wire, cursor: Cursor, places: Ints) -> Ints:
        """Read one number of each of these messages. Return the messages in which it counts.

        Args:
            cursor: The positions behind the field's tags; it is moved.
            places: The message of each position.
        """
        written, values_of = _NUMBERS[self.kind]
        return self._add(places, values_of(_raw(wire, cursor, written, self.path)))

    def _add(self, places: Ints, values: npt.NDArray[Any]) -> Ints:
        if self.closed is not None:
            named = np.isin(values, self.closed)
            if not named.all():
                self.unnamed.append(places[~named])
                places, values = places[named], values[named]
        self.places.append(places)
        self.parts.append(values)
        return places

    def take_packed(self, wire: Wire, cursor: Cursor, places: Ints) -> None:
        """Read a packed list of numbers of each message.

        Args:
            cursor: The positions of the lists' sizes; it is moved.
            places: The message of each position.
        """
        written, values_of = _NUMBERS[self.kind]
        starts, sizes = _sized(wire, cursor, self.path)
        owners, items = _packed(wire, Cursor(cursor.rows, starts, starts + sizes), written, self.path)
        self._add(places[owners], values_of(_raw(wire, items, written, self.path)))

    def last(self) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the messages with a number, and the last number of each."""
        if len(self.parts) == 1:
            return self.places[0], self.parts[0]
        places, values = self.all()
        if not len(places):
            return places, values
        # the last occurrence of a field counts, by Protobuf's specification
        newest = np.append(places[1:] != places[:-1], True)
        return places[newest], values[newest]

    def all(self) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the message of each number, and all numbers, in order."""
        if not self.parts:
            return np.zeros(0, np.int64), _NUMBERS[self.kind][1](np.zeros(0, _dtype(self.kind)))
        places, values = np.concatenate(self.places), np.concatenate(self.parts)
        # collected round by round; a stable sort keeps the order of each message's own values
        order = np.argsort(places, kind="stable")
        return places[order], values[order]

    def clear(self, places: Ints) -> None:
        """Remove the values of these messages, because another member of the oneof occurred later."""
        masks = [~np.isin(part, places) for part in self.places]
        self.parts = [part[keep] for part, keep in zip(self.parts, masks, strict=True)]
        self.places = [part[keep] for part, keep in zip(self.places, masks, strict=True)]


@dataclass
class Spans:
    """The values of a field of texts, bytes or messages: where they begin and end."""

    path: str
    places: list[Ints] = field(default_factory=list)
    parts: list[tuple[Ints, Ints]] = field(default_factory=list)

    def take(self, wire: Wire, cursor: Cursor, places: Ints) -> Ints:
        """Read one value of each of these messages. Return the messages in which it counts.

        Args:
            cursor: The positions of sizes; it is moved.
            places: The message of each position.
        """
        starts, sizes = _sized(wire, cursor, self.path)
        self.places.append(places)
        self.parts.append((starts, starts + sizes))
        return places

    def take_all(self, wire: Wire, cursor: Cursor, places: Ints, tag: bytes) -> Ints:
        """Read consecutive values, each behind `tag`, one by one: faster if few messages have very many
        values.

        Return the messages whose next value cannot be read in this way; `take` must read it.
        """
        # a memoryview: single bytes are read faster than from the array
        data = wire.data.data
        refused = []
        for place in places.tolist():
            at, end = int(cursor.at[place]), int(cursor.ends[place])
            starts, ends = [], []
            while True:
                size, start = _plain_size(data, at, end)
                if not 0 <= size <= end - start:
                    refused.append(place)
                    break
                starts.append(start)
                ends.append(start + size)
                at = start + size
                if at + len(tag) > end or data[at : at + len(tag)] != tag:
                    break
                at += len(tag)
            cursor.at[place] = at
            self.places.append(np.full(len(starts), place))
            self.parts.append((np.array(starts, np.int64), np.array(ends, np.int64)))
        return np.array(refused, np.int64)

    def all(self) -> tuple[Ints, Ints, Ints]:
        """Return the message, the start and the end of each value, in order."""
        if not self.parts:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        if len(self.parts) == 1:
            return (self.places[0], *self.parts[0])
        places = np.concatenate(self.places)
        starts, ends = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        order = np.argsort(places, kind="stable")
        return places[order], starts[order], ends[order]

    def last(self) -> tuple[Ints, Ints, Ints]:
        """Return the message, the start and the end of the last value of each message that has one."""
        places, starts, ends = self.all()
        if len(self.parts) < 2 or not len(places):
            return places, starts, ends
        newest = np.append(places[1:] != places[:-1], True)
        return places[newest], starts[newest], ends[newest]

    def merged(self, wire: Wire) -> tuple[Wire, Ints, Ints, Ints]:
        """Return all occurrences in a message as one: Protobuf merges messages by concatenation.

        The wire that is returned contains the concatenated bytes.
        """
        places, starts, ends = self.all()
        again = len(self.parts) > 1 and len(places) > 0 and bool((places[1:] == places[:-1]).any())
        if not again:
            # usually each message occurs once, and no bytes are copied
            return wire, places, starts, ends
        # bytes are concatenated only for messages that occur several times
        owners, first, counts = np.unique(places, return_index=True, return_counts=True)
        starts_once, ends_once = starts[first], ends[first]
        several = np.flatnonzero(counts > 1)
        pieces = [
            list(zip(starts[at : at + n].tolist(), ends[at : at + n].tolist(), strict=True))
            for at, n in zip(first[several].tolist(), counts[several].tolist(), strict=True)
        ]
        wire, starts_once[several], ends_once[several] = wire.joined(pieces)
        return wire, owners, starts_once, ends_once

    def clear(self, places: Ints) -> None:
        """Remove the values of these messages, because another member of the oneof occurred later."""
        masks = [~np.isin(part, places) for part in self.places]
        self.parts = [(s[keep], e[keep]) for (s, e), keep in zip(self.parts, masks, strict=True)]
        self.places = [part[keep] for part, keep in zip(self.places, masks, strict=True)]


def skip(wire: Wire, cursor: Cursor, types: Ints, path: str) -> None:
    """Skip fields with the wire types `types`.

    Args:
        cursor: The positions behind the tags; it is moved.
        types: One wire type per position; GROUP is not among them.
    """
    for written in np.unique(types).tolist():
        places = np.flatnonzero(types == written)
        part = cursor.part(places)
        if written == VARINT:
            wire.varints(part, path)
        elif written in _SIZES:
            wire.spans(part, _SIZES[written], path)
        elif written == SIZED:
            _sized(wire, part, path)
        else:
            wire.fault(part.rows, "Expected a field", path)
            part.at[:] = part.ends
        cursor.put(places, part)


def column_of_numbers(origin: ValueOrigin, values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return numbers or booleans as a column. A number that does not fit is a fault of its record."""
    if pt.is_integer(type_):
        return _integers(origin, values, type_)
    if pt.is_decimal(type_):
        # unsigned 64 bits as the lower half of Arrow's 128-bit decimal
        halves = np.zeros((len(values), 2), np.uint64)
        halves[:, 0] = values
        whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), [None, pa.py_buffer(halves)])
        return binary.fitting(origin, whole, type_)
    return pa.array(values).cast(type_)


def _integers(origin: ValueOrigin, values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    if values.dtype == np.uint64 and (values >> np.uint64(63)).any():
        beyond = values >> np.uint64(63) != 0
        origin.fault(beyond, f"A number does not fit into `{type_}`")
        values = np.where(beyond, np.uint64(0), values)
    return binary.integers(origin, values.astype(np.int64), type_)


def names_of(values: npt.NDArray[Any], names: Sequence[tuple[int, str]]) -> pa.StringArray:
    """Return the names of an enum's numbers; a number without a name is written as digits.

    Example: of an enum with `NONE` at 0, the numbers 0 and 5 are `NONE` and `5`.
    """
    # reversed, so that the first name of a number counts
    by_number = dict(reversed(names))
    numbers, inverse = np.unique(values, return_inverse=True)
    texts = [by_number.get(number, str(number)) for number in numbers.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(inverse))


def _plain_size(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a size of up to five bytes, and its end; a size of -1 if there is none."""
    size = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
    return -1, at


def _dtype(kind: str) -> Any:
    return {VARINT: np.uint64, EIGHT: np.uint64, FOUR: np.uint32}[_NUMBERS[kind][0]]


def _raw(wire: Wire, cursor: Cursor, written: int, path: str) -> npt.NDArray[Any]:
    if written == VARINT:
        return wire.varints(cursor, path)
    return wire.words(cursor, path) if written == EIGHT else wire.halves(cursor, path)


def _sized(wire: Wire, cursor: Cursor, path: str) -> tuple[Ints, Ints]:
    """Return the start and the size of a value that begins with its size."""
    sizes: Words = wire.varints(cursor, path)
    return wire.spans(cursor, sizes.view(np.int64), path)


def _packed(wire: Wire, spans: Cursor, written: int, path: str) -> tuple[Ints, Cursor]:
    """Return the span of each number of packed lists, and a cursor at the numbers."""
    sizes = spans.ends - spans.at
    owners = np.repeat(np.arange(len(spans)), sizes)
    begins = np.cumsum(sizes) - sizes
    within = np.arange(len(owners)) - np.repeat(begins, sizes)
    if written == VARINT:
        # a varint ends with the first byte whose highest bit is not set
        is_last = wire.data[spans.at[owners] + within] < 0x80
        first = np.append(True, is_last[:-1])[: len(owners)] | (within == 0)
        whole = np.ones(len(spans), bool)
        filled = sizes > 0
        whole[filled] = is_last[(begins + sizes - 1)[filled]]
    else:
        first = within % _SIZES[written] == 0
        whole = sizes % _SIZES[written] == 0
    if not whole.all():
        wire.fault(spans.rows[~whole], EARLY_END, path)
        first &= whole[owners]
    owners, within = owners[first], within[first]
    return owners, Cursor(spans.rows[owners], spans.at[owners] + within, spans.ends[owners])
