"""The local clock of a time zone, from a table of its offsets that a plan stores.

So all processes of a batch, and all retries, have the same local times, whatever is updated in between.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np

from tidegate.kernel.options import Form
from tidegate.kernel.windows.window import Ints

_FAR = 2**62


@dataclass(frozen=True)
class TimeZone:
    """A time zone.

    Args:
        name: In the IANA database.
        rules: Its offsets: `0+3600 323830800+7200 …` are seconds since 1970, each with the offset from UTC
            that begins there. Another version of the same zone may have others.
    """

    name: str
    rules: str = field(compare=False, repr=False)

    @property
    def clock(self) -> LocalClock:
        """The local clock."""
        return _clock(self.rules)


Zone = Annotated[TimeZone, Form("zone")]
"""A time zone, which a file has by its name."""


@lru_cache(maxsize=64)
def _clock(rules: str) -> LocalClock:
    return LocalClock(rules)


class LocalClock:
    """Local times of a zone as ms since 1970-01-01 00:00 on its own clock, and their instants in epoch ms."""

    def __init__(self, rules: str) -> None:
        parts = [part.replace("-", "+-").split("+") for part in rules.split()]
        self.begins = [-_FAR, *(int(begin) * 1000 for begin, _ in parts[1:])]
        self.offsets = [int(offset) * 1000 for _, offset in parts]
        """From each of `begins` on, the local clock is so many ms ahead of UTC."""
        shown = [begin + offset for begin, offset in zip(self.begins[1:], self.offsets, strict=False)]
        self._reached = [int(time) for time in np.maximum.accumulate([*shown, _FAR])]
        """The latest local time that the clock has shown before each next offset."""
        changes = [before - after for before, after in zip(self.offsets, self.offsets[1:], strict=False)]
        self.longest_repetition_ms = max([0, *changes])
        """The longest time that the clock was ever set back."""

    def period(self, instant: int) -> int:
        """Return the place of the offset that counts at an instant."""
        return bisect_right(self.begins, instant) - 1

    def local(self, instant: int) -> int:
        """Return the local time at an instant."""
        return instant + self.offsets[self.period(instant)]

    def instant(self, local: int) -> int:
        """Return when the clock first shows a local time or a later one.

        A time that comes twice, because the clock is set back, counts the first time; a time that the clock
        leaves out counts as when it jumps.
        """
        place = bisect_right(self._reached, local)
        return max(self.begins[place], local - self.offsets[place])

    def local_times(self, instants: Ints) -> Ints:
        """Return `local` of each instant."""
        local: Ints = instants + np.array(self.offsets)[self.periods(instants)]
        return local

    def periods(self, instants: Ints) -> Ints:
        """Return `period` of each instant."""
        periods: Ints = np.searchsorted(np.array(self.begins), instants, side="right") - 1
        return periods

    def instants(self, local: Ints) -> Ints:
        """Return `instant` of each local time."""
        place = np.searchsorted(np.array(self._reached), local, side="right")
        first: Ints = np.maximum(np.array(self.begins)[place], local - np.array(self.offsets)[place])
        return first

    def shifted_instants(self, local: Ints) -> Ints:
        """Return the instant of each local time, as Spark does.

        A time that comes twice counts the first time; a time that the clock leaves out is as much later as
        the clock jumps.
        """
        place = np.searchsorted(np.array(self._reached), local, side="right")
        offsets = np.array(self.offsets)
        is_left_out = local - offsets[place] < np.array(self.begins)[place]
        shifted: Ints = local - np.where(is_left_out, offsets[place - 1], offsets[place])
        return shifted
