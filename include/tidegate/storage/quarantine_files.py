"""The columns of quarantine's files, and a reader by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.formats import EMISSION, INPUT, unpack_headers
from tidegate.formats.metadata import HEADERS
from tidegate.kernel.json_text import json_texts
from tidegate.storage.datafile import data_errors, open_data
from tidegate.storage.evolution import conformed
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import KEY, SOURCE, TIMESTAMP, VALUE
from tidegate.storage.store import Store

QUARANTINE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("reason", pa.string()),
        ("seq", pa.int64()),
        ("part", pa.int32()),
        ("recorded", pa.int64()),
        ("timestamp_type", pa.int8()),
    ]
)
"""A record that could not be used, whole; `timestamp` is epoch ms, null if the record has none. `part`,
`recorded` and `timestamp_type` are as in `formats.INPUT`; older files do not have the last two.
"""

POSITION = ("topic", "partition", "offset")
IDENTITY = (*POSITION, "part", "seq")
"""The identity of a record in quarantine: it may be there twice, from its own batch and from a replay."""
OUTBOX_COLUMNS = (KEY, VALUE, TIMESTAMP, SOURCE)
"""The columns of an outbox that quarantine has of an emission."""
_HOPS = r"^(?:(?P<source>.*);)?(?P<topic>[^;/]*)/(?P<partition>\d+)/(?P<offset>\d+)$"
"""The chain of an emission in the outbox: the chain of its record, and the record's position."""
_BOUNDED = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class RowBounds:
    """The values of requested rows, by which row groups are skipped; an empty part, or None, accepts any.

    `since_ms` is the first timestamp (epoch ms), `until_ms` the first one after the interval: a row without a
    timestamp is in no interval.

    Example: `RowBounds(topics=frozenset({"orders"}), offset=17)`.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    offset: int | None = None

    def may_hold(self, group: pq.RowGroupMetaData) -> bool:
        """Return whether a row group can have a requested row, by its least and largest values."""
        # Statistics are optional in Parquet: without bounds the row group is read.
        bounds = _bounds(group)
        if "timestamp" in bounds:
            least, most = bounds["timestamp"]
            if self.since_ms is not None and most < self.since_ms:
                return False
            if self.until_ms is not None and least >= self.until_ms:
                return False
        if self.offset is not None and "offset" in bounds:
            least, most = bounds["offset"]
            if not least <= self.offset <= most:
                return False
        listed = (("topic", self.topics), ("partition", self.partitions))
        return all(
            not allowed or name not in bounds or any(bounds[name][0] <= x <= bounds[name][1] for x in allowed)
            for name, allowed in listed
        )


@dataclass(frozen=True)
class RowGroup:
    """A row group of an open quarantine file. Its methods that read raise LakeDamaged, LakeUnavailable."""

    store: Store
    file: DataFile
    parquet: pq.ParquetFile
    number: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns of its rows; a column that the file does not have is null. Raises LakeDamaged,
        LakeUnavailable.
        """
        # Older files lack newer columns; `conformed` fills them with nulls.
        stored = [name for name in columns if name in self.parquet.schema_arrow.names]
        with data_errors(self.store, self.file):
            rows = self.parquet.read_row_group(self.number, columns=stored, use_threads=False)
        return conformed(rows, pa.schema([QUARANTINE.field(name) for name in columns]))


def row_groups(store: Store, file: DataFile, bounds: RowBounds) -> Iterator[RowGroup]:
    """Yield the row groups of a quarantine file that may have requested rows.

    You can read a row group until you take the next one. Raises LakeDamaged, LakeUnavailable.
    """
    with open_data(store, file) as parquet:
        for number in range(parquet.metadata.num_row_groups):
            if bounds.may_hold(parquet.metadata.row_group(number)):
                yield RowGroup(store, file, parquet, number)


def read_group(store: Store, file: DataFile, number: int) -> pa.Table:
    """Return all columns of one row group. Raises LakeDamaged, LakeUnavailable."""
    with open_data(store, file) as parquet:
        return RowGroup(store, file, parquet, number).read(QUARANTINE.names)


def quarantine_rows(rows: pa.RecordBatch, inputs: pa.StructArray, seq: int) -> pa.RecordBatch:
    """Return unusable input, whole, in the form of quarantine. `inputs` is its `input`."""
    columns = {name: rows.column(name) for name in ("topic", "partition", "offset", "timestamp")}
    columns |= {name: pc.struct_field(inputs, name) for name in INPUT.names}
    columns["headers"] = unpack_headers(columns["headers"])
    columns["seq"] = pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_pydict(columns, schema=QUARANTINE)


def refused_input(rows: pa.RecordBatch, reasons: pa.StringArray) -> pa.StructArray:
    """Return rows of keys and values that are not sent, in the form of unusable input (`formats.INPUT`).

    Args:
        rows: rows of the outbox.
        reasons: why each of them is not sent.
    """
    columns = [
        rows.column(KEY).cast(pa.binary()),
        json_texts(rows.column(VALUE)).cast(pa.binary()),
        pa.nulls(rows.num_rows, pa.binary()),
        reasons,
        pa.repeat(pa.scalar(EMISSION, pa.int32()), rows.num_rows),
        pa.nulls(rows.num_rows, pa.int64()),
        pa.nulls(rows.num_rows, pa.int8()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(INPUT))


def quarantined_emissions(rows: pa.RecordBatch, reasons: pa.StringArray, seq: int) -> pa.RecordBatch:
    """Return rows of an outbox that a sink refuses, in the form of quarantine.

    Args:
        rows: rows with the columns `OUTBOX_COLUMNS`.
        reasons: why each of them is refused.
        seq: the batch.
    """
    hops = last_hops(rows.column(SOURCE))
    places = {name: pc.struct_field(hops, name) for name in POSITION}
    placed = pa.RecordBatch.from_pydict({**places, TIMESTAMP: rows.column(TIMESTAMP)})
    return quarantine_rows(placed, refused_input(rows, reasons), seq)


def last_hops(chains: pa.StringArray) -> pa.StructArray:
    """Return the last position of each chain, and `source`, the chain before it.

    Example: `orders/0/7;totals/1/3` gives topic `totals`, partition 1, offset 3, and source `orders/0/7`.
    """
    hops = pc.extract_regex(chains, _HOPS)
    source = pc.struct_field(hops, "source")
    columns = [pc.struct_field(hops, name) for name in POSITION]
    types = [QUARANTINE.field(name).type for name in POSITION]
    numbers = [column.cast(type_) for column, type_ in zip(columns, types, strict=True)]
    whole = pc.if_else(pc.equal(source, ""), None, source)
    return pa.StructArray.from_arrays([*numbers, whole], [*POSITION, "source"])


def reason_codes(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return reasons without their detail: `malformed: Expected …` is `malformed`."""
    return pc.list_element(pc.split_pattern(reasons, ":", max_splits=1), 0)


def reason_details(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the text behind the colon of each reason; null if there is none."""
    details = pc.replace_substring_regex(reasons, r"(?s)\A[^:]*:\s?", "")
    return pc.if_else(pc.equal(details, reasons), pa.scalar(None, pa.string()), details)


def _bounds(group: pq.RowGroupMetaData) -> dict[str, tuple[Any, Any]]:
    """Return column -> its least and largest value, for columns whose footer has them."""
    bounds = {}
    for number in range(group.num_columns):
        column = group.column(number)
        statistics = column.statistics if column.path_in_schema in _BOUNDED else None
        if statistics is not None and statistics.has_min_max:
            bounds[column.path_in_schema] = (statistics.min, statistics.max)
    return bounds
