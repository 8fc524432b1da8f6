"""`source.metadata` and `source.headers`: what Kafka stores beside a record's value, as columns; and columns
as headers of messages.

The names and types are those of Spark's Kafka source, but for `key`, which is text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.csv import column_of
from tidegate.formats.decoded import Reason
from tidegate.formats.text import NOT_UTF8, texts_of
from tidegate.kernel.json_text import json_texts

if TYPE_CHECKING:
    from tidegate.formats.records import Records

Header = tuple[str, bytes | None]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""A record's headers in their order. Names can repeat."""
TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""Kafka's names of librdkafka's numbers 0, 1 and 2."""
CREATE_TIME = 1
_LATEST_MS = 253_402_300_799_999
_INSTANT = pa.timestamp("us", "UTC")


def _topic(records: Records) -> pa.Array:
    return pa.repeat(pa.scalar(records.topic), len(records.offsets))


def _partition(records: Records) -> pa.Array:
    return pa.repeat(pa.scalar(records.partition, pa.int32()), len(records.offsets))


def _timestamp(records: Records) -> pa.Array:
    """Return the records' own timestamps; null for a record without one, which librdkafka gives as -1, or
    with one after the year 9999, which no `timestamp` can have.
    """
    milliseconds = np.array(records.timestamps, np.int64)
    unusable = (milliseconds < 0) | (milliseconds > _LATEST_MS)
    return pa.array(np.where(unusable, 0, milliseconds) * 1000, mask=unusable).cast(_INSTANT)


def _timestamp_type(records: Records) -> pa.Array:
    types = records.timestamp_types
    if types is None:
        return pa.repeat(pa.scalar(TIMESTAMP_TYPES[CREATE_TIME]), len(records.offsets))
    return pa.array([None if type_ is None else TIMESTAMP_TYPES[type_] for type_ in types], pa.string())


def _headers(records: Records) -> pa.Array:
    # as in Spark, null if a record has none
    return pa.array([headers or None for headers in records.headers], HEADERS)


@dataclass(frozen=True)
class MetadataField:
    """A field that each record of Kafka has: its type, and how it is read from records."""

    type: pa.DataType
    of_records: Callable[[Records], pa.Array]


METADATA: Mapping[str, MetadataField] = {
    "topic": MetadataField(pa.string(), _topic),
    "partition": MetadataField(pa.int32(), _partition),
    "offset": MetadataField(pa.int64(), lambda records: pa.array(records.offsets, pa.int64())),
    "timestamp": MetadataField(_INSTANT, _timestamp),
    "timestamp_type": MetadataField(pa.string(), _timestamp_type),
    "key": MetadataField(pa.string(), lambda records: texts_of(records.keys)[0]),
    "headers": MetadataField(HEADERS, _headers),
}
"""Name in a pipeline file -> the field. A key that is not UTF-8 is null, and makes the record unusable."""


@dataclass(frozen=True)
class RecordMetadata:
    """The columns that a source reads beside the value. They exist for tombstones, too.

    Args:
        fields: Column -> the name in METADATA.
        headers: Column -> the name of the header and the type of the column.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, tuple[str, pa.DataType]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The columns, those of headers last."""
        fields = [(column, METADATA[name].type) for column, name in self.fields.items()]
        return pa.schema([*fields, *((column, type_) for column, (_, type_) in self.headers.items())])

    def read(self, records: Records) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Return the columns, and row -> why one of its headers, or its key as a column, cannot be used."""
        columns = {column: METADATA[name].of_records(records) for column, name in self.fields.items()}
        reasons: dict[int, str] = {}
        if "key" in self.fields.values():
            reasons |= dict.fromkeys(texts_of(records.keys)[1], str(Reason.KEY_NOT_TEXT))
        # of a name that repeats, `dict` has the last header, as Kafka's `lastHeader`
        by_name = [dict(headers or ()) for headers in records.headers] if self.headers else []
        for column, (name, type_) in self.headers.items():
            values = [headers.get(name) for headers in by_name]
            columns[column], faults = _header_column(values, pa.field(name, type_))
            for row, reason in faults.items():
                reasons.setdefault(row, reason)
        return columns, reasons


def _header_column(values: Sequence[bytes | None], header: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """Return the values of a header as a column: bytes as they are, or text that is written as in CSV."""
    if pa.types.is_binary(header.type):
        return pa.array(values, header.type), {}
    texts, not_text = texts_of(values)
    faults = dict.fromkeys(not_text, f"{NOT_UTF8} - at `{header.name}`")
    column = column_of(texts, header, faults)
    prefix = f"{Reason.MALFORMED}: "
    return column, {
        row: f"{Reason.MALFORMED_HEADER}: {why.removeprefix(prefix)}" for row, why in faults.items()
    }


def header_contents(column: pa.Array) -> pa.BinaryArray:
    """Return a column of single values as contents of headers, in the form that `source.headers` reads.

    Texts are in UTF-8, and bytes as they are; null is null.

    Example: the int 7 is `7`, and an instant `2026-01-31T10:30:00.000000Z`.
    """
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    # times and NaN are quoted in JSON
    return pc.utf8_trim(json_texts(column), '"').view(pa.binary())
