"""Arrow columns out of what was read side by side: with checks of what a type can hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.calendar import beyond_calendar
from tidegate.formats.wire import Cursor, Ints, Wire

_WIDEST = 16
"""Bytes of a decimal in Arrow."""
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_UUID = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])


def integers(wire: Wire, rows: Ints, values: Ints, type_: pa.DataType, path: str) -> pa.Array:
    """Numbers as an integer of any width; those that do not fit are faults."""
    if type_.bit_width < 64:
        least = -(2 ** (type_.bit_width - 1))
        outside = (values < least) | (values > -least - 1)
        if outside.any():
            wire.fault(rows[outside], f"A number does not fit into `{type_}`", path)
            values = np.where(outside, 0, values)
    return pa.array(values.astype(type_.to_pandas_dtype()))


def dates(wire: Wire, rows: Ints, values: Ints, path: str) -> pa.Date32Array:
    """Days since 1970."""
    days = integers(wire, rows, values, pa.int32(), path).cast(pa.date32())
    return _in_calendar(wire, rows, days, path)


def timestamps(
    wire: Wire, rows: Ints, values: Ints, factor: int, type_: pa.TimestampType, path: str
) -> pa.TimestampArray:
    """Numbers of `factor` microseconds since 1970."""
    most = np.iinfo(np.int64).max // factor
    values = np.clip(values, -most, most)  # those are beyond every calendar
    times = pa.array(values * factor).cast(pa.timestamp("us")).cast(type_)
    return _in_calendar(wire, rows, times, path)


def _in_calendar(wire: Wire, rows: Ints, values: pa.Array, path: str) -> pa.Array:
    outside = beyond_calendar(values)
    if outside is not None:
        mask = outside.to_numpy(zero_copy_only=False)
        wire.fault(rows[mask], "A time is not in the years 1 to 9999 of UTC", path)
    return values


def decimals(
    wire: Wire, rows: Ints, spans: tuple[Ints, Ints], scale: int, type_: pa.Decimal128Type, path: str
) -> pa.Decimal128Array:
    """Big-endian numbers in two's complement, of `scale` digits behind the point, without loss."""
    starts, sizes = spans
    empty = sizes == 0
    if empty.any():
        wire.fault(rows[empty], "A decimal has no bytes", path)
    if sizes.max(initial=0) > _WIDEST or empty.any():
        texts = wire.binary(starts, sizes).to_pylist()
        numbers = [int.from_bytes(text, "big", signed=True) for text in texts]
        return _exact(wire, rows, numbers, scale, type_, path)
    ends = starts + sizes
    negative = wire.data[starts] > 0x7F
    digits = np.empty((len(starts), _WIDEST), np.uint8)
    digits[:] = np.where(negative, 0xFF, 0)[:, None]
    for at in range(int(sizes.max(initial=0))):
        present = at < sizes
        digits[:, at] = np.where(present, wire.data[ends - 1 - np.where(present, at, 0)], digits[:, at])
    widest = pa.decimal128(38, scale)
    values = pa.Array.from_buffers(widest, len(starts), [None, pa.py_buffer(digits)])
    return fitting(wire, rows, values, type_, path)


def fitting(
    wire: Wire, rows: Ints, values: pa.Decimal128Array, type_: pa.Decimal128Type, path: str
) -> pa.Decimal128Array:
    """Decimals as those of another type, without loss."""
    try:
        values.validate(full=True)  # a cast to the same type lets 39 digits pass
        return values.cast(type_)
    except pa.ArrowInvalid:
        return _exact(wire, rows, unscaled(values), values.type.scale, type_, path)


def unscaled(values: pa.Decimal128Array) -> list[int]:
    """Decimals without their points; whatever is there for nulls. Python's decimals round to 28 digits."""
    buffer = values.buffers()[1] if len(values) else b""
    content = memoryview(buffer)[_WIDEST * values.offset : _WIDEST * (values.offset + len(values))]
    places = range(0, len(content), _WIDEST)
    return [int.from_bytes(content[at : at + _WIDEST], "little", signed=True) for at in places]


def _exact(
    wire: Wire, rows: Ints, numbers: Sequence[int], scale: int, type_: pa.Decimal128Type, path: str
) -> pa.Decimal128Array:
    """Numbers without their points, one by one; those that do not fit are faults, and 0."""
    more, fewer = 10 ** max(0, type_.scale - scale), 10 ** max(0, scale - type_.scale)
    limit = 10**type_.precision * fewer
    fitting = []
    for row, number in zip(rows, numbers, strict=True):
        fits = abs(number) * more < limit and number % fewer == 0
        fitting.append(number * more // fewer if fits else 0)
        if not fits:
            wire.fault(np.array([row]), f"A value does not fit into `{type_}`", path)
    content = b"".join(number.to_bytes(_WIDEST, "little", signed=True) for number in fitting)
    return pa.Array.from_buffers(type_, len(fitting), [None, pa.py_buffer(content)])


def uuids(wire: Wire, starts: Ints) -> pa.StringArray:
    """Sixteen bytes each, as texts like `123e4567-e89b-12d3-a456-426614174000`."""
    count = len(starts)
    letters = np.full((count, 36), ord("-"), np.uint8)
    octets = wire.data[starts[:, None] + np.arange(16)]
    letters[:, _UUID] = _HEX[octets].reshape(count, 32)
    bounds = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(letters))


def lists(counts: Ints, items: pa.Array, type_: pa.ListType) -> pa.ListArray:
    """So many items for each list."""
    return pa.ListArray.from_arrays(offsets_of(counts), items, type=type_)


def maps(counts: Ints, keys: pa.Array, items: pa.Array, type_: pa.MapType) -> pa.MapArray:
    """So many entries for each map; of a key that is there twice the last counts, as in JSON."""
    last = _last_of_each(counts, keys)
    if last is not None:
        owners = np.repeat(np.arange(len(counts)), counts)[last]
        counts = np.bincount(owners, minlength=len(counts))
        keys, items = keys.take(pa.array(last)), items.take(pa.array(last))
    return pa.MapArray.from_arrays(offsets_of(counts), keys, items, type=type_)


def _last_of_each(counts: Ints, keys: pa.Array) -> npt.NDArray[np.int64] | None:
    """The places of entries, without those that a later one of the same map and key replaces; None: all."""
    if not len(keys):
        return None
    encoded = keys.dictionary_encode() if not keys.null_count else keys.fill_null("").dictionary_encode()
    owners = np.repeat(np.arange(len(counts)), counts)
    identities = owners * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64)
    _, from_behind = np.unique(identities[::-1], return_index=True)
    if len(from_behind) == len(identities):
        return None
    last: npt.NDArray[np.int64] = np.sort(len(identities) - 1 - from_behind)
    return last


def offsets_of(counts: Ints) -> pa.Int32Array:
    """Where each list begins, and where the last one ends."""
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def placed(count: int, places: Sequence[Ints], parts: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    """Parts of a column, each at its places; null where there is none."""
    if len(parts) == 1 and len(places[0]) == count:
        return parts[0]
    source = np.full(count, -1, np.int64)
    begin = 0
    for at, part in zip(places, parts, strict=True):
        source[at] = np.arange(begin, begin + len(part))
        begin += len(part)
    values = pa.concat_arrays(parts) if parts else pa.array([], type_)
    return values.take(pa.array(source, mask=source < 0))


def others(count: int, rows: Sequence[int] | Ints) -> Ints:
    """All numbers below `count` but these."""
    return np.delete(np.arange(count), rows)


def usable_structs(
    columns: Sequence[pa.Array],
    type_: pa.StructType,
    values: Sequence[bytes | None],
    unusable: Collection[int],
) -> pa.StructArray:
    """Rows of the columns; null where there is no value, or one that is unusable."""
    mask = np.fromiter((value is None for value in values), bool, len(values))
    mask[list(unusable)] = True
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(mask))


def left_over(wire: Wire, cursor: Cursor) -> None:
    """Bytes behind a value are a fault: it was written by another schema."""
    for place in np.flatnonzero(cursor.at < cursor.ends):
        left = int(cursor.ends[place] - cursor.at[place])
        wire.fault(cursor.rows[[place]], f"{left} bytes are left over", "$")
