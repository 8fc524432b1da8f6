"""`on: time_limit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.emit.strategy import Emit, Time
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class TimeLimit(Emit):
    """Emits the newest value, `after_ms` past the timestamp of the first value that is held back.

    Newer values replace it and do not restart the timer. The timer may fire after the window's end.
    """

    after_ms: int
    holds: ClassVar[bool] = True
    timer_reason: ClassVar[str] = "time_limit"

    def due_since(self, since: Time) -> Time:
        """Return `after_ms` past the first value held back."""
        return since + self.after_ms

    def due(self, entry: Entry) -> int:
        """Return when the first value held back is due."""
        return self.due_since(entry.since) if entry.pending else entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for emitting what is held back."""
        return self.timer_reason if entry.pending else None
