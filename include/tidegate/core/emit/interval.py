"""`on: interval`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.emit.strategy import Emit, Time
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class Interval(Emit):
    """Emits the newest value at the first multiple of `every_ms` after the first value that is held back."""

    every_ms: int
    holds: ClassVar[bool] = True
    timer_reason: ClassVar[str] = "interval"

    def due_since(self, since: Time) -> Time:
        """Return the next multiple of `every_ms`; of a multiple itself, the one after it."""
        return (since // self.every_ms + 1) * self.every_ms

    def due(self, entry: Entry) -> int:
        """Return the next multiple after the first value held back."""
        return self.due_since(entry.since) if entry.pending else entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for emitting what is held back."""
        return self.timer_reason if entry.pending else None
