"""`window: {hopping: 1h, every: 10m}`."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.kernel.options import Delay, Duration, option
from tidegate.kernel.windows.steps import OFFSET, ZONE, check_offset, check_zone, overlapping
from tidegate.kernel.windows.tumbling import Aligned
from tidegate.kernel.windows.window import GRACE, Span, leaves_no_gaps
from tidegate.kernel.windows.zones import Zone


@dataclass(frozen=True)
class Hopping(Aligned):
    """Windows of the same size, one of which starts every `every`, aligned to the epoch or to a local clock.
    They can overlap.
    """

    size_ms: Duration = option("The windows' size.", "hopping: 1h", written="hopping")
    every_ms: Duration = option(
        "The time between the starts of two windows.", "every: 10m", written="every", check=leaves_no_gaps
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)

    @property
    def step_ms(self) -> int:
        return self.every_ms

    @property
    def windows_per_record(self) -> int:
        """The windows that start within one size; one more starts where a clock is changed."""
        longest = self.size_ms + self.steps.longest_ms - self.every_ms
        return -(-longest // self.every_ms) + (self.timezone is not None)

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first; none starts before the epoch, unless it is moved.

        Example: size 10 and every 5 give `((0, 10), (5, 15))` for timestamp 7.
        """
        if self.timezone is not None or self.offset_ms:
            return overlapping(self.steps, self.size_ms, timestamp)
        every, size = self.every_ms, self.size_ms
        # the first multiple of `every` whose window still contains the timestamp
        first = max(0, timestamp - size + every) // every * every
        return tuple((start, start + size) for start in range(first, timestamp + 1, every))
