"""The time of its partition as each key sees it: the step in which a timer fires that is set at one of its
rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tidegate.kernel.columnar.keys import Ints, Keys, Mask  # which has its times


class Times:
    """Two steps per row in which timers fire: step 2i is before the row at place i, step 2i + 1 after it.

    At a state row no time has come yet. `ascend` says per row whether time has not gone back since the row
    before, as it does if a key's records are in several partitions. `reached` requires lines without that.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        at = np.empty((keys.rows.num_rows, 2), np.int64)
        at[:, 0] = keys.placed.before
        np.maximum(at[:, 0], keys.placed.timestamp, out=at[:, 1])
        records = at[~keys.placed.is_state] if len(keys.state) else at
        self._low = int(records[:, 0].min()) - 1 if len(records) else 0
        self._high = int(records[:, 1].max()) if len(records) else 0
        # below all times, so that no timer fires at a state row
        at[keys.placed.is_state] = self._low
        self.at: Ints = at.ravel()
        """Per step, the time in epoch ms."""
        # more than any two times differ by: lines that are shifted by it do not overlap
        self._span = self._high - self._low + 2
        self._line_end: Ints = np.cumsum(np.bincount(keys.line))

    def last(self, row: Ints) -> Ints:
        """Return the step after the last one of the rows' lines."""
        last: Ints = 2 * self._line_end[self._keys.line[row]]
        return last

    @property
    def ascend(self) -> Mask:
        """Whether time does not go back at each row; False everywhere if lines and times exceed 62 bits
        together.
        """
        if self._span * len(self._line_end) >= 2**62:
            return np.zeros(self._keys.rows.num_rows, np.bool_)
        ascend = np.ones(self._keys.rows.num_rows, np.bool_)
        ascend[1:] = self.at[2::2] >= self.at[1:-1:2]
        # the row before a line's first one is of another line
        ascend[self._line_end[:-1]] = True
        return self._keys.by_row(ascend)

    def reached(self, due: Ints) -> Ints:
        """Return per place the first step after it in which its line's time is at least `due`.

        If there is none, it is the step after the line's last one. Places are searched in order, so that each
        query is near the one before: several times as fast in a long array as by row.

        Args:
            due: Per place, the time of a timer that is set there, in epoch ms.
        """
        steps, queries = self.at, np.clip(due, self._low + 1, self._high + 1)
        if len(self._line_end) > 1:
            line = self._keys.line  # per row, but the same per place
            shift = line * self._span  # so that one line's times come after the other's
            steps = (steps.reshape(-1, 2) + shift[:, np.newaxis]).ravel()
            queries += shift
        # one search for all lines, as if they were one ascending line
        step = np.searchsorted(steps, queries)
        # a timer does not fire before the row that sets it
        return np.maximum(step, np.arange(1, len(steps), 2), out=step)

    def row_at(self, step: Ints) -> Ints:
        """Return per row the first row of its key, or else of the next key, that comes after the step.

        Args:
            step: Per row, a step.
        """
        places = (step + 1) // 2
        if self._keys.lines is None:
            return places
        # (key, place) as one ascending number: the search stays within the row's key
        keys = self._keys.number * (len(places) + 1)
        places += keys
        keys += self._keys.place
        return np.searchsorted(keys, places)
