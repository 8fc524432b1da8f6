"""Read binary values side by side: one array operation reads one field of all records.

Avro and Protobuf write a record without names or positions, so the position of a field is known only after
the fields before it have been read. Record by record, that is a loop in Python for each field; field by
field, it is a few operations of numpy for each field of thousands of records.

Nothing here raises an error on the content of records. A value that cannot be read is recorded as a fault of
its record, and reading continues with a harmless value in its place, always within the record's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.formats.text import texts_of

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

EARLY_END = "The value ends too early"
_PADDING = 16
_U64 = np.uint64
_CONTINUED = _U64(0x8080808080808080)
_SEVENS = (
    (_U64(0x007F007F007F007F), _U64(0x7F007F007F007F00), _U64(1)),
    (_U64(0x00003FFF00003FFF), _U64(0x3FFF00003FFF0000), _U64(2)),
    (_U64(0x000000000FFFFFFF), _U64(0x0FFFFFFF00000000), _U64(4)),
)
"""Masks and shifts that join the seven bits of each byte, in pairs, fours and eights."""


@dataclass
class Cursor:
    """The positions in the bytes that are read next.

    Args:
        rows: The record of each position.
        at: The positions, which move while values are read, and never beyond `ends`.
        ends: The ends of the records, or of the parts of them that are read.
    """

    rows: Ints
    at: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.at)

    def part(self, places: npt.NDArray[Any]) -> Cursor:
        """Return some of the positions as a cursor that moves independently; `put` moves this one, too.

        Args:
            places: Indexes into this cursor.
        """
        return Cursor(self.rows[places], self.at[places], self.ends[places])

    def put(self, places: npt.NDArray[Any], part: Cursor) -> None:
        """Move these positions to those of a part."""
        self.at[places] = part.at


@dataclass(frozen=True)
class ValueOrigin:
    """The origin of values, which their faults name.

    Args:
        wire: The bytes that the values were read from.
        rows: The record of each value.
        path: The path of the values, such as `$.items[...]`.
    """

    wire: Wire
    rows: Ints
    path: str

    def fault(self, places: npt.NDArray[Any], why: str) -> None:
        """Record why the records of some of the values cannot be used.

        Args:
            places: A mask of the values, or their numbers.
        """
        self.wire.fault(self.rows[places], why, self.path)


class Wire:
    r"""The concatenated bytes of many values. `faults`: row -> why its record cannot be used, with the
    path.

    Example::

        wire, cursor = Wire.from_values([b"\x02", b"\x04"])
        wire.longs(cursor, "$.n")  # [1, 2]
    """

    def __init__(self, data: npt.NDArray[np.uint8], size: int) -> None:
        self.data = data
        self.size = size
        """The number of bytes without the padding, which allows to read a word at the last byte."""
        self.faults: dict[int, str] = {}
        self.depth = 0
        """The depth of values within one another, while they are read."""
        # overlapping views with a stride of one byte: a word at any position, without a copy
        self._words: Words = np.ndarray(size + 1, "<u8", data, strides=(1,))
        self._halves = np.ndarray(size + 1, "<u4", data, strides=(1,))
        self._binary = pa.py_buffer(data)

    @classmethod
    def from_values(cls, values: Sequence[bytes | None]) -> tuple[Wire, Cursor]:
        """Return the bytes of values, and a cursor at the beginning of each. None has no bytes."""
        array = pa.array(values, pa.binary())
        offsets = _offsets_of(array)
        size = int(offsets[-1])
        # padding, so that a word or a long varint at the last byte stays within the array
        data = np.zeros(size + _PADDING, np.uint8)
        if size:
            data[:size] = np.frombuffer(array.buffers()[2], np.uint8, size)
        cursor = Cursor(np.arange(len(values)), offsets[:-1].copy(), offsets[1:].copy())
        return cls(data, size), cursor

    def fault(self, rows: npt.NDArray[np.int64], why: str, path: str) -> None:
        """Record why records cannot be used; the first fault of a record counts.

        Args:
            rows: Numbers of records.
            path: Such as `$.items[...]`.
        """
        for row in rows.tolist():
            self.faults.setdefault(row, f"{why} - at `{path}`")

    # numbers

    def varints(self, cursor: Cursor, path: str) -> Words:
        """Read numbers with seven bits per byte, the lowest first; the highest bit says that another byte
        follows.

        Args:
            cursor: It is moved behind the numbers.
            path: Names the value in faults.
        """
        first = self.data[cursor.at]
        values: Words = first.astype(np.uint64)
        long = np.flatnonzero(first > 0x7F)
        if not len(long):
            cursor.at += 1
        else:
            sizes = np.ones(len(first), np.int64)
            values[long], sizes[long] = self._long_varints(cursor.part(long), path)
            cursor.at += sizes
        self._stop_at_ends(cursor, values, path)
        return values

    def _long_varints(self, cursor: Cursor, path: str) -> tuple[Words, Ints]:
        """Return the numbers of more than one byte, and their sizes."""
        words = self._words[cursor.at]
        stops = ~words & _CONTINUED
        # the lowest set bit is at the first byte that ends a number
        lowest = stops & (~stops + _U64(1))
        values = words & (lowest ^ (lowest - _U64(1)))  # nine bytes or more have no stop bit in the word
        for low, high, shift in _SEVENS:
            values = (values & low) | ((values & high) >> shift)
        with np.errstate(divide="ignore"):
            bits = np.where(lowest, np.log2(lowest.astype(np.float64)), 0)
        sizes = (bits.astype(np.int64) >> 3) + 1
        huge = np.flatnonzero(lowest == 0)
        if len(huge):
            values[huge], sizes[huge] = self._huge_varints(cursor.part(huge), values[huge], path)
        return values, sizes

    def _huge_varints(self, cursor: Cursor, values: Words, path: str) -> tuple[Words, Ints]:
        """Return the numbers of nine and ten bytes, and their sizes; `values` are their first eight bytes."""
        ninth, tenth = self.data[cursor.at + 8], self.data[cursor.at + 9]
        values = values | ((ninth & 0x7F).astype(np.uint64) << _U64(56))
        ten = ninth > 0x7F
        # Beyond the end of a record, the tenth byte is the next record's.
        too_large = ten & (tenth > 1) & (cursor.at + 10 <= cursor.ends)
        if too_large.any():
            self.fault(cursor.rows[too_large], "A number has more than 64 bits", path)
        values = np.where(ten, values | ((tenth & 1).astype(np.uint64) << _U64(63)), values)
        return values, np.where(ten, 10, 9)

    def longs(self, cursor: Cursor, path: str) -> Ints:
        """Read varints whose lowest bit is the sign (zigzag).

        Example: the bytes 02 and 01 are 1 and -1.
        """
        return unzigzag(self.varints(cursor, path))

    def words(self, cursor: Cursor, path: str) -> Words:
        """Read eight bytes, little-endian."""
        return self._fixed(cursor, self._words, 8, path)

    def halves(self, cursor: Cursor, path: str) -> npt.NDArray[np.uint32]:
        """Read four bytes, little-endian."""
        return self._fixed(cursor, self._halves, 4, path)

    def octets(self, cursor: Cursor, path: str) -> npt.NDArray[np.uint8]:
        """Read one byte."""
        return self._fixed(cursor, self.data, 1, path)

    def _fixed(self, cursor: Cursor, view: npt.NDArray[Any], size: int, path: str) -> npt.NDArray[Any]:
        values = view[cursor.at]
        cursor.at += size
        self._stop_at_ends(cursor, values, path)
        return values

    def _stop_at_ends(self, cursor: Cursor, values: npt.NDArray[Any], path: str) -> None:
        """Replace values that go beyond the end of their record by 0, and record a fault."""
        over = cursor.at > cursor.ends
        if over.any():
            self.fault(cursor.rows[over], EARLY_END, path)
            cursor.at[over] = cursor.ends[over]
            values[over] = 0

    # bytes

    def spans(self, cursor: Cursor, sizes: Ints | int, path: str) -> tuple[Ints, Ints]:
        """Return start and size of so many bytes each, and move the cursor behind them.

        Args:
            sizes: One per position, or one for all; a negative or too large one is a fault, and counts as 0.
        """
        starts = cursor.at.copy()
        sizes = np.broadcast_to(np.asarray(sizes, np.int64), starts.shape)
        wrong = (sizes < 0) | (sizes > cursor.ends - starts)
        if wrong.any():
            negative = wrong & (sizes < 0)
            self.fault(cursor.rows[negative], "A size is negative", path)
            self.fault(cursor.rows[wrong & ~negative], EARLY_END, path)
            sizes = np.where(wrong, 0, sizes)
            cursor.at[wrong] = cursor.ends[wrong]
        cursor.at += sizes
        return starts, np.asarray(sizes)

    def binary(self, starts: Ints, sizes: Ints) -> pa.BinaryArray:
        """Return copies of spans. Usually they do not overlap, and are copied at once.

        Args:
            starts: Positions, each with its size.
        """
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        ends = starts + sizes
        # merged messages lie behind all other bytes, so spans can go back: these are copied one by one
        if (starts[1:] < ends[:-1]).any():
            pairs = zip(starts.tolist(), ends.tolist(), strict=True)
            return pa.array([bytes(self.data[start:end]) for start, end in pairs], pa.binary())
        bounds = np.empty(
            2 * count, np.int32
        )  # the gaps between spans are values, too, and are left out below
        bounds[::2], bounds[1::2] = starts, ends
        spans = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self._binary]
        )
        return spans.take(pa.array(np.arange(0, 2 * count, 2)))

    def texts(self, rows: Ints, values: pa.BinaryArray, path: str) -> pa.StringArray:
        """Return UTF-8 as text; other bytes are null, and a fault.

        Args:
            rows: The record of each value.
        """
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            texts, not_text = texts_of(values.to_pylist())
            self.fault(rows[not_text], "A text is not UTF-8", path)
            return texts

    def joined(self, pieces: Sequence[Sequence[tuple[int, int]]]) -> tuple[Wire, Ints, Ints]:
        """Concatenate bytes from several positions behind all other bytes.

        Return a wire that contains them, and their starts and ends.

        Args:
            pieces: Per text that is made, the start and end of its parts.
        """
        texts = [b"".join(bytes(self.data[start:end]) for start, end in spans) for spans in pieces]
        sizes = np.array([len(text) for text in texts], np.int64)
        ends = self.size + np.cumsum(sizes)
        data = np.zeros(self.size + int(sizes.sum()) + _PADDING, np.uint8)
        data[: self.size] = self.data[: self.size]
        data[self.size : -_PADDING] = np.frombuffer(b"".join(texts), np.uint8)
        wire = Wire(data, len(data) - _PADDING)
        # one dict for both: faults belong to records, wherever their bytes are
        wire.faults = self.faults
        return wire, ends - sizes, ends


def unzigzag(values: Words) -> Ints:
    """Return 0, 1, 2, 3 … as 0, -1, 1, -2 …"""
    signed: Ints = ((values >> _U64(1)) ^ (~(values & _U64(1)) + _U64(1))).view(np.int64)
    return signed


def _offsets_of(array: pa.BinaryArray) -> Ints:
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).astype(np.int64)
