"""`on: time_limit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.emit.strategy import Emit
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class TimeLimit(Emit):
    """The newest value, `after_ms` past the timestamp of the first one that is held back.

    Newer values replace it and do not restart the timer. It outlives its window.
    """

    after_ms: int
    holds: ClassVar[bool] = True

    def due(self, entry: Entry) -> int:
        """From the first value held back."""
        return entry.since + self.after_ms if entry.pending else entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """What is held back goes out."""
        return "time_limit" if entry.pending else None
