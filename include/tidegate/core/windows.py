"""The windows of a record, and when they are over. All times are in ms; DESIGN, "Windows"."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
"""[start, end) of a tumbling or hopping window; [first, last] timestamps of a session."""


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, side by side, aligned to the epoch."""

    size_ms: int
    grace_ms: int = 0

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the one window of a timestamp."""
        start = timestamp - timestamp % self.size_ms
        return ((start, start + self.size_ms),)

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over."""
        return span[1] + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for a window."""
        return self.close(span) <= now


@dataclass(frozen=True)
class Hopping:
    """Windows of one size that start every `every_ms`, aligned to the epoch; none before it."""

    size_ms: int
    every_ms: int
    grace_ms: int = 0

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first.

        Example: size 10 and every 5 give `((0, 10), (5, 15))` for timestamp 7.
        """
        every, size = self.every_ms, self.size_ms
        first = max(0, timestamp - size + every) // every * every
        return tuple((start, start + size) for start in range(first, timestamp + 1, every))

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over."""
        return span[1] + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for a window."""
        return self.close(span) <= now


@dataclass(frozen=True)
class Session:
    """A window that lasts as long as records follow each other within `gap_ms`."""

    gap_ms: int
    grace_ms: int = 0

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the window of a record that follows no other."""
        return ((timestamp, timestamp),)

    def close(self, span: Span) -> int:
        """Return the stream time at which the session is over: no record joins it any more."""
        return span[1] + self.gap_ms + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for the session that it would make; at the limit it does
        not.
        """
        return self.close(span) < now

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a record belongs to a session."""
        return span[0] - self.gap_ms <= timestamp <= span[1] + self.gap_ms


Window = Tumbling | Hopping | Session
