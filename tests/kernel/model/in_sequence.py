"""`sequence` once more. It remembers every deletion for ever, and knows when one would be forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kernel.model.records import Partition


@dataclass(frozen=True)
class Change:
    """A change of a key. Without a `sequence` it is the tombstone that follows a deletion."""

    key: str
    sequence: int | None
    deleted: bool
    timestamp: int
    partition: int = 0


@dataclass
class InSequence:
    """`out`: the changes that have an effect, in the order of the log."""

    keep_ms: int | None
    out: list[Change] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stream_times: dict[Partition, int] = field(default_factory=dict)
    newest: dict[str, Change] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes in the order of the log."""
        for change in changes:
            self._take(change)

    def _take(self, change: Change) -> None:
        home = ("in", change.partition)
        now = max(change.timestamp, self.stream_times.get(home, -1))
        self.stream_times[home] = now
        last = self.newest.get(change.key)
        is_there = last is not None and not last.deleted
        if self.keep_ms is not None and now - change.timestamp >= self.keep_ms and not is_there:
            self.counts["expired-window-record-drop"] += 1
        elif change.sequence is None or (last is not None and not self._is_later(change, last)):
            self.counts["deduplicated"] += 1
        else:
            self.counts["used"] += 1
            self.out.append(change)
            self.newest[change.key] = change

    def _is_later(self, change: Change, last: Change) -> bool:
        if self.keep_ms is not None and last.deleted and change.timestamp >= last.timestamp + self.keep_ms:
            return True
        assert change.sequence is not None
        assert last.sequence is not None
        return change.sequence > last.sequence
