"""What templates show of a stream, in the few words and colours that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tidegate.inspect import CatalogEntry, StreamDetails, StreamOverview
from tidegate.ledger import QualityResult, Stream


class Health(Enum):
    """How a pipeline stands: what is said, and of what kind that is."""

    INVALID = "invalid file", "bad"
    FAILING = "halted", "bad"
    TROUBLED = "not through", "warn"
    NOT_STARTED = "not started", "quiet"
    AT_WORK = "at work", "busy"
    OK = "ok", "good"

    @property
    def label(self) -> str:
        """The words."""
        return self.value[0]

    @property
    def kind(self) -> str:
        """The class that colours them."""
        return self.value[1]


def health(entry: CatalogEntry, overview: StreamOverview | None) -> Health:
    """The worst that can be said."""
    if entry.problems:
        return Health.INVALID
    if overview is None or overview.status is None:
        return Health.NOT_STARTED
    if any(problem.halts for problem in overview.problems):
        return Health.FAILING
    if overview.status.holder is not None:
        return Health.AT_WORK
    if overview.problems:
        return Health.TROUBLED
    return Health.OK if overview.status.head.seq else Health.NOT_STARTED


@dataclass(frozen=True)
class IndexRow:
    """A pipeline in the list. `overview` is None where not even the generation is known."""

    entry: CatalogEntry
    overview: StreamOverview | None
    health: Health

    @classmethod
    def of(cls, entry: CatalogEntry, overviews: Mapping[Stream, StreamOverview]) -> IndexRow:
        """The row of an entry, with what is known of its first stream."""
        overview = overviews.get(entry.streams[0]) if entry.streams else None
        return cls(entry, overview, health(entry, overview))


@dataclass(frozen=True)
class PartitionRow:
    """A topic-partition of a source: the next offset to read, and where it ends now (None: not known)."""

    MOST: ClassVar[int] = 50

    topic: str
    partition: int
    offset: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets that are not read yet."""
        return None if self.end is None else max(0, self.end - self.offset)


def partition_rows(details: StreamDetails) -> list[PartitionRow]:
    """At most PartitionRow.MOST partitions, those that are furthest behind first."""
    status = details.overview.status
    if status is None:
        return []
    ends = details.lags.ends_of(status.head)
    offsets = status.head.offsets
    rows = [PartitionRow(*at, offsets.get(at, 0), ends.get(at)) for at in sorted({*offsets, *ends})]
    return sorted(rows, key=lambda row: -(row.lag or 0))[: PartitionRow.MOST]


def newest_try(results: Sequence[QualityResult]) -> list[QualityResult]:
    """What suites have found in the last try to validate a batch."""
    last = max((result.try_number for result in results), default=0)
    return [result for result in results if result.try_number == last]
