"""`on: threshold`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tidegate.core.emit.strategy import Emit, Sameness
from tidegate.core.entry import NEVER, Entry


@dataclass(frozen=True)
class Threshold(Emit):
    """What has gathered goes out, and is gone, at `count` records or `max_bytes`, or after `after_ms`.

    That time counts from the timestamp of the `first_event` in it, or from the entry's `last_flush`.
    """

    count: int | None = None
    max_bytes: int | None = None
    after_ms: int | None = None
    since: Literal["first_event", "last_flush"] = "first_event"
    holds: ClassVar[bool] = True
    empties: ClassVar[bool] = True

    @property
    def remembers_flush(self) -> bool:
        """What comes after a flush long ago goes out at once, and what comes first of all waits."""
        return self.since == "last_flush"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Full by count, or by size."""
        if self.count is not None and entry.pending >= self.count:
            return "count"
        return "bytes" if self.max_bytes is not None and entry.bytes >= self.max_bytes else None

    def due(self, entry: Entry) -> int:
        """When time has passed, and at the end of its window at the latest."""
        return min(self._elapsed(entry), entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """What has gathered goes out."""
        if not entry.pending:
            return None
        return "elapsed" if self._elapsed(entry) <= at else "window_close"

    def _elapsed(self, entry: Entry) -> int:
        if not entry.pending or self.after_ms is None:
            return NEVER
        flushed = entry.flushed_at if self.since == "last_flush" else None
        return (entry.since if flushed is None else flushed) + self.after_ms
