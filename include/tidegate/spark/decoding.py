"""Decode the planned records in the tasks that read them, and count their fields.

The counts reveal a typo in `columns`, or a field that records do not have. Values are counted in all records.
Undeclared fields are counted in a sample, the first records of each block, and in JSON only: a full count
would decode each record twice.
"""

from __future__ import annotations

import gc
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.failpoints import failpoint
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.records import REMOVED, array_at
from tidegate.formats.registry import formats
from tidegate.garbage import not_collected
from tidegate.kafka.records import Slice
from tidegate.kernel import Counts
from tidegate.spark import row_batches
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.row_batches import RowBatches
from tidegate.spark.shuffle import (
    REPORT,
    TO,
    Report,
    SliceReport,
    columns_of,
    in_schema,
    rows_of,
    times_before,
)
from tidegate.spark.source_rows import RecordRows, for_passes

if TYPE_CHECKING:
    from tidegate.spark.source import RecordSlice

_TASKS_PER_CORE = 4
"""So that a slow task does not leave the other cores without work for long."""
_BLOCKS_PER_SEARCH = 16
"""The blocks after which garbage is searched for. After each of them, it took an eighth of reading."""
SAMPLED_PER_BLOCK = 100
"""The records that are sampled of a block of some thousands, which takes 0.1 ms."""
MOST_FIELDS = 20
"""The number of undeclared fields that are reported, the most frequent ones."""


@dataclass(frozen=True)
class Decoding:
    """The parameters by which records become rows: see `FrameDecoder`.

    Args:
        source: the name of the source.
        layout: the layout of its records.
        believed_until_ms: a record with a later timestamp goes to quarantine, epoch ms.
        keeps_input: whether a later pass can quarantine a record, so that it travels whole.
    """

    source: str
    layout: RecordLayout
    believed_until_ms: int
    keeps_input: bool
    unkeyed_columns: tuple[str, ...] = ()
    """If repeated values are dropped: the columns in which a null makes a record unique."""

    def decoder(self) -> FrameDecoder:
        """Return a new decoder for a task."""
        return FrameDecoder(self.layout, self.believed_until_ms, self.keeps_input)


@dataclass(frozen=True)
class SliceReader:
    """Reads a slice in a worker: its rows, and a report for each task of the first level.

    Args:
        slice: the records.
        decoding: how records become rows.
        start_time: the partition's stream time before the slice, epoch ms; None: time is not kept.
        tasks: the number of tasks of the first level, each of which gets the report.
        readers: the numbers of the passes of that level that read the slice's source.
        rows: makes the rows of these passes; None: Spark does, of the decoded records.
        shows_removed: records that the source's filter removes stay, as a trace needs them; otherwise they
            are only counted.
        row_batches: makes row batches of these rows; None: they go on as they are.
    """

    slice: RecordSlice
    decoding: Decoding
    start_time: int | None
    tasks: int
    readers: tuple[int, ...] = (0,)
    rows: RecordRows | None = None
    shows_removed: bool = False
    row_batches: RowBatches | None = None

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            with failpoint("compute.read"):
                decoder = self.decoding.decoder()
            tally = _Tally(self.start_time, FieldCounter(self.decoding.layout))
            decoded = self._decoded(decoder, tally)
            if self.rows is None:
                schema = source_schema(decoder.schema, self.start_time is not None)
                for batch in decoded:
                    for number, (rows, before) in for_passes(self.readers, *batch):
                        yield _as(schema, number, rows, before)
            else:
                schema, made = self.rows.schema, self.rows.of_slice(decoded, self.readers, tally.dropped)
                if self.row_batches is not None:
                    schema, made = row_batches.SCHEMA, self.row_batches(made)
                yield from made
            # Only now the end of its time is known; the shuffle sorts the report to the front all the same.
            yield from rows_of([tally.report(self.decoding.source, self.slice.range)], schema, self.tasks)

    def _decoded(
        self, decoder: FrameDecoder, tally: _Tally
    ) -> Iterator[tuple[pa.RecordBatch, pa.Int64Array | None]]:
        """Yield decoded rows, and the stream time before each of them."""
        # a block's records are many thousand objects, which Python would search through again and again
        with not_collected():
            for number, block in enumerate(self.slice.blocks(), start=1):
                tally.add_records(block)
                for rows in decoder.decode(block):
                    tally.add_rows(rows, self.decoding.unkeyed_columns)
                    yield self._present(rows, tally)
                # what is left of a block is little, but the search also goes through the block itself
                if number % _BLOCKS_PER_SEARCH == 0:
                    gc.collect(0)

    def _present(self, rows: pa.RecordBatch, tally: _Tally) -> tuple[pa.RecordBatch, pa.Int64Array | None]:
        """Return the rows that the source's filter does not remove, and the stream time before each."""
        if self.shows_removed or REMOVED not in rows.schema.names or not rows.column(REMOVED).true_count:
            return rows, tally.before
        tally.removed += rows.column(REMOVED).true_count
        present = pc.invert(rows.column(REMOVED))
        return rows.filter(present), None if tally.before is None else tally.before.filter(present)


@dataclass(frozen=True)
class SlicesReader:
    """Reads slices one after the other, in one task."""

    readers: tuple[SliceReader, ...]

    def __call__(self) -> Iterator[pa.RecordBatch]:
        for reader in self.readers:
            yield from reader()


def readers_of_tasks(readers: Sequence[SliceReader], cores: int) -> list[SlicesReader]:
    """Divide slices among tasks, the largest first, each to the task with the fewest offsets so far.

    A task costs more than a small slice, so there are no more than `_TASKS_PER_CORE` of them for each core.
    """
    tasks: list[list[SliceReader]] = [[] for _ in range(min(len(readers), cores * _TASKS_PER_CORE))]
    loads = [(0, number) for number in range(len(tasks))]
    for reader in sorted(readers, key=lambda reader: reader.slice.range.span, reverse=True):
        offsets, number = heapq.heappop(loads)
        tasks[number].append(reader)
        heapq.heappush(loads, (offsets + reader.slice.range.span, number))
    return [SlicesReader(tuple(task)) for task in tasks]


def source_schema(decoded: pa.Schema, timed: bool) -> pa.Schema:
    """Return the columns of a source's frame."""
    time = [pa.field("__time", pa.int64())] if timed else []
    return pa.schema([*decoded, *time, pa.field(REPORT, pa.string()), pa.field(TO, pa.int32())])


class _Tally:
    """The counts of a slice so far."""

    def __init__(self, start_time: int | None, fields: FieldCounter) -> None:
        self._time = start_time
        self._first: int | None = None
        self._fields = fields
        self._records = self._rows = self._empty = self._unkeyed = 0
        self._unusable = self._deletions = 0
        self.before: pa.Int64Array | None = None
        """The stream time before each row of the last rows; None: time is not kept."""
        self.removed = 0
        """The rows that the source's filter removes."""
        self.dropped: defaultdict[str, Counts] = defaultdict(Counts)
        """Stage -> what became of its records that are not rows: repetitions, and those that a filter
        removes.
        """

    def add_records(self, block: Records) -> None:
        """Count records of Kafka."""
        self._records += len(block.offsets)
        self._fields.add_values(block.values)

    def add_rows(self, rows: pa.RecordBatch, unkeyed_columns: Sequence[str]) -> None:
        """Count decoded rows; quarantined rows do not advance time."""
        empty = rows.column("__empty")
        self._rows += rows.num_rows
        self._fields.add_rows(rows)
        self._empty += pc.sum(empty).as_py() or 0
        usable = rows.column("__reason").is_null()
        self._unusable += usable.false_count
        self._deletions += pc.and_not(pc.and_(usable, rows.column("__tombstone")), empty).true_count
        if unkeyed_columns:
            self._unkeyed += _unkeyed(rows, unkeyed_columns)
        if self._time is not None:
            before, self._time = times_before(rows.column("__timestamp"), usable, self._time)
            if self._first is None:
                timestamps = rows.column("__timestamp").filter(usable)
                self._first = timestamps[0].as_py() if len(timestamps) else None
            self.before = pa.array(before)

    def report(self, source: str, slice_: Slice) -> SliceReport:
        """Return the counts and the time so far as the report of a slice of a source."""
        return SliceReport(
            source,
            slice_.topic,
            slice_.partition,
            slice_.start,
            records=self._records,
            rows=self._rows,
            empty=self._empty,
            unkeyed=self._unkeyed,
            time=self._time,
            usable=self._fields.usable,
            filled=dict(self._fields.filled),
            undeclared=self._fields.undeclared,
            sampled=self._fields.sampled,
            unusable=self._unusable,
            deletions=self._deletions,
            removed=self.removed,
            dropped={stage: dict(counts) for stage, counts in self.dropped.items()},
            first=self._first,
        )


def _unkeyed(rows: pa.RecordBatch, columns: Sequence[str]) -> int:
    """Return the number of rows that nothing can repeat: deletions, and usable rows with a null
    in a column.
    """
    null = pa.repeat(False, rows.num_rows)
    for name in columns:
        null = pc.or_(null, array_at(rows, name).is_null())
    own = pc.or_(rows.column("__tombstone"), pc.and_(rows.column("__reason").is_null(), null))
    if REMOVED in rows.schema.names:
        own = pc.and_not(own, rows.column(REMOVED))
    return pc.sum(pc.and_not(own, rows.column("__empty"))).as_py() or 0


def _as(schema: pa.Schema, number: int, rows: pa.RecordBatch, before: pa.Int64Array | None) -> pa.RecordBatch:
    """Return decoded rows for the pass with this number."""
    added = {TO: pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)}
    if before is not None:
        added["__time"] = before
    return in_schema(columns_of(rows) | added, schema, rows.num_rows)


class FieldCounter:
    """Counts the fields of one slice."""

    def __init__(self, layout: RecordLayout) -> None:
        format_ = formats()[layout.format]
        self._columns = layout.columns.names
        is_row = not format_.has_envelope and format_.of_records is None
        self._is_sampled = format_.is_json and is_row
        # Records from before a column was renamed have its older name, which is no typo.
        older = (name for names in layout.aliases.values() for name in names)
        self._declared = {*self._columns, *older}
        self.usable = self.sampled = 0
        self.filled, self._undeclared = Counter[str](), Counter[str]()

    def add_values(self, values: Sequence[bytes | None]) -> None:
        """Count the fields of some records of a block."""
        if not self._is_sampled:
            return
        # not a constant: the kill matrix sends this module to workers whole, and a decoder cannot be pickled
        decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        for value in islice((value for value in values if value is not None), SAMPLED_PER_BLOCK):
            try:
                fields = decoder.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # it is quarantined with its reason
            self.sampled += 1
            self._undeclared.update(fields.keys() - self._declared)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Count the values of the declared columns."""
        usable = pc.and_(rows.column("__reason").is_null(), pc.invert(rows.column("__tombstone")))
        self.usable += pc.sum(usable).as_py() or 0
        for name in self._columns:
            column = rows.column(name)
            self.filled[name] += len(column) - column.null_count

    @property
    def undeclared(self) -> dict[str, int]:
        """Field -> sampled records that have it, the most frequent ones."""
        return dict(self._undeclared.most_common(MOST_FIELDS))


def source_counts(reports: Iterable[Report]) -> dict[str, Counter[str]]:
    """Return the counts of the slices of each source together, as the two stages that `ledger.report` reads.

    A source without a usable record has none.
    """
    slices = [report for report in reports if isinstance(report, SliceReport)]
    usable = {slice_.source for slice_ in slices if slice_.usable}
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for slice_ in slices:
        if slice_.source in usable:
            columns, fields = (counts[f"{slice_.source}:{what}"] for what in ("columns", "fields"))
            for name, number in slice_.filled.items():
                columns[name] += number
            fields.update(slice_.undeclared)
            fields[""] += slice_.sampled
    return dict(counts)
