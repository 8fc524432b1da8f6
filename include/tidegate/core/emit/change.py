"""`on: change`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Sameness, first_seen
from tidegate.core.entry import Entry
from tidegate.core.equivalence import Equivalence


@dataclass(frozen=True)
class Change(Emit):
    """Emits a value that differs from the last *emitted* one, so that slow drift is emitted at some point.

    Args:
        equivalence: decides whether two values are the same.
        heartbeat_ms: an unchanged value is emitted if its record's timestamp is at least this much after that
            of
            the last emission.
        hashed: a hash of the emitted value is stored in place of the value.
        by_clock: the heartbeat also fires without a record, this long after the last emission.
    """

    equivalence: Equivalence
    heartbeat_ms: int | None = None
    hashed: bool = False
    by_clock: bool = False
    timer_reason: ClassVar[str] = "heartbeat"
    forgets_suppressed: ClassVar[bool] = True

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new`, `changed` or `deleted` if the value differs from the last emitted one; `heartbeat` if
        that was emitted long enough ago; else None.
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
        """Whether it has a heartbeat by the clock."""
        return self.by_clock and self.heartbeat_ms is not None

    def due(self, entry: Entry) -> int:
        """Return when the heartbeat is due, or the end of the window if that is earlier."""
        if not self.repeats_by_clock or entry.emitted is None or entry.flushed_at is None:
            return entry.close
        assert self.heartbeat_ms is not None, "there is one"
        return min(entry.flushed_at + self.heartbeat_ms, entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason of a heartbeat; None if the entry's window is over."""
        return self.timer_reason if self.repeats_by_clock and at < entry.close else None
