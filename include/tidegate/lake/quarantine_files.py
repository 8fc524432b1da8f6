"""The columns of quarantine, and a reader by row groups: narrow columns decide which rows are requested, and
values are read only of row groups that have such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.formats.whole import HEADERS
from tidegate.lake.datafile import data_errors, open_data
from tidegate.lake.evolution import conformed
from tidegate.lake.manifest import DataFile
from tidegate.lake.store import Store

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
    ]
)
"""A record that could not be used, whole; `timestamp` is epoch ms, null if the record has none. `part` and
`recorded` are as in `formats.INPUT`; older files do not have `recorded`.
"""

POSITION = ("topic", "partition", "offset")
IDENTITY = (*POSITION, "part", "seq")
"""The identity of a record in quarantine: it may be there twice, from its own batch and from a replay."""
_ROW = pa.field("row", pa.int64())
_BOUNDED = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class RowCondition:
    """A condition on rows of a quarantine: requested are the rows that meet all of its parts; an empty part,
    or None, accepts any row.

    `reasons` are reasons without their detail. `since_ms` is the first timestamp (epoch ms), `until_ms` the
    first one after the interval: a row without a timestamp is in no interval.

    Example: `RowCondition(reasons=frozenset({"malformed"}), topics=frozenset({"orders"}))`.
    """

    reasons: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    offset: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `mask` reads."""
        is_timed = self.since_ms is not None or self.until_ms is not None
        used = {"reason": self.reasons, "topic": self.topics, "partition": self.partitions}
        compared = {"timestamp": is_timed, "offset": self.offset is not None}
        return tuple(name for name, values in {**used, **compared}.items() if values)

    def mask(self, rows: pa.Table) -> pa.ChunkedArray | None:
        """Return whether each row is requested; None: all rows are."""
        tests = [
            pc.is_in(values, value_set=pa.array(sorted(allowed), values.type))
            for values, allowed in self._listed(rows)
        ]
        if self.since_ms is not None:
            tests.append(pc.fill_null(pc.greater_equal(rows["timestamp"], self.since_ms), False))
        if self.until_ms is not None:
            tests.append(pc.fill_null(pc.less(rows["timestamp"], self.until_ms), False))
        if self.offset is not None:
            tests.append(pc.equal(rows["offset"], self.offset))
        mask = None
        for test in tests:
            mask = test if mask is None else pc.and_(mask, test)
        return mask

    def _listed(self, rows: pa.Table) -> Iterator[tuple[pa.ChunkedArray, frozenset[str] | frozenset[int]]]:
        if self.reasons:
            yield reason_codes(rows["reason"]), self.reasons
        if self.topics:
            yield rows["topic"], self.topics
        if self.partitions:
            yield rows["partition"], self.partitions

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

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return int(self.parquet.metadata.row_group(self.number).num_rows)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns of its rows; a column that the file does not have is null. Raises LakeDamaged,
        LakeUnavailable.
        """
        stored = [name for name in columns if name in self.parquet.schema_arrow.names]
        with data_errors(self.store, self.file):
            rows = self.parquet.read_row_group(self.number, columns=stored, use_threads=False)
        return conformed(rows, pa.schema([QUARANTINE.field(name) for name in columns]))

    def matching(self, condition: RowCondition, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the requested rows, and `row`: their numbers in the row group.

        Columns that the condition does not compare are read only if it leaves a row. Raises LakeDamaged,
        LakeUnavailable.
        """
        compared = self.read(condition.columns)
        mask = condition.mask(compared)
        if mask is not None and not pc.any(mask).as_py():
            return pa.schema([*(QUARANTINE.field(name) for name in columns), _ROW]).empty_table()
        remaining = self.read([name for name in columns if name not in condition.columns])
        parts = [remaining[name] if name in remaining.column_names else compared[name] for name in columns]
        rows = pa.table([*parts, pa.array(range(self.rows), pa.int64())], [*columns, _ROW.name])
        return rows if mask is None else rows.filter(mask)


def row_groups(store: Store, file: DataFile, condition: RowCondition) -> Iterator[RowGroup]:
    """Yield the row groups of a quarantine file that may have requested rows.

    You can read a row group until you take the next one. Raises LakeDamaged, LakeUnavailable.
    """
    with open_data(store, file) as parquet:
        for number in range(parquet.metadata.num_row_groups):
            if condition.may_hold(parquet.metadata.row_group(number)):
                yield RowGroup(store, file, parquet, number)


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
