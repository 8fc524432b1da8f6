"""The time of its partition as each key sees it: when a timer that is set at one of its rows fires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tidegate.core.columnar.keys import Ints, Keys, Mask  # which has its times


class Times:
    """Two steps per row, in which timers fire: step 2i is before the row at place i, step 2i + 1 after it.

    At a state row no time has come yet. `ascend`: per row, whether time has not gone back since the one
    before, as it does where a key's records sit in several partitions. `reached` is for lines without that.
    """

    def __init__(self, keys: Keys) -> None:
        records, place = ~keys.is_state, keys.place
        self._keys = keys
        self._low = int(keys.before[records].min()) - 1 if records.any() else 0
        self._high = int(keys.now[records].max()) if records.any() else 0
        self.at: Ints = np.full(2 * len(records), self._low)
        """Per step, the time in epoch ms."""
        self.at[2 * place[records]] = keys.before[records]
        self.at[2 * place[records] + 1] = keys.now[records]
        self._span = self._high - self._low + 2
        self._line_end: Ints = np.cumsum(np.bincount(keys.line))
        self.end: Ints = 2 * self._line_end[keys.line]
        """Per row, the step after the last one of its line."""

    @property
    def ascend(self) -> Mask:
        """Nowhere, if there are so many lines and times that they have no room in one number."""
        if self._span * len(self._line_end) >= 2**62:
            return np.zeros(self._keys.rows.num_rows, np.bool_)
        ascend = np.ones(self._keys.rows.num_rows, np.bool_)
        ascend[1:] = self.at[2::2] >= self.at[1:-1:2]
        ascend[self._line_end[:-1]] = True
        return ascend[self._keys.place]

    def reached(self, due: Ints) -> Ints:
        """Per row, the first step after it in which its line's time is at least `due`.

        If there is none, the step after the line's last one.
        """
        line = self._keys.line  # that of the rows in their places, too
        steps = np.repeat(line * self._span, 2) + (self.at - self._low)
        clipped = np.clip(due, self._low + 1, self._high + 1) - self._low
        place = self._keys.place
        # in the order of places a query is found near the one before: several times as fast in a long array
        queries = np.empty_like(clipped)
        queries[place] = line * self._span + clipped
        return np.maximum(np.searchsorted(steps, queries)[place], 2 * place + 1)

    def row_at(self, step: Ints) -> Ints:
        """Per row, the first row of its key, or else of the next one, that comes after the step."""
        places = (step + 1) // 2
        if self._keys.lines is None:
            return places
        keys = self._keys.number * (len(places) + 1)
        return np.searchsorted(keys + self._keys.place, keys + places)
