"""A record whole, on its way into quarantine: as it travels through Spark, and as quarantine keeps it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tidegate.formats.records import Header

INPUT = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # packed: a list that is null in most rows makes Spark's look at an Arrow batch's size quadratic
        pa.field("headers", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("recorded", pa.int64()),
    ]
)
"""A record whole, and why it cannot be used. Headers are packed (`pack_headers`); null: it has none. `part`:
the place of the one element of the exploded list that cannot be used; null: none of the record can be;
EMISSION: it is no record, but what a stage has emitted. `recorded`: the record's own timestamp in Kafka,
epoch ms; null of an emission.
"""

EMISSION = -1
"""In place of a part."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Headers as quarantine keeps them."""

_PACKER = msgspec.msgpack.Encoder()
_UNPACKER = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])


def pack_headers(headers: Sequence[Header] | None) -> bytes | None:
    """A record's headers as one value; None where there are none."""
    return _PACKER.encode(headers) if headers else None


def unpack_headers(packed: pa.BinaryArray) -> pa.ListArray:
    """Headers of `HEADERS` out of what `pack_headers` has made of each record's."""
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), HEADERS)
    return pa.array(
        [None if value is None else _UNPACKER.decode(value) for value in packed.to_pylist()], HEADERS
    )
