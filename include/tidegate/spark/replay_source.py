"""Records of quarantine as a batch's input: files of the lake, sorted by position, in place of Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats import Header, Records
from tidegate.formats.replayed import replayed_topic
from tidegate.kafka.records import MOST_RECORDS, Slice
from tidegate.spark.source import RecordSlice
from tidegate.storage.manifest import DataFile
from tidegate.storage.quarantine_files import RowBounds, row_groups
from tidegate.storage.store import Store

_COLUMNS = ("offset", "timestamp", "recorded", "key", "value", "headers", "part")
_NO_TIMESTAMP = -1
"""Kafka's timestamp of a record without one."""


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
                rows = group.read(("topic", "partition", *_COLUMNS))
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
            [_headers(headers) for headers in rows["headers"].to_pylist()],
            rows["part"].to_pylist(),
            replayed_topic(self.topic, self.seq),
        )


def _headers(headers: Sequence[dict[str, Any]] | None) -> list[Header] | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]
