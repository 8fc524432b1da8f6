"""`on: change`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Sameness, first_seen
from tidegate.core.entry import Entry
from tidegate.core.equivalence import Equivalence


@dataclass(frozen=True)
class Change(Emit):
    """A value that differs from the last *emitted* one, so that slow drift gets out in the end.

    `heartbeat_ms`: an unchanged value goes out all the same when its record's timestamp is at least that
    much after the last emission's. `by_clock`: it also goes out without a record, each time that so much has
    passed since the last emission. `hashed`: a hash of what was emitted is remembered in its place.
    """

    equivalence: Equivalence
    heartbeat_ms: int | None = None
    hashed: bool = False
    by_clock: bool = False
    timer_reason: ClassVar[str] = "heartbeat"
    forgets_suppressed: ClassVar[bool] = True

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """`new`, `changed` or `deleted` where the value is not the last emitted one; else `heartbeat` where
        that went out long enough ago, or None.
        """
        if now is None or entry.emitted is None:
            return first_seen(entry, now)
        last = entry.emitted_timestamp or 0
        if same is not None and not same(entry.emitted, now, last, timestamp):
            return "changed"
        overdue = self.heartbeat_ms is not None and timestamp - last >= self.heartbeat_ms
        return self.timer_reason if overdue else None

    @property
    def repeats_by_clock(self) -> bool:
        """With a heartbeat by the clock."""
        return self.by_clock and self.heartbeat_ms is not None

    def due(self, entry: Entry) -> int:
        """When so much has passed since the value went out; at the end of its window at the latest."""
        if not self.repeats_by_clock or entry.emitted is None or entry.flushed_at is None:
            return entry.close
        assert self.heartbeat_ms is not None, "there is one"
        return min(entry.flushed_at + self.heartbeat_ms, entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """A heartbeat, unless the entry's window is over."""
        return self.timer_reason if self.repeats_by_clock and at < entry.close else None
