"""`on: threshold`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tidegate.core.emit.strategy import Emit, Sameness, Time
from tidegate.core.entry import NEVER, Entry
from tidegate.core.envelope import Envelope
from tidegate.core.reduce.collect import events_overhead


@dataclass(frozen=True)
class Threshold(Emit):
    """What has gathered goes out, and is gone, at `count` records or `max_bytes`, or after `after_ms`.

    That time counts from the `arrival` of the first event in it, which is its partition's time with it; from
    the timestamp of that `first_event`; or from the entry's `last_flush`.
    `max_bytes` bounds the JSON text of `{"events": […]}` with what `envelope` adds: what has gathered goes
    out before an event that has no room beside it. Only an event that is larger alone makes a larger text.
    """

    count: int | None = None
    max_bytes: int | None = None
    after_ms: int | None = None
    since: Literal["arrival", "first_event", "last_flush"] = "first_event"
    envelope: Envelope = field(default_factory=Envelope)
    holds: ClassVar[bool] = True
    empties: ClassVar[bool] = True
    timer_reason: ClassVar[str] = "elapsed"

    @property
    def full_at(self) -> int | None:
        """So many records."""
        return self.count

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """By `arrival` an event that comes late is not due before others can gather with it."""
        return now if self.waits_from_arrival else timestamp

    @property
    def waits_from_arrival(self) -> bool:
        """By `arrival`."""
        return self.since == "arrival"

    def due_since(self, since: Time) -> Time:
        """So long after that; no time is set where it is not bounded."""
        return super().due_since(since) if self.after_ms is None else since + self.after_ms

    @property
    def remembers_flush(self) -> bool:
        """What comes after a flush long ago goes out at once, and what comes first of all waits."""
        return self.since == "last_flush"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """`count` or `bytes` where the record has filled what gathers; `entry` counts it already."""
        if self.count is not None and entry.pending >= self.count:
            return "count"
        if self.max_bytes is None:
            return None
        return "bytes" if self._text_bytes([entry], 0) >= self.max_bytes else None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        """Whether what some entries of a key hold has no room in one text, or none for one event more."""
        if self.max_bytes is None or not any(entry.pending for entry in entries):
            return False
        more = 0 if event_bytes is None else 1
        return self._text_bytes(entries, more) + (event_bytes or 0) > self.max_bytes

    def _text_bytes(self, entries: Sequence[Entry], more: int) -> int:
        """Bytes of what the entries hold as one text, with the comma of `more` events."""
        events = events_overhead(sum(entry.pending for entry in entries) + more)
        envelope = self.envelope.json_bytes(entries[-1].key, entries[-1].window)
        return envelope + events + sum(entry.bytes for entry in entries)

    def due(self, entry: Entry) -> int:
        """When time has passed, and at the end of its window at the latest."""
        return min(self._elapsed(entry), entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """What has gathered goes out."""
        if not entry.pending:
            return None
        return self.timer_reason if self._elapsed(entry) <= at else "window_close"

    def _elapsed(self, entry: Entry) -> int:
        if not entry.pending:
            return NEVER
        flushed = entry.flushed_at if self.since == "last_flush" else None
        return self.due_since(entry.since if flushed is None else flushed)
