"""Windows that begin at steps of a clock: tumbling, hopping and cumulating ones.

`window: {tumbling: 1h}` · `window: {hopping: 1h, every: 10m}` · `window: {cumulating: 1d, every: 1h}`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tidegate.kernel.options import BadOption, Delay, Duration, option
from tidegate.kernel.windows.steps import OFFSET, ZONE, Steps, check_offset, check_zone, overlapping
from tidegate.kernel.windows.window import GRACE, Ints, Span, Window, leaves_no_gaps, write_duration
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


def _divides(every_ms: int, options: Mapping[str, Any]) -> None:
    leaves_no_gaps(every_ms, options)
    size_ms = options.get("size_ms")
    if size_ms is not None and size_ms % every_ms:
        size, every = write_duration(size_ms), write_duration(every_ms)
        raise BadOption(
            f"{size} is not a multiple of {every}", f"Write a part of {size}, such as `every: {size}`."
        )


@dataclass(frozen=True)
class Cumulating(Aligned):
    """Windows that begin together and become longer by `every`, until the longest one has the size."""

    size_ms: Duration = option("The longest windows' size.", "cumulating: 1d", written="cumulating")
    every_ms: Duration = option(
        "The time between the ends of two windows.", "every: 1h", written="every", check=_divides
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)
    accumulates: ClassVar[bool] = True
    only_aggregates: ClassVar[bool] = True

    @property
    def windows_per_record(self) -> int:
        """The windows that begin with the longest one."""
        return -(-self.steps.longest_ms // self.every_ms)

    @cached_property
    def _parts(self) -> Steps:
        return Steps(self.every_ms, self.offset_ms, self.timezone)

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, the shortest first.

        Example: size 30 and every 10 give `((0, 20), (0, 30))` for timestamp 17.
        """
        start = self.steps.start(timestamp)
        last = self.steps.end(start)
        ends = []
        end = self._parts.end(self._parts.start(timestamp))
        while end < last:
            ends.append(end)
            end = self._parts.end(end)
        return tuple((start, end) for end in (*ends, last))
