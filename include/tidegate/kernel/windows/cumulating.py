"""`window: {cumulating: 1d, every: 1h}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tidegate.kernel.options import BadOption, Delay, Duration, option
from tidegate.kernel.windows.steps import OFFSET, ZONE, Steps, check_offset, check_zone
from tidegate.kernel.windows.tumbling import Aligned
from tidegate.kernel.windows.window import GRACE, Span, leaves_no_gaps, write_duration
from tidegate.kernel.windows.zones import Zone


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
