"""One record of a join: the records of the other side that it matches, and the entry in which it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.kernel.counts import Counts
from tidegate.kernel.folding import Folding
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import Entry
from tidegate.kernel.strategies.join import IS_LEFT, Join, JoinedValues, JoinWindow
from tidegate.kernel.unusable import LATE
from tidegate.kernel.windows import Span


class Joining(Folding):
    """Pairs each record with those of the other side, in place of folding it into the entry of its key.

    An entry is one record. It is `pending` as long as the record may be emitted without a match.
    """

    def __init__(
        self, stage: Stage, batch: Batch, rows: pa.RecordBatch, schema: pa.Schema, counts: Counts
    ) -> None:
        super().__init__(stage, batch, rows, schema, counts)
        assert isinstance(stage.emit, Join)
        assert isinstance(self.values, JoinedValues)
        self._join, self._pairs = stage.emit, self.values
        self._time: JoinWindow = stage.emit.window

    def described(self, row: int) -> Any:
        """Return the side of a record, and its columns; those of the other side are null."""
        value = self.columns.value(row)
        if value is None:
            return None
        side = "left" if value.pop(IS_LEFT) else "right"
        return {"side": side, **value}

    def _fates(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Emit the pairs of a record, and let it wait for further ones."""
        if self.values.null[row]:
            return ("ignored",)
        entries = self.entries.entries_of_key(row)
        if any(self.entries.repeats(entry, row) for entry in entries):
            return ("repeated",)
        is_left = self._pairs.is_left(row)
        span = _free_span({entry.window for entry in entries}, timestamp, is_left)
        if self._time.is_late(span, now):
            return (self._late(span),)
        matches = [entry for entry in entries if self._matches(entry, is_left, timestamp)]
        own = self.entries.at(row, span)
        self._advance(own, row, self.values.fold(None, row), timestamp)
        if not matches and self._join.emits_unmatched(is_left):
            own.pending, own.since = 1, timestamp
            self.entries.note_pending(own)
        self.timers.set(own, now)
        # as in Kafka Streams' window stores: by timestamp, and then in the order in which they came
        fates = [
            self._pair(own, other, now) for other in sorted(matches, key=lambda entry: entry.window or ())
        ]
        return (min(fates, default="held" if own.pending else "unpaired", key=_FATES.index),)

    def keep_late(self, row: int, timestamp: int, now: int) -> None:
        """Quarantine a record that has just come too late to match any other one: a join emits none."""
        closed = self._time.close((timestamp, 0 if self._pairs.is_left(row) else 1))
        reason = (
            f"{LATE}: {now - timestamp} ms behind its partition; it could match others up to {closed - 1}"
        )
        self.outcome.quarantine(row, reason, "late-quarantined")

    def _matches(self, entry: Entry, is_left: bool, timestamp: int) -> bool:
        span = entry.window
        assert span is not None
        return is_left == bool(span[1] % 2) and self._time.joins(span, timestamp)

    def _pair(self, own: Entry, other: Entry, now: int) -> str:
        """Emit a record with one that it matches, unless `where` or an expectation excludes the pair; return
        what became of it.
        """
        if other.pending:
            self.entries.empty(other)
            self.entries.touch(other)
        output = (own.accumulator, other.accumulator)
        newest = max(own.timestamp, other.timestamp)
        if not self.gate.passes(own, output):
            self._counts["filtered"] += 1
            return "filtered"
        if (refusal := self.gate.refusal(own, output)) is not None:
            self.outcome.refuse(own, own.row, output, newest, refusal)
            return "refused"
        self.outcome.emit(own, output, newest, now, self.cause, "matched")
        return "matched"


_FATES = ("matched", "refused", "filtered", "held", "unpaired")
"""The fates of a record that is used: of several pairs, the first one counts."""


def _free_span(taken: set[Span | None], timestamp: int, is_left: bool) -> Span:
    """Return the span of a record that no other record of its key has."""
    number = 0 if is_left else 1
    while (timestamp, number) in taken:
        number += 2
    return timestamp, number
