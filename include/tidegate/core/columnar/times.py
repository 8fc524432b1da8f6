"""The time of its partition as each key sees it: when a timer that is set at one of its rows fires."""

from __future__ import annotations

import numpy as np

from tidegate.core.columnar.keys import Ints, Keys, Mask


class Times:
    """Two steps per row, in which timers fire: step 2i is before row i, step 2i + 1 after it.

    At a state row no time has come yet. `ascend`: per row, whether time has not gone back since the one
    before, as it does where a key's records sit in several partitions. `reached` is for keys without that.
    """

    def __init__(self, keys: Keys) -> None:
        records = ~keys.is_state
        self._keys = keys
        self._low = int(keys.before[records].min()) - 1 if records.any() else 0
        self._high = int(keys.now[records].max()) if records.any() else 0
        self.at: Ints = np.full(2 * len(records), self._low)
        """Per step, the time in epoch ms."""
        self.at[::2][records] = keys.before[records]
        self.at[1::2][records] = keys.now[records]
        self._span = self._high - self._low + 2

    @property
    def ascend(self) -> Mask:
        """Nowhere, if there are so many keys and times that they have no room in one number."""
        if self._span * len(self._keys.first) >= 2**62:
            return np.zeros(self._keys.rows.num_rows, np.bool_)
        ascend = np.ones(self._keys.rows.num_rows, np.bool_)
        ascend[1:] = self.at[2::2] >= self.at[1:-1:2]
        ascend[self._keys.first] = True
        return ascend

    def reached(self, due: Ints) -> Ints:
        """Per row, the first step after it in which its key's time is at least `due`.

        If there is none, the step after the key's last one: twice the row after its last.
        """
        number = self._keys.number
        steps = np.repeat(number * self._span, 2) + (self.at - self._low)
        clipped = np.clip(due, self._low + 1, self._high + 1) - self._low
        found = np.searchsorted(steps, number * self._span + clipped)
        return np.maximum(found, 2 * np.arange(len(number)) + 1)
