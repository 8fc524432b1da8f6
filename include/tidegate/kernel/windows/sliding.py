"""`window: {sliding: 10m}`, with the windows of Kafka Streams' `SlidingWindows`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.kernel.options import Delay, Duration, option
from tidegate.kernel.windows.window import GRACE, Span, Window


@dataclass(frozen=True)
class Sliding(Window):
    """Windows of one size that the records of a key define: one ends with each record, and one begins just
    after each record that others follow within the size. Both ends belong to a window.
    """

    size_ms: Duration = option(
        "The largest distance of two records in a window.", "sliding: 10m", written="sliding"
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    slides: ClassVar[bool] = True
    only_aggregates: ClassVar[bool] = True

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of a window, in milliseconds."""
        return self.size_ms + self.grace_ms + 1

    @property
    def windows_per_record(self) -> int:
        """The windows that one more record adds."""
        return 2

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the window that ends with a record; near 1970, the first one of the size.

        Example: size 10 gives `((7, 17),)` for timestamp 17, and `((0, 10),)` for timestamp 7.
        """
        return (self.from_start(max(0, timestamp - self.size_ms)),)

    def from_start(self, start: int) -> Span:
        """Return the window that begins at an instant."""
        return (start, start + self.size_ms)

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over: its end belongs to it.

        Example: `(0, 10)` with a grace of 5 closes at 16.
        """
        return span[1] + self.grace_ms + 1

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a timestamp is in a window.

        Example: `(0, 10)` has the timestamps from 0 to 10.
        """
        return span[0] <= timestamp <= span[1]

    def forget(self, span: Span) -> int:
        """Return the stream time from which no later window can begin with the contents of this one."""
        return self.close(span) + self.size_ms + 1
