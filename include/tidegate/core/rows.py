"""The shape of the rows that go into the kernel and come out of it.

Into the kernel (rows sorted by `key`, `kind`, `updated_seq`, `topic`, `partition`, `offset`):

=============  ==============  ====================================================================
kind           int8            STATE, RECORD, or QUARANTINED (passed through)
key            string          the canonical key; null only when quarantined
updated_seq    int64           state rows: the batch that wrote them; the newest of a key counts
topic          string          position of the record; of a state row: the position that last changed it
partition      int32
offset         int64
timestamp      int64           epoch ms
source         string          the chain of hops before this one, or null
passes         bool            the stage's `where`, evaluated on this record
value          struct | null   the selected columns; null is a tombstone, or a deleted key
emitted        struct | null   state rows: what the key last sent out; null when nothing, or a deletion
input          struct | null   quarantined rows: the whole record and the reason, opaque to the kernel
=============  ==============  ====================================================================

Out of it come rows of kind STATE (keys whose state changed), EMISSION, QUARANTINED, and last one row
of kind COUNTS whose `counts` is a JSON object.
"""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa

STATE, RECORD, QUARANTINED, EMISSION, COUNTS = range(5)

FUTURE_MS = 24 * 60 * 60 * 1000
"""A record whose timestamp is more than this in the future is not believed (quarantined)."""

POSITION = [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]


class Counts(Counter[str]):
    """What became of the records: the names are those of the metrics.

    `used + quarantined + deduplicated` is the number of records that came in.
    """

    @property
    def accounted(self) -> int:
        """Records whose fate is known."""
        return self["used"] + self["quarantined"] + self["deduplicated"]

    def to_json(self) -> str:
        """A JSON object with sorted names."""
        return json.dumps(self, sort_keys=True)


def output_schema(value: pa.DataType, quarantined: pa.DataType) -> pa.Schema:
    """The schema of everything that the kernel gives back, for a stage with these `value` columns."""
    return pa.schema(
        [
            pa.field("kind", pa.int8()),
            pa.field("key", pa.string()),
            pa.field("ordinal", pa.int64()),  # emissions: their order within the key
            *POSITION,
            pa.field("timestamp", pa.int64()),
            pa.field("source", pa.string()),
            pa.field("reason", pa.string()),
            pa.field("counts", pa.string()),
            pa.field("value", value),
            pa.field("emitted", value),
            pa.field("input", quarantined),
        ]
    )


def fill(schema: pa.Schema, kind: int, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    """A batch of `schema` with these columns; every other column is null."""
    given = {"kind": pa.repeat(pa.scalar(kind, pa.int8()), rows), **columns}
    arrays = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
