"""What goes into the model and what comes out; all times in ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Value = dict[str, Any] | None
Window = tuple[int, int]
Partition = tuple[str, int]
Position = tuple[str, int, int]


class BufferFull(Exception):
    """A bounded buffer with `when_full: shut_down` is over its bound."""


@dataclass(frozen=True)
class Record:
    """An input record; `value` None is a tombstone, `group` the index within an exploded record."""

    key: str
    value: Value
    topic: str
    partition: int
    offset: int
    timestamp: int
    source: str | None = None
    group: int = 0

    @property
    def home(self) -> Partition:
        return (self.topic, self.partition)

    @property
    def position(self) -> Position:
        return (self.topic, self.partition, self.offset)

    @property
    def root(self) -> Position:
        """Quote: the first entry of the record's source chain (header `tidegate-source`:
        `topic/partition/offset` joined by `;`, oldest first); records without it count as their own root.
        """
        if self.source is None:
            return self.position
        topic, partition, offset = self.source.split(";")[0].rsplit("/", 2)
        return (topic, int(partition), int(offset))


@dataclass(frozen=True)
class Batch:
    """One bounded read, and the instant that it takes as now; of the partitions of `cut` it leaves a part of
    its interval unread.
    """

    records: tuple[Record, ...]
    clock: int | None = None
    cut: frozenset[Partition] = frozenset()


@dataclass(frozen=True)
class Refused:
    """A value that would have gone out and breaks an expectation; `position`: of the record it came with."""

    key: str
    value: Value
    timestamp: int
    window: Window | None
    position: Position


@dataclass(frozen=True)
class Emission:
    """`at` is when it counts as having happened, whenever the batch ran."""

    key: str
    value: Value
    timestamp: int
    window: Window | None
    reason: str
    at: int
