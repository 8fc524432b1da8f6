"""Read the planned records of Kafka as a frame, decoded by the task that reads them."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from tidegate.failpoints import failpoint
from tidegate.formats import FrameDecoder, Header, RecordLayout, Records
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import Slice, read_slice
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.field_counts import FieldCounter
from tidegate.spark.reports import SliceReport, rows_of
from tidegate.spark.shuffle import REPORT, SLOT
from tidegate.spark.stream_time import times_before

if TYPE_CHECKING:
    from tidegate.ledger.records import OffsetRange

Times = Mapping[tuple[str, int], int]
"""(topic, partition) -> stream time, epoch ms."""

_LEAST_SLICE = 200_000
"""The smallest slice in offsets: each slice costs a connection."""
_TASKS_PER_CORE = 4
"""So that a slow task does not leave the other cores without work for long."""


@dataclass(frozen=True)
class Decoding:
    """The parameters by which records become rows: see `FrameDecoder`.

    Args:
        layout: the layout of the source's records.
        believed_until_ms: a record with a later timestamp goes to quarantine, epoch ms.
        keeps_input: whether a later pass can quarantine a record, so that it travels whole.
    """

    layout: RecordLayout
    believed_until_ms: int
    keeps_input: bool
    unkeyed_columns: tuple[str, ...] = ()
    """If repeated values are dropped: the columns in which a null makes a record unique."""

    def decoder(self) -> FrameDecoder:
        """Return a new decoder for a task."""
        return FrameDecoder(self.layout, self.believed_until_ms, self.keeps_input)


class RecordSource(Protocol):
    """A source of a batch's records."""

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return the slices to read side by side on `cores` cores. `timed`: one slice per topic-partition."""


class RecordSlice(Protocol):
    """Records of one topic-partition. It can be pickled, and gives the same records when it is read again."""

    @property
    def range(self) -> Slice:
        """The offsets of the records."""

    def blocks(self) -> Iterator[Records]:
        """Yield the records, in order."""


@dataclass(frozen=True)
class KafkaSource:
    """Planned ranges of Kafka's topics, which librdkafka reads in the workers."""

    kafka: KafkaConfig
    ranges: tuple[OffsetRange, ...]

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return slices of the planned ranges. Large ranges are cut, so that each core has work."""
        return [KafkaSlice(self.kafka, slice_) for slice_ in slices_of(self.ranges, timed, cores)]

    @property
    def span(self) -> int:
        """The number of offsets in all ranges."""
        return sum(planned.span for planned in self.ranges)

    def halves(self) -> tuple[KafkaSource, KafkaSource]:
        """Return two sources with half of the offsets each, in the order of the ranges."""
        first, second, room = [], [], self.span // 2
        for planned in self.ranges:
            middle = planned.start + min(room, planned.span)
            first.append(replace(planned, end=middle))
            second.append(replace(planned, start=middle))
            room -= middle - planned.start
        return self._with(first), self._with(second)

    def _with(self, ranges: Sequence[OffsetRange]) -> KafkaSource:
        return replace(self, ranges=tuple(planned for planned in ranges if planned.span))


@dataclass(frozen=True)
class KafkaSlice:
    """A slice that librdkafka reads, with committed records only. Raises as `read_slice`."""

    kafka: KafkaConfig
    range: Slice

    def blocks(self) -> Iterator[Records]:
        """Yield the slice's records as `read_slice` delivers them."""
        for block in read_slice(self.kafka, self.range):
            yield Records(
                self.range.topic,
                self.range.partition,
                [message.offset() or 0 for message in block],
                [message.timestamp()[1] for message in block],
                [message.key() for message in block],
                [message.value() for message in block],
                [_headers(message) for message in block],
            )


def _headers(message: Message) -> list[Header] | None:
    headers = message.headers()
    assert not isinstance(headers, dict), "a record that was read has a list"
    return headers  # type: ignore[return-value]  # their values are bytes where they were read


@dataclass(frozen=True)
class SliceReader:
    """Reads a slice in a worker: its rows, and a report for each task of the first stage.

    Args:
        slice: the records.
        decoding: how records become rows.
        start_time: the partition's stream time before the slice, epoch ms; None: time is not kept.
        slots: the number of tasks of the first stage.
    """

    slice: RecordSlice
    decoding: Decoding
    start_time: int | None
    slots: int

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            with failpoint("compute.read"):
                decoder = self.decoding.decoder()
            schema = source_schema(decoder.schema, self.start_time is not None)
            tally = _Tally(self.start_time, FieldCounter(self.decoding.layout))
            for block in self.slice.blocks():
                tally.add_records(block)
                for rows in decoder.decode(block):
                    tally.add_rows(rows, self.decoding.unkeyed_columns)
                    yield _as(schema, rows, tally.before)
            # Only now the end of its time is known; the shuffle sorts the report to the front all the same.
            yield from rows_of([tally.report(self.slice.range)], schema, self.slots)


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
    """Return the columns of the source's frame."""
    time = [pa.field("__time", pa.int64())] if timed else []
    return pa.schema([*decoded, *time, pa.field(REPORT, pa.string()), pa.field(SLOT, pa.int32())])


def slices_of(ranges: Sequence[OffsetRange], timed: bool, parallelism: int) -> list[Slice]:
    """Return the slices to read side by side. If time is kept, each topic-partition is one slice.

    Otherwise large ranges are cut, so that each core has work.

    Example: a range of 1,000,000 offsets and a parallelism of 4 give four slices of 250,000.
    """
    size = max(math.ceil(sum(range_.span for range_ in ranges) / max(parallelism, 1)), _LEAST_SLICE)
    slices = []
    for range_ in ranges:
        pieces = 1 if timed else max(1, round(range_.span / size))
        bounds = [range_.start + range_.span * piece // pieces for piece in range(pieces + 1)]
        slices += [
            Slice(range_.topic, range_.partition, first, end)
            for first, end in itertools.pairwise(bounds)
            if end > first
        ]
    return slices


class _Tally:
    """The counts of a slice so far."""

    def __init__(self, start_time: int | None, fields: FieldCounter) -> None:
        self._time = start_time
        self._fields = fields
        self._records = self._rows = self._empty = self._unkeyed = 0
        self.before: pa.Int64Array | None = None
        """The stream time before each row of the last rows; None: time is not kept."""

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
        if unkeyed_columns:
            self._unkeyed += _unkeyed(rows, unkeyed_columns)
        if self._time is not None:
            usable = rows.column("__reason").is_null()
            before, self._time = times_before(rows.column("__timestamp"), usable, self._time)
            self.before = pa.array(before)

    def report(self, slice_: Slice) -> SliceReport:
        """Return the counts and the time so far as the slice's report."""
        return SliceReport(
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
        )


def _unkeyed(rows: pa.RecordBatch, columns: Sequence[str]) -> int:
    """Return the number of rows that nothing can repeat: deletions, and usable rows with a null
    in a column.
    """
    null = pa.repeat(False, rows.num_rows)
    for name in columns:
        null = pc.or_(null, rows.column(name).is_null())
    own = pc.or_(rows.column("__tombstone"), pc.and_(rows.column("__reason").is_null(), null))
    return pc.sum(pc.and_(own, pc.invert(rows.column("__empty")))).as_py() or 0


def _as(schema: pa.Schema, rows: pa.RecordBatch, before: pa.Int64Array | None) -> pa.RecordBatch:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    if before is not None:
        columns["__time"] = before
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
