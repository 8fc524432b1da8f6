"""Records of Kafka as they come, and what a source says they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from tidegate.formats.csv import DEFAULT_DIALECT, CsvDialect
from tidegate.schemas.pinned import SourceSchemas

Header = tuple[str, bytes | None]
SOURCE_HEADER = "tidegate-source"
"""The header that has a record's source chain: `topic/partition/offset` joined by `;`, oldest first."""


@dataclass(frozen=True)
class Records:
    """Records of one topic-partition, in the order of their offsets. Timestamps are epoch ms.

    `parts`, of records that were in quarantine: the place of the one element of the exploded list that is
    meant; None: all. `replayed_from`: the topic that stands first in their chains; None: none does.
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
    """The parts of a change's sequence, the most significant first: columns of its row, or, of Debezium,
    fields of `source` in Arrow's types.
    """

    columns: tuple[str, ...] = ()
    of_source: pa.Schema | None = None


@dataclass(frozen=True)
class RecordLayout:
    """What the records of a source are made of, in Arrow's types. It can be pickled.

    `key`: the columns of the key, none for the record's own. `timestamp`: a column of epoch ms or of
    timestamps, none for the record's own. `explode`: a column of lists, each of whose elements becomes a row;
    in `key` and `timestamp` that column is the element. `rooted`: source chains begin with a position.
    `schemas`, `message`: of Avro and Protobuf, see `schemaful_decoder`. `csv`: how rows of CSV are written.
    `aliases`: the older names that columns have in records, the newest first. `sequence`: what tells a
    change's place in the order of its key's changes. `key_columns` are read from the record's own key, in
    `key_format`, by `key_schemas`; `text` has none.
    """

    format: Literal["json", "debezium", "string", "bytes", "avro", "protobuf", "csv"]
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
    key_format: Literal["text", "json", "avro", "protobuf"] = "text"
    key_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    key_schemas: SourceSchemas = field(default_factory=SourceSchemas)
    row_columns: pa.Schema = field(init=False)
    """The columns of a row: `columns`, with the element in place of the list that is exploded, and those of
    the record's own key.
    """

    def __post_init__(self) -> None:
        """Derive the columns of rows."""
        columns = [
            column.with_type(column.type.value_type) if column.name == self.explode else column
            for column in self.columns
        ]
        object.__setattr__(self, "row_columns", pa.schema([*columns, *self.key_columns]))
