"""Build Arrow columns from values that were read side by side, and write whole columns as bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.schemas import Unwritable
from tidegate.formats.wire import Cursor, Ints, ValueOrigin, Wire
from tidegate.kernel.rows import mask, places_among
from tidegate.kernel.unusable import beyond_calendar

_WIDEST = 16
"""The bytes of a decimal in Arrow."""
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_UUID = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])
Write = Callable[[pa.Array], pa.BinaryArray]
"""Writes the values of one type: an array without nulls -> the bytes of each value."""
_SEVENS = np.arange(0, 70, 7, dtype=np.uint64)
_LEAST = np.uint64(1) << _SEVENS[1:]
"""The smallest numbers whose varints have two bytes, three, … ten."""
_PLACES = np.arange(10)


def integers(origin: ValueOrigin, values: Ints, type_: pa.DataType) -> pa.Array:
    """Return numbers as integers of any width; numbers that do not fit are faults of their records."""
    if type_.bit_width < 64:
        least = -(2 ** (type_.bit_width - 1))
        outside = (values < least) | (values > -least - 1)
        if outside.any():
            origin.fault(outside, f"A number does not fit into `{type_}`")
            # the cast below would wrap around without a word
            values = np.where(outside, 0, values)
    return pa.array(values.astype(type_.to_pandas_dtype()))


def dates(origin: ValueOrigin, values: Ints) -> pa.Date32Array:
    """Return days since 1970 as dates. Days outside of the calendar are faults."""
    days = integers(origin, values, pa.int32()).cast(pa.date32())
    return _in_calendar(origin, days)


def timestamps(origin: ValueOrigin, values: Ints, factor: int, type_: pa.TimestampType) -> pa.TimestampArray:
    """Return numbers of `factor` microseconds since 1970 as timestamps. Times outside of the calendar are
    faults.

    Example: `factor` is 1000 for values in milliseconds.
    """
    most = np.iinfo(np.int64).max // factor
    values = np.clip(values, -most, most)  # the product must not overflow; larger values are faults anyway
    times = pa.array(values * factor).cast(pa.timestamp("us")).cast(type_)
    return _in_calendar(origin, times)


def _in_calendar(origin: ValueOrigin, values: pa.Array) -> pa.Array:
    outside = beyond_calendar(values)
    if outside is not None:
        mask = outside.to_numpy(zero_copy_only=False)
        origin.fault(mask, "A time is not in the years 1 to 9999 of UTC")
    return values


def decimals(
    origin: ValueOrigin, spans: tuple[Ints, Ints], scale: int, type_: pa.Decimal128Type
) -> pa.Decimal128Array:
    """Return decimals from big-endian numbers in two's complement, without loss.

    Args:
        spans: The positions and the sizes of the numbers in the wire, in bytes.
        scale: The number of digits behind the point.
        type_: The column's type; a number that does not fit is a fault.
    """
    wire, (starts, sizes) = origin.wire, spans
    empty = sizes == 0
    if empty.any():
        origin.fault(empty, "A decimal has no bytes")
    # a decimal of more than 16 bytes may still have few digits, so it is read as a Python integer
    if sizes.max(initial=0) > _WIDEST or empty.any():
        texts = wire.binary(starts, sizes).to_pylist()
        numbers = [int.from_bytes(text, "big", signed=True) for text in texts]
        return _exact(origin, numbers, scale, type_)
    ends = starts + sizes
    negative = wire.data[starts] > 0x7F
    digits = np.empty((len(starts), _WIDEST), np.uint8)
    # Arrow's decimals have 16 bytes, little-endian: the sign fills the bytes that were not written
    digits[:] = np.where(negative, 0xFF, 0)[:, None]
    # one pass per byte of the longest number, not per number
    for at in range(int(sizes.max(initial=0))):
        present = at < sizes
        digits[:, at] = np.where(present, wire.data[ends - 1 - np.where(present, at, 0)], digits[:, at])
    widest = pa.decimal128(38, scale)
    values = pa.Array.from_buffers(widest, len(starts), [None, pa.py_buffer(digits)])
    # Arrow takes -(2^127) to fit into any precision: in 128 bits, its absolute value is itself
    if (digits[:, -1] == 0x80).any():
        return _exact(origin, unscaled(values), scale, type_)
    return fitting(origin, values, type_)


def fitting(origin: ValueOrigin, values: pa.Decimal128Array, type_: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return decimals as decimals of another type, without loss; those that do not fit are faults.

    Args:
        type_: The column's type, which may have another scale.
    """
    try:
        values.validate(full=True)  # a cast to the same type does not check for 39 digits
        return values.cast(type_)
    except pa.ArrowInvalid:
        return _exact(origin, unscaled(values), values.type.scale, type_)


def unscaled(values: pa.Decimal128Array) -> list[int]:
    """Return decimals as integers without their points. For nulls, the integer has no meaning.

    The integers come from Arrow's buffer, since Python's decimals round to 28 digits by default.
    """
    buffer = values.buffers()[1] if len(values) else b""
    content = memoryview(buffer)[_WIDEST * values.offset : _WIDEST * (values.offset + len(values))]
    places = range(0, len(content), _WIDEST)
    return [int.from_bytes(content[at : at + _WIDEST], "little", signed=True) for at in places]


def _exact(
    origin: ValueOrigin, numbers: Sequence[int], scale: int, type_: pa.Decimal128Type
) -> pa.Decimal128Array:
    """Return numbers without points as decimals, one by one. Those that do not fit are faults, and 0."""
    more, fewer = 10 ** max(0, type_.scale - scale), 10 ** max(0, scale - type_.scale)
    limit = 10**type_.precision * fewer
    fitting = []
    for place, number in enumerate(numbers):
        fits = abs(number) * more < limit and number % fewer == 0
        fitting.append(number * more // fewer if fits else 0)
        if not fits:
            origin.fault(np.array([place]), f"A value does not fit into `{type_}`")
    content = b"".join(number.to_bytes(_WIDEST, "little", signed=True) for number in fitting)
    return pa.Array.from_buffers(type_, len(fitting), [None, pa.py_buffer(content)])


def uuids(wire: Wire, starts: Ints) -> pa.StringArray:
    """Return texts like `123e4567-e89b-12d3-a456-426614174000` from sixteen bytes each.

    Args:
        starts: The position of each UUID in the wire.
    """
    count = len(starts)
    letters = np.full((count, 36), ord("-"), np.uint8)
    octets = wire.data[starts[:, None] + np.arange(16)]
    letters[:, _UUID] = _HEX[octets].reshape(count, 32)
    bounds = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(letters))


def lists(counts: Ints, items: pa.Array, type_: pa.ListType) -> pa.ListArray:
    """Return lists with so many items each.

    Example: counts 2 and 0 of the items 1, 2 give `[[1, 2], []]`.
    """
    return pa.ListArray.from_arrays(offsets_of(counts), items, type=type_)


def maps(counts: Ints, keys: pa.Array, items: pa.Array, type_: pa.MapType) -> pa.MapArray:
    """Return maps with so many entries each. If a map has a key twice, the last entry counts, as in JSON.

    Args:
        counts: The number of entries of each map.
        keys: The keys of all maps, in order; none may be null.
    """
    last = _last_of_each(counts, keys)
    if last is not None:
        owners = np.repeat(np.arange(len(counts)), counts)[last]
        counts = np.bincount(owners, minlength=len(counts))
        keys, items = keys.take(pa.array(last)), items.take(pa.array(last))
    return pa.MapArray.from_arrays(offsets_of(counts), keys, items, type=type_)


def _last_of_each(counts: Ints, keys: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return the indexes of the last entry of each key of each map; None means all."""
    if not len(keys):
        return None
    encoded = keys.dictionary_encode() if not keys.null_count else keys.fill_null("").dictionary_encode()
    owners = np.repeat(np.arange(len(counts)), counts)
    identities = owners * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64)
    # `unique` finds first occurrences: from behind, these are the last ones
    _, from_behind = np.unique(identities[::-1], return_index=True)
    if len(from_behind) == len(identities):
        return None
    last: npt.NDArray[np.int64] = np.sort(len(identities) - 1 - from_behind)
    return last


def offsets_of(counts: Ints) -> pa.Int32Array:
    """Return the beginning of each list, and the end of the last one.

    Example: counts 2, 0, 1 give 0, 2, 2, 3.
    """
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def placed(count: int, places: Sequence[Ints], parts: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    """Return a column of `count` rows from parts, each at its rows; the other rows are null.

    Example::

        placed(3, [np.array([0, 2])], [pa.array([1, 2])], pa.int64())  # [1, null, 2]
    """
    if len(parts) == 1 and len(places[0]) == count:
        return parts[0]
    source = np.full(count, -1, np.int64)
    begin = 0
    for at, part in zip(places, parts, strict=True):
        source[at] = np.arange(begin, begin + len(part))
        begin += len(part)
    values = pa.concat_arrays(parts) if parts else pa.array([], type_)
    return values.take(pa.array(source, mask=source < 0))


def rows_except(count: int, rows: Sequence[int] | Ints) -> Ints:
    """Return all numbers below `count` except these.

    Example: `rows_except(4, [1])` is 0, 2, 3.
    """
    return np.delete(np.arange(count), rows)


def usable_structs(
    columns: Sequence[pa.Array],
    type_: pa.StructType,
    values: Sequence[bytes | None],
    unusable: Collection[int],
) -> pa.StructArray:
    """Return structs of the columns: null where a value is None, or its row is `unusable`."""
    mask = np.fromiter((value is None for value in values), bool, len(values))
    mask[list(unusable)] = True
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(mask))


def left_over(wire: Wire, cursor: Cursor) -> None:
    """Record a fault for each value with bytes left over: it was written by another schema."""
    for place in np.flatnonzero(cursor.at < cursor.ends):
        left = int(cursor.ends[place] - cursor.at[place])
        wire.fault(cursor.rows[[place]], f"{left} bytes are left over", "$")


def joined(*pieces: pa.BinaryArray | bytes) -> pa.BinaryArray:
    r"""Concatenate the pieces of each record; null if one of the pieces is.

    Example::

        joined(b"\x02", pa.array([b"a", None], pa.binary()))  # [b"\x02a", null]
    """
    return pc.binary_join_element_wise(*pieces, b"")


def of_present(values: pa.Array, write: Write, absent: bytes | None) -> pa.BinaryArray:
    """Return what a function makes of the values that are not null.

    Args:
        write: The function.
        absent: The result for nulls; None: null.
    """
    if not values.null_count:
        return write(values)
    # nulls are removed instead of written and masked: `required` must not see them
    is_valid = values.is_valid()
    written = write(values.filter(is_valid)).take(places_among(mask(is_valid)))
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


def varint(number: int) -> bytes:
    """Return a number below 2^64 as seven bits per byte, the lowest ones first.

    Example: `varint(300)` is the bytes ac and 02.
    """
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


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


def integer_values(values: pa.Array) -> npt.NDArray[np.int64]:
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
    return integer_values(pc.binary_length(pieces))


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
    return integer_values(pc.list_value_length(lists))


def entry_lists(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs with a key and an item."""
    entry = pa.struct([maps.type.key_field, maps.type.item_field])
    return maps.cast(pa.list_(pa.field("entries", entry, nullable=False)))


def _of_bytes(data: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> pa.BinaryArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)
