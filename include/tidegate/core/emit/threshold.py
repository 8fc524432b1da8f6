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
    """Emits and removes what has gathered, at `count` records or `max_bytes`, or after `after_ms`.

    Args:
        count: the number of records at which the buffer is emitted.
        max_bytes: the limit of the JSON text `{"events": […]}` with the columns of `envelope`. What has
            gathered
            is emitted before an event that does not fit beside it. Only a single larger event exceeds the
            limit.
        after_ms: the longest time that records wait.
        since: what `after_ms` counts from: the `arrival` of the first event, which is its partition's time
            with
            it; the timestamp of that `first_event`; or the entry's `last_flush`.
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
        """The number of records that fills the buffer."""
        return self.count

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """Return the start of the wait. By `arrival`, a late event is not due before others can gather with
        it.
        """
        return now if self.waits_from_arrival else timestamp

    @property
    def waits_from_arrival(self) -> bool:
        """Whether `after_ms` counts from `arrival`."""
        return self.since == "arrival"

    def due_since(self, since: Time) -> Time:
        """Return when `after_ms` has passed; NEVER if it is not set."""
        return super().due_since(since) if self.after_ms is None else since + self.after_ms

    @property
    def remembers_flush(self) -> bool:
        """Whether it counts from the last flush: an event long after that is emitted at once, the very first
        one waits.
        """
        return self.since == "last_flush"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `count` or `bytes` if the record fills the buffer; `entry` contains it already."""
        if self.count is not None and entry.pending >= self.count:
            return "count"
        if self.max_bytes is None:
            return None
        return "bytes" if self._text_bytes([entry], 0) >= self.max_bytes else None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        """Return whether the entries of a key do not fit into one text, or not with one more event."""
        if self.max_bytes is None or not any(entry.pending for entry in entries):
            return False
        more = 0 if event_bytes is None else 1
        return self._text_bytes(entries, more) + (event_bytes or 0) > self.max_bytes

    def _text_bytes(self, entries: Sequence[Entry], more: int) -> int:
        """Return the bytes of the entries' events as one text, with the commas of `more` events."""
        events = events_overhead(sum(entry.pending for entry in entries) + more)
        envelope = self.envelope.json_bytes(entries[-1].key, entries[-1].window)
        return envelope + events + sum(entry.bytes for entry in entries)

    def due(self, entry: Entry) -> int:
        """Return when time has passed, or the end of the window if that is earlier."""
        return min(self._elapsed(entry), entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for emitting what has gathered."""
        if not entry.pending:
            return None
        return self.timer_reason if self._elapsed(entry) <= at else "window_close"

    def _elapsed(self, entry: Entry) -> int:
        if not entry.pending:
            return NEVER
        flushed = entry.flushed_at if self.since == "last_flush" else None
        return self.due_since(entry.since if flushed is None else flushed)
