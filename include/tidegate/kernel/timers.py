"""The timers of a group's entries, in the order in which they fire: (due, key, window)."""

from __future__ import annotations

import heapq
from itertools import count

from tidegate.kernel.entry import NEVER, Entry
from tidegate.kernel.strategy import Emit
from tidegate.kernel.windows import Window


class Timers:
    """A heap of timers. A timer counts only if its time is still the entry's `due`; others are skipped."""

    def __init__(self, emit: Emit, window: Window | None) -> None:
        self._emit = emit
        self._sessions = window is not None and window.merges
        self._heap: list[tuple[int, str, int, int, Entry]] = []
        self._number = count()
        self.next_due = NEVER
        """No timer fires before this."""

    def set(self, entry: Entry, now: int) -> None:
        """Set the entry's timer by its strategy; it cannot be due before `now`.

        A session that waits for longer than it is open fires at its end, too: from then on no record joins
        it.

        Args:
            now: The time of the partition, in epoch ms.
        """
        due = self._emit.due(entry)
        if self._sessions and now < entry.close < due:
            due = entry.close
        self.restore(entry, due if due > now else now)

    def restore(self, entry: Entry, due: int) -> None:
        """Set the entry's timer to a time.

        Args:
            due: Epoch ms; NEVER removes the timer.
        """
        entry.due = due
        if due != NEVER:
            start = entry.window[0] if entry.window else 0
            # the number breaks ties, since entries have no order
            heapq.heappush(self._heap, (due, entry.key, start, next(self._number), entry))
            self.next_due = self._heap[0][0]

    def pop(self, time: int) -> tuple[int, Entry] | None:
        """Return the next timer that is due, and its entry; or None.

        Args:
            time: Epoch ms; NEVER takes all timers, one after the other.
        """
        while self._heap and self._heap[0][0] <= time:
            due, *_, entry = heapq.heappop(self._heap)
            self.next_due = self._heap[0][0] if self._heap else NEVER
            # a timer that was set anew is still in the heap under its old time
            if entry.due == due:
                return due, entry
        return None

    def waits_until(self, entry: Entry) -> int:
        """Return when the records that the entry holds back are emitted by the timer."""
        return max(entry.due, self._emit.due(entry))

    def first_pending(self) -> Entry:
        """Return the entry that holds records back and would emit them before all others, by (due, key,
        window).
        """
        passed_over, first = [], None
        while self._heap and (first is None or self._heap[0][:3] <= first[:3]):
            timer = heapq.heappop(self._heap)
            due, key, start, number, entry = timer
            if entry.due == due:
                passed_over.append(timer)
                if entry.pending:
                    # a session fires at its end, too, but may wait for longer than that
                    candidate = (self.waits_until(entry), key, start, number, entry)
                    first = candidate if first is None else min(first, candidate)
        for timer in passed_over:
            heapq.heappush(self._heap, timer)
        self.next_due = self._heap[0][0]
        assert first is not None, "a full buffer holds something"
        return first[-1]

    def clear(self) -> None:
        """Forget all timers of the group, which is finished."""
        self._heap.clear()
        self.next_due = NEVER
