"""What the pages show of a stream: badges, rows of pipelines and of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidegate.inspect import CatalogEntry, StreamDetails, StreamOverview
from tidegate.ledger import QualityResult, Stream
from tidegate.ledger.report import HistoryEntry
from tidegate.ledger.stream_condition import ConditionKind

KINDS = {
    ConditionKind.HALTED: "bad",
    ConditionKind.FENCED: "bad",
    ConditionKind.FAILING: "bad",
    ConditionKind.CLOCK_AHEAD: "bad",
    ConditionKind.BEHIND: "warn",
    ConditionKind.RETIRED: "quiet",
    ConditionKind.WITHHELD: "quiet",
    ConditionKind.NOT_STARTED: "quiet",
    ConditionKind.OK: "good",
}
"""ConditionKind -> the CSS class of its colour."""


@dataclass(frozen=True)
class Badge:
    """A word, and the CSS class of its colour."""

    kind: str
    label: str


def condition_badge(entry: CatalogEntry, overview: StreamOverview | None) -> Badge:
    """Return the badge of a stream's condition; of a file with mistakes that is not its stream's, that it has
    them.
    """
    if entry.problems and (overview is None or not overview.condition.is_troubled):
        return Badge("bad", "invalid file")
    if overview is None:
        return Badge("quiet", ConditionKind.NOT_STARTED.label)
    condition = overview.condition.condition
    return Badge(KINDS[condition], condition.label)


@dataclass(frozen=True)
class IndexRow:
    """A pipeline in the list. `overview` is None if not even the generation is known."""

    entry: CatalogEntry
    overview: StreamOverview | None
    badge: Badge

    @classmethod
    def from_entry(cls, entry: CatalogEntry, overviews: Mapping[Stream, StreamOverview]) -> IndexRow:
        """Return the row of an entry, with the overview of its first stream.

        Args:
            entry: The pipeline.
            overviews: The overviews of all streams that are shown.
        """
        overview = overviews.get(entry.streams[0]) if entry.streams else None
        return cls(entry, overview, condition_badge(entry, overview))

    @property
    def cause(self) -> str:
        """The cause of its problem, without what an error quotes; "" if it has none."""
        if self.entry.problems:
            problem = self.entry.problems[0]
            return f"{problem.name}, line {problem.line}: {problem.message}"
        causes = self.overview.condition.causes if self.overview is not None else ()
        # The message of an error can quote records: only those who may read logs see it.
        return (causes[0].error or causes[0].what) if causes else ""

    @property
    def is_at_work(self) -> bool:
        """Whether a run is at work."""
        status = self.overview.status if self.overview is not None else None
        return status is not None and status.holder is not None


def failed_batch(details: StreamDetails) -> HistoryEntry | None:
    """Return the batch that a stream cannot finish; None if no try of its newest batches has failed."""
    status = details.overview.status
    seq = status.head.seq if status is not None else 0
    return next((item for item in details.recent if item.failure is not None and item.seq >= seq), None)


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
    """At most PartitionRow.MOST partitions, those that are furthest behind first.

    Args:
        details: The stream, with the ends of its topics if Kafka has answered.
    """
    status = details.overview.status
    if status is None:
        return []
    # Empty if the broker does not answer; partitions of the head are shown all the same.
    ends = details.lags.ends_of(status.head)
    offsets = status.head.offsets
    rows = [PartitionRow(*at, offsets.get(at, 0), ends.get(at)) for at in sorted({*offsets, *ends})]
    return sorted(rows, key=lambda row: -(row.lag or 0))[: PartitionRow.MOST]


def newest_try(results: Sequence[QualityResult]) -> list[QualityResult]:
    """Return the results of quality suites from the last try to validate a batch."""
    last = max((result.try_number for result in results), default=0)
    return [result for result in results if result.try_number == last]
