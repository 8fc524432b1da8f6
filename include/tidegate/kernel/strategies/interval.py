"""`on: interval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidegate.kernel.options import Duration, option
from tidegate.kernel.strategies.buffering import BufferingNewest
from tidegate.kernel.strategy import CLOCK, Clock, Time
from tidegate.kernel.windows import Window


@dataclass(frozen=True)
class Interval(BufferingNewest):
    """Emit at the first multiple of `every` (since 1970) after the first value since the last emission."""

    every_ms: Duration = option("At the next multiple of it since 1970.", "every: 10m", written="every")
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    on: ClassVar[str] = "interval"
    when: ClassVar[str] = "At fixed times."
    reasons: ClassVar[Mapping[str, str]] = {"interval": "the interval is over"}
    timer_reason: ClassVar[str] = "interval"

    def due_since(self, since: Time) -> Time:
        """Return the next multiple of `every_ms`; of a multiple itself, the one after it.

        Example: with `every_ms` 10 it is 20 for 17, and 30 for 20.
        """
        return (since // self.every_ms + 1) * self.every_ms

    def longest_hold_ms(self, window: Window | None) -> int:
        return self.every_ms
