"""Write whole columns as bytes, for formats without delimiters between fields: one binary value per row.

Functions that write a type get no nulls: `of_present` removes them before, and inserts their replacement
after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.schemas import Unwritable

Write = Callable[[pa.Array], pa.BinaryArray]
"""Writes the values of one type: an array without nulls -> the bytes of each value."""

_SEVENS = np.arange(0, 70, 7, dtype=np.uint64)
_LEAST = np.uint64(1) << _SEVENS[1:]
"""The smallest numbers whose varints have two bytes, three, … ten."""
_PLACES = np.arange(10)


def joined(*pieces: pa.BinaryArray | bytes) -> pa.BinaryArray:
    r"""Concatenate the pieces of each record; null if one of the pieces is.

    Example::

        joined(b"\x02", pa.array([b"a", None], pa.binary()))  # [b"\x02a", null]
    """
    return pc.binary_join_element_wise(*pieces, b"")


def of_present(values: pa.Array, write: Write, absent: bytes | None) -> pa.BinaryArray:
    """Return what `write` makes of the values that are not null, and `absent` for nulls (None: null)."""
    if not values.null_count:
        return write(values)
    # nulls are removed instead of written and masked: `required` must not see them
    is_valid = values.is_valid()
    is_null = ~is_valid.to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
    written = write(values.filter(is_valid)).take(places)
    return written if absent is None else pc.fill_null(written, absent)


def required(write: Write, path: str) -> Write:
    """Return a `write` that refuses nulls, for a field that cannot be null. `path` names the field in the
    error.

    Raises Unwritable, when it writes, if a value is null.
    """

    def write_all(values: pa.Array) -> pa.BinaryArray:
        if values.null_count:
            raise Unwritable(f"`{path}` is null, and the schema has no null there")
        return write(values)

    return write_all


def varints(numbers: npt.NDArray[np.uint64]) -> pa.BinaryArray:
    """Encode numbers with seven bits per byte, the lowest first; all bytes but the last have the eighth
    bit set.

    Example: 1 has the byte 01, 300 the bytes ac 02.
    """
    # all ten possible bytes of each number at once; those beyond its length are dropped
    lengths = 1 + (numbers[:, None] >= _LEAST).sum(axis=1)
    written = ((numbers[:, None] >> _SEVENS) & np.uint64(0x7F)).astype(np.uint8)
    written |= np.where(lengths[:, None] - 1 > _PLACES, 0x80, 0).astype(np.uint8)
    return _of_bytes(written[lengths[:, None] > _PLACES], lengths)


def integers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers, days or microseconds as numbers; 0 for null."""
    type_ = values.type
    if pa.types.is_date32(type_):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(type_):
        values = values.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
    filled = pc.fill_null(values.cast(pa.int64()), 0)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Map numbers to unsigned ones so that numbers near 0, also negative ones, become small.

    Example::

        zigzag(np.array([0, -1, 1, -2]))  # [0, 1, 2, 3]
    """
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)


def fractions(values: pa.FloatingPointArray) -> pa.BinaryArray:
    """Encode floating-point numbers with four or eight bytes, little-endian."""
    little = "<f4" if pa.types.is_float32(values.type) else "<f8"
    return fixed(np.asarray(values.to_numpy(zero_copy_only=False), little))


def fixed(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return the bytes that the numbers have in memory."""
    return _of_bytes(numbers.view(np.uint8), np.full(len(numbers), numbers.itemsize))


def texts(values: pa.Array) -> pa.BinaryArray:
    """Return texts and bytes as binary values."""
    return values.cast(pa.binary())


def lengths_of(pieces: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each value; 0 for null."""
    return integers(pc.binary_length(pieces))


def per_list(lists: pa.ListArray, items: pa.BinaryArray) -> pa.BinaryArray:
    """Concatenate the items of each list; empty bytes for an empty list and for null.

    Args:
        items: The encoded items of `lists.flatten()`.

    Example: lists with two items and none, encoded as `a`, `b`, give `ab` and no bytes.
    """
    sizes = list_sizes(lists)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pc.fill_null(pc.binary_join(pa.ListArray.from_arrays(offsets, items), b""), b"")


def list_sizes(lists: pa.ListArray) -> npt.NDArray[np.int64]:
    """Return the number of items of each list; 0 for null."""
    return integers(pc.list_value_length(lists))


def entry_lists(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs with a key and an item."""
    entry = pa.struct([maps.type.key_field, maps.type.item_field])
    return maps.cast(pa.list_(pa.field("entries", entry, nullable=False)))


def _of_bytes(data: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> pa.BinaryArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)
