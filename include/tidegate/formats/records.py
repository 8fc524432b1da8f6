"""Records of Kafka as they are consumed, the layout that a source declares for them, and their way into
quarantine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tidegate.formats.csv import DEFAULT_DIALECT, CsvDialect
from tidegate.formats.schemas import SourceSchemas

Header = tuple[str, bytes | None]
SOURCE_HEADER = "tidegate-source"
"""The header that has a record's source chain: `topic/partition/offset` joined by `;`, oldest first."""
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


@dataclass(frozen=True)
class Records:
    """Records of one topic-partition, in the order of their offsets.

    Args:
        timestamps: Epoch ms.
        parts: For replayed records: the index of the one element of the exploded list that is replayed; None:
            all.
        replayed_from: The topic that comes first in the source chains of replayed records; None for other
            records.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header] | None]
    parts: Sequence[int | None] | None = None
    replayed_from: str | None = None


@dataclass(frozen=True)
class SequenceParts:
    """The parts of a change's sequence, the most significant first.

    Args:
        columns: Columns of the row.
        of_source: For Debezium, fields of `source`, with their types.
    """

    columns: tuple[str, ...] = ()
    of_source: pa.Schema | None = None


@dataclass(frozen=True)
class RecordLayout:
    """The layout of a source's records, in Arrow's types. It can be pickled.

    Args:
        key: The columns of the key; empty for the record's own key.
        timestamp: A column of epoch ms or of timestamps; None for the record's own timestamp.
        explode: A column of lists, each of whose elements becomes a row. In `key` and `timestamp` it is the
            element.
        rooted: Whether source chains must begin with a position.
        schemas: The schemas of Avro, Protobuf and JSON; see `schemaful_decoder`.
        message: The Protobuf message; see `schemaful_decoder`.
        aliases: Column -> its names in older records, the newest first.
        csv: How rows of CSV are written.
        sequence: The parts that order the changes of a key.
        key_format: The format of the record's own key; `text` has no columns.
        key_columns: The columns that are read from the record's own key.
        key_schemas: The schemas of the record's own key.
    """

    format: str
    columns: pa.Schema
    key: tuple[str, ...] = ()
    timestamp: str | None = None
    explode: str | None = None
    rooted: bool = False
    schemas: SourceSchemas = field(default_factory=SourceSchemas)
    message: str | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    csv: CsvDialect = DEFAULT_DIALECT
    sequence: SequenceParts | None = None
    key_format: str = "text"
    key_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    key_schemas: SourceSchemas = field(default_factory=SourceSchemas)
    row_columns: pa.Schema = field(init=False)
    """The columns of a row: `columns`, with the element in place of an exploded list, and those of the
    record's own key.
    """

    def __post_init__(self) -> None:
        """Derive the columns of rows."""
        columns = [
            column.with_type(column.type.value_type) if column.name == self.explode else column
            for column in self.columns
        ]
        object.__setattr__(self, "row_columns", pa.schema([*columns, *self.key_columns]))


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
