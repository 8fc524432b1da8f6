"""`window: {session: 30m}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.kernel.options import Delay, Duration, option
from tidegate.kernel.windows.window import GRACE, Span, Window


@dataclass(frozen=True)
class Session(Window):
    """A window that lasts as long as records follow each other within the gap."""

    gap_ms: Duration = option(
        "The gap: a record after a longer pause begins another window.", "session: 30m", written="session"
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    merges: ClassVar[bool] = True

    @property
    def open_ms(self) -> int:
        return self.gap_ms + self.grace_ms

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the window of a record that follows no other.

        Example: `((7, 7),)` for timestamp 7.
        """
        return ((timestamp, timestamp),)

    def close(self, span: Span) -> int:
        """Return the stream time at which the session is over: no record joins it any more.

        Example: `(3, 7)` with a gap of 10 and a grace of 5 closes at 22.
        """
        return span[1] + self.gap_ms + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record is too late for the session that it would make; at the limit not."""
        return self.close(span) < now

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a record belongs to a session.

        Example: with a gap of 10, `(20, 30)` is joined by timestamps from 10 to 40.
        """
        return span[0] - self.gap_ms <= timestamp <= span[1] + self.gap_ms
