"""What became of records in quarantine: of those that are shown, and of one, from the beginning on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.damage import batch_named, needed_by
from tidegate.app.resolutions import OPEN, ResolvedRecords
from tidegate.app.root import App
from tidegate.inspect.quarantine import QuarantineFilter, groups_of, iter_quarantine, quarantine_batches
from tidegate.lake.quarantine import IDENTITY, RowCondition
from tidegate.ledger import Resolution, Stream


class Status(str, Enum):
    """What became of a record in quarantine."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True)
class Decision:
    """A record's status, and the resolution that it is of; None: it is open."""

    resolution: Resolution | None

    @property
    def status(self) -> Status:
        """In one word."""
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
    """Something that happened to a record. `at`: epoch seconds, None where the ledger does not say; `batch`:
    that which put it into quarantine, or replays it. `part`: see `formats.INPUT`.
    """

    what: str
    at: float | None
    batch: int | None
    part: int | None
    by: str | None
    reason: str | None


class Decisions:
    """What became of records, as the ledger knows it at one instant. Raises LakeDamaged, LakeUnavailable."""

    def __init__(self, app: App, stream: Stream) -> None:
        self._records = ResolvedRecords(app, stream, app.ledger)

    def of(self, rows: pa.Table) -> list[Decision]:
        """Of rows with the columns `IDENTITY`, in their order."""
        resolutions = self._records.resolutions
        return [
            Decision(resolutions.get(number)) for number in self._records.of_quarantined(rows).to_pylist()
        ]

    def open_mask(self, rows: pa.Table) -> pa.BooleanArray:
        """Which of these rows are open."""
        return pc.equal(self._records.of_quarantined(rows), OPEN)


def iter_open(app: App, stream: Stream, where: QuarantineFilter) -> Iterator[pa.Table]:
    """As `iter_quarantine`, without what was replayed or discarded."""
    decisions = Decisions(app, stream)
    for rows in iter_quarantine(app, stream, where):
        rows = rows.filter(decisions.open_mask(rows))
        if rows.num_rows:
            yield rows


def count_by_status(app: App, stream: Stream, where: QuarantineFilter) -> dict[Status, int]:
    """How many records there are of each status. Neither keys nor values are read."""
    decisions, counts = Decisions(app, stream), dict.fromkeys(Status, 0)
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, where.condition):
                for decision in decisions.of(group.matching(where.condition, IDENTITY)):
                    counts[decision.status] += 1
    return counts


def record_history(app: App, stream: Stream, topic: str, partition: int, offset: int) -> list[RecordEvent]:
    """What happened to a record, the oldest first; nothing: it was never in quarantine.

    Its resolutions are told of as long as the ledger has them; that is for good. Raises LakeDamaged,
    LakeUnavailable, LedgerUnavailable.
    """
    where = QuarantineFilter(topics=(topic,), partitions=(partition,))
    condition = RowCondition(topics=frozenset([topic]), partitions=frozenset([partition]), offset=offset)
    decisions, events = Decisions(app, stream), list[RecordEvent]()
    committed_at: dict[int, float | None] = {}
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, condition):
                rows = group.matching(condition, (*IDENTITY, "reason"))
                for row, decision in zip(rows.to_pylist(), decisions.of(rows), strict=True):
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
