"""Sources of a batch's records: planned ranges of Kafka, or rows of quarantine that a replay reads; and
Arrow batches that Python yields in Spark's workers, as a frame.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidegate.formats import Header, Records
from tidegate.formats.records import replayed_topic
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import MOST_RECORDS, Slice, read_slice
from tidegate.storage.manifest import DataFile
from tidegate.storage.quarantine_files import RowBounds, row_groups
from tidegate.storage.store import Store

if TYPE_CHECKING:
    from tidegate.ledger.records import OffsetRange

_LEAST_SLICE = 200_000
"""The smallest slice in offsets: each slice costs a connection."""
_REPLAYED_COLUMNS = (
    *("offset", "timestamp", "recorded", "timestamp_type", "key", "value", "headers", "part"),
)
_NO_TIMESTAMP = -1
"""Kafka's timestamp of a record without one."""
ReadPart = Callable[[], Iterator[pa.RecordBatch]]
"""Yields a part's batches. It can be pickled, and yields the same batches when it is called again."""


class RecordSource(Protocol):
    """A source of a batch's records."""

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return the slices to read side by side.

        Args:
            timed: whether a topic-partition is one slice.
            cores: the number of tasks that run at once.
        """


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


@dataclass(frozen=True)
class KafkaSlice:
    """A slice that librdkafka reads, with committed records only. Raises as `read_slice`."""

    kafka: KafkaConfig
    range: Slice

    def blocks(self) -> Iterator[Records]:
        """Yield the slice's records as `read_slice` delivers them."""
        for block in read_slice(self.kafka, self.range):
            # `map` with the class's own methods makes no bound method for each part of each record
            offsets: list[Any] = list(map(Message.offset, block))
            headers: list[Any] = list(map(Message.headers, block))
            timestamps: list[tuple[int, int]] = list(map(Message.timestamp, block))
            yield Records(
                self.range.topic,
                self.range.partition,
                offsets,
                [timestamp for _, timestamp in timestamps],
                list(map(Message.key, block)),
                list(map(Message.value, block)),
                headers,
                timestamp_types=[type_ for type_, _ in timestamps],
            )


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


@dataclass(frozen=True)
class ReplaySource:
    """A `RecordSource` of quarantine's rows.

    Args:
        store: the store of the lake.
        files: the files with the records, whole.
        seq: the batch that replays them.
    """

    store: Store
    files: tuple[DataFile, ...]
    seq: int

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return the slices of all files, as `RecordSource` requires. Without stream time, each row group is
        a slice.

        Raises LakeDamaged, LakeUnavailable.
        """
        slices: list[RecordSlice] = []
        for file in self.files:
            groups: dict[tuple[str, int], list[int]] = {}
            for group in row_groups(self.store, file, RowBounds()):
                places = group.read(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
                for place in places.to_pylist():
                    groups.setdefault((place["topic"], place["partition"]), []).append(group.number)
            for (topic, partition), numbers in sorted(groups.items()):
                # Stream time passes from each row to the next, so a partition with time is one slice.
                pieces = [tuple(numbers)] if timed else [(number,) for number in numbers]
                slices += [
                    ReplaySlice(self.store, file, self.seq, topic, partition, piece) for piece in pieces
                ]
        return slices


@dataclass(frozen=True)
class ReplaySlice:
    """The rows of a topic-partition in some row groups of a file. Raises LakeDamaged, LakeUnavailable."""

    store: Store
    file: DataFile
    seq: int
    topic: str
    partition: int
    groups: tuple[int, ...]

    @property
    def range(self) -> Slice:
        """The topic-partition. The offsets are 0, since those of replayed records are not one range."""
        return Slice(self.topic, self.partition, 0, 0)

    def blocks(self) -> Iterator[Records]:
        """Yield the rows as records, at most `MOST_RECORDS` at once. Raises LakeDamaged, LakeUnavailable."""
        place = RowBounds(topics=frozenset([self.topic]), partitions=frozenset([self.partition]))
        for group in row_groups(self.store, self.file, place):
            if group.number in self.groups:
                rows = group.read(("topic", "partition", *_REPLAYED_COLUMNS))
                is_here = (pc.equal(rows["topic"], self.topic), pc.equal(rows["partition"], self.partition))
                rows = rows.filter(pc.and_(*is_here))
                for start in range(0, rows.num_rows, MOST_RECORDS):
                    yield self._records(rows.slice(start, MOST_RECORDS))

    def _records(self, rows: pa.Table) -> Records:
        return Records(
            self.topic,
            self.partition,
            rows["offset"].to_pylist(),
            pc.coalesce(
                rows["recorded"], rows["timestamp"], pa.scalar(_NO_TIMESTAMP, pa.int64())
            ).to_pylist(),
            rows["key"].to_pylist(),
            rows["value"].to_pylist(),
            [_replayed_headers(headers) for headers in rows["headers"].to_pylist()],
            rows["part"].to_pylist(),
            replayed_topic(self.topic, self.seq),
            rows["timestamp_type"].to_pylist(),
        )


def _replayed_headers(headers: Sequence[dict[str, Any]] | None) -> list[Header] | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]


@dataclass(frozen=True, repr=False)
class _ReadParts:
    """A function for `mapInArrow`: numbers of parts in, their batches out."""

    parts: tuple[ReadPart, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from self.parts[number]()


def spark_types(schema: pa.Schema) -> StructType:
    """Return Arrow's columns as Spark's; a timestamp without a zone keeps that type.

    Example: `timestamp[us, tz=UTC]` becomes `timestamp`, and `timestamp[us]` becomes `timestamp_ntz`.
    """
    types: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return types


def frame_of(spark: SparkSession, schema: pa.Schema, parts: Sequence[ReadPart]) -> DataFrame:
    """Return a frame with one partition per part, each read by one task.

    PySpark's data source API is not used: it starts three more Python daemons, only to plan (decision 23).

    Args:
        spark: the session of the batch.
        schema: the columns of all batches that the parts yield.
        parts: the functions that yield the rows; they are pickled.
    """
    # One row per partition, so that Spark gives each part to a task of its own.
    numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
    return numbers.mapInArrow(_ReadParts(tuple(parts)), spark_types(schema))
