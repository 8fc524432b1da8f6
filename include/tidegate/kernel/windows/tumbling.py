"""`window: {tumbling: 1h}`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tidegate.kernel.options import Delay, Duration, option
from tidegate.kernel.windows.steps import OFFSET, ZONE, Steps, check_offset, check_zone
from tidegate.kernel.windows.window import GRACE, Ints, Span, Window
from tidegate.kernel.windows.zones import TimeZone, Zone


class Aligned(Window):
    """Windows of one size, which begin where the steps of UTC or of a local clock do."""

    size_ms: int
    timezone: TimeZone | None
    offset_ms: int

    @property
    def step_ms(self) -> int:
        """The time between the starts of two windows."""
        return self.size_ms

    @cached_property
    def steps(self) -> Steps:
        """The steps with which windows begin."""
        return Steps(self.step_ms, self.offset_ms, self.timezone)

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of the longest window, in milliseconds."""
        return self.size_ms + self.steps.longest_ms - self.step_ms + self.grace_ms


@dataclass(frozen=True)
class Tumbling(Aligned):
    """Windows of the same size, side by side, aligned to the epoch or to a local clock."""

    size_ms: Duration = option("The windows' size.", "tumbling: 1h", written="tumbling")
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)
    lie_side_by_side: ClassVar[bool] = True

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the one window of a timestamp.

        Example: size 10 gives `((0, 10),)` for timestamp 7.
        """
        start = self.steps.start(timestamp)
        return ((start, self.steps.end(start)),)

    def bounds(self, timestamps: Ints) -> tuple[Ints, Ints]:
        return self.steps.bounds(timestamps)
