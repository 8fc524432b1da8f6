"""Whole records on their way into quarantine: as they travel through Spark, and as quarantine stores them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tidegate.formats.records import Header

INPUT = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # packed, since Spark's size check of an Arrow batch is quadratic for a list that is mostly null
        pa.field("headers", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("recorded", pa.int64()),
    ]
)
"""A whole record, and why it cannot be used.

`headers` is packed by `pack_headers`, and null if there are none. `part` is the index of the one element of
the exploded list that cannot be used; null if the whole record cannot be used; EMISSION if it is not a
record, but an emission. `recorded` is the record's own timestamp in Kafka, in epoch ms; null for an emission.
"""

EMISSION = -1
"""The `part` of an emission."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Headers as quarantine stores them."""

_PACKER = msgspec.msgpack.Encoder()
_UNPACKER = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])


def pack_headers(headers: Sequence[Header] | None) -> bytes | None:
    """Pack a record's headers into one value; None if there are none.

    Args:
        headers: Name and value, in order; names can repeat.
    """
    return _PACKER.encode(headers) if headers else None


def unpack_headers(packed: pa.BinaryArray) -> pa.ListArray:
    """Unpack what `pack_headers` has made of each record's headers, to an array of `HEADERS`."""
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), HEADERS)
    return pa.array(
        [None if value is None else _UNPACKER.decode(value) for value in packed.to_pylist()], HEADERS
    )
