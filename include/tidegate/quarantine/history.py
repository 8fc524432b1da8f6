"""The status of quarantined records, and the history of one record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.manifests import batch_named, needed_by
from tidegate.app.root import App
from tidegate.lake.quarantine_files import IDENTITY, RowCondition
from tidegate.ledger import Resolution, Stream
from tidegate.quarantine.resolutions import OPEN, ResolvedRecords
from tidegate.quarantine.store import QuarantineFilter, groups_of, iter_quarantine, quarantine_batches


class Status(str, Enum):
    """The status of a quarantined record."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True)
class Decision:
    """A record's status, and the resolution that decided it; None if the record is open."""

    resolution: Resolution | None

    @property
    def status(self) -> Status:
        """The status."""
        if self.resolution is None:
            return Status.OPEN
        return Status.DISCARDED if self.resolution.seq is None else Status.REPLAYED

    def __str__(self) -> str:
        resolution = self.resolution
        if resolution is not None and resolution.seq is not None:
            return f"{self.status.value} in batch {resolution.seq}"
        return self.status.value


@dataclass(frozen=True)
class RecordEvent:
    """An event in the history of a record.

    Args:
        at: Epoch seconds; None if the ledger does not have it.
        batch: The batch that put the record into quarantine, or replayed it.
        part: See `formats.INPUT`.
    """

    what: str
    at: float | None
    batch: int | None
    part: int | None
    by: str | None
    reason: str | None


class Decisions:
    """The resolutions of records, as the ledger has them at one instant. Raises LakeDamaged,
    LakeUnavailable.
    """

    def __init__(self, app: App, stream: Stream) -> None:
        self._records = ResolvedRecords(app, stream, app.ledger)

    def decisions_on(self, rows: pa.Table) -> list[Decision]:
        """Return the decision on each row, in order; the rows need the columns `IDENTITY`."""
        resolutions = self._records.resolutions
        return [
            Decision(resolutions.get(number)) for number in self._records.of_quarantined(rows).to_pylist()
        ]

    def open_mask(self, rows: pa.Table) -> pa.BooleanArray:
        """Return which of these rows are open."""
        return pc.equal(self._records.of_quarantined(rows), OPEN)


def iter_open(app: App, stream: Stream, where: QuarantineFilter) -> Iterator[pa.Table]:
    """Yield what `iter_quarantine` yields, without records that were replayed or discarded."""
    decisions = Decisions(app, stream)
    for rows in iter_quarantine(app, stream, where):
        rows = rows.filter(decisions.open_mask(rows))
        if rows.num_rows:
            yield rows


def count_by_status(app: App, stream: Stream, where: QuarantineFilter) -> dict[Status, int]:
    """Return the number of records of each status. Neither keys nor values are read."""
    decisions, counts = Decisions(app, stream), dict.fromkeys(Status, 0)
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, where.condition):
                for decision in decisions.decisions_on(group.matching(where.condition, IDENTITY)):
                    counts[decision.status] += 1
    return counts


def record_history(app: App, stream: Stream, topic: str, partition: int, offset: int) -> list[RecordEvent]:
    """Return the events of a record, the oldest first; empty if it was never in quarantine.

    The ledger keeps resolutions forever, so they are included even if the quarantine has expired.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    where = QuarantineFilter(topics=(topic,), partitions=(partition,))
    condition = RowCondition(topics=frozenset([topic]), partitions=frozenset([partition]), offset=offset)
    decisions, events = Decisions(app, stream), list[RecordEvent]()
    committed_at: dict[int, float | None] = {}
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, condition):
                rows = group.matching(condition, (*IDENTITY, "reason"))
                for row, decision in zip(rows.to_pylist(), decisions.decisions_on(rows), strict=True):
                    if seq not in committed_at:
                        committed_at[seq] = _committed_at(app, stream, seq)
                    put = RecordEvent("quarantined", committed_at[seq], seq, row["part"], None, row["reason"])
                    events += [put, *_resolved(decision, row["part"])]
    return list(dict.fromkeys(events))


def _committed_at(app: App, stream: Stream, seq: int) -> float | None:
    batches = app.ledger.batches(stream, seq + 1, 1)
    return batches[0].committed_at if batches and batches[0].seq == seq else None


def _resolved(decision: Decision, part: int | None) -> Iterator[RecordEvent]:
    resolution = decision.resolution
    if resolution is not None:
        by, reason = resolution.decided_by, resolution.reason or None
        yield RecordEvent(decision.status.value, resolution.decided_at, resolution.seq, part, by, reason)
