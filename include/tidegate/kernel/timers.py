"""The timers of a group's entries, and timers that a clock ahead of now has set."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.rows import with_column
from tidegate.kernel.state import NEVER, Entry

if TYPE_CHECKING:
    from tidegate.kernel.stage import Place, Stage
    from tidegate.kernel.strategy import Emit
    from tidegate.kernel.windows import Span, Window

_NO_WINDOW = (0, 0)


class Timers:
    """A heap of timers. A timer counts only if its time is still the entry's `due`; others are skipped."""

    def __init__(self, emit: Emit, window: Window | None) -> None:
        self._emit = emit
        self._sessions = window is not None and window.merges
        self._heap: list[tuple[int, str, Span, int, Entry]] = []
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
        if not entry.remembers and not entry.pending:
            entry.expires_at = None  # nothing is left that could expire
        due = self.due(entry)
        if self._sessions and now < entry.close < due:
            due = entry.close
        self.restore(entry, due if due > now else now)

    def due(self, entry: Entry) -> int:
        """Return when the entry's timer fires as things are: by its strategy, or when its time to live is
        over. What waits is emitted before.
        """
        due = self._emit.due(entry)
        if due == entry.close and not entry.pending:
            due = entry.forget
        return due if entry.expires_at is None or entry.pending else min(due, entry.expires_at)

    def restore(self, entry: Entry, due: int) -> None:
        """Set the entry's timer to a time.

        Args:
            due: Epoch ms; NEVER removes the timer.
        """
        entry.due = due
        if due != NEVER:
            # the number breaks ties, since entries have no order
            heapq.heappush(
                self._heap, (due, entry.key, entry.window or _NO_WINDOW, next(self._number), entry)
            )
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
        """Return the entry that would emit held-back records first, by (due, key, window)."""
        passed_over, first = [], None
        while self._heap and (first is None or self._heap[0][:3] <= first[:3]):
            timer = heapq.heappop(self._heap)
            due, key, window, number, entry = timer
            if entry.due == due:
                passed_over.append(timer)
                if entry.pending:
                    # a session fires at its end, too, but may wait for longer than that
                    candidate = (self.waits_until(entry), key, window, number, entry)
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


_AT, _SINCE, _FLUSHED, _EMITTED = "due_at", "since", "flushed_at", "emitted_timestamp"

_ENTRY = ("key", "window_start", "window_end", "pending", _SINCE, _FLUSHED, "expires_at", _AT)


def lower_entries(
    stage: Stage, rows: pa.Table, times: Mapping[Place, int], now_ms: int, floor: int = -1
) -> pa.Table:
    """Return the state rows that a clock ahead of `now_ms` has set, as if the clock had been right.

    `times` is the time of each topic-partition by the right clock, `floor` that of the others. What a row
    waits for counts from there: it goes out later than it would have, and never waits for the wrong clock.
    Rows that need no change are left out.

    Args:
        rows: The newest state rows of a stage.
        now_ms: The right time, in epoch ms.
    """
    names = _names_by_clock(stage)
    ahead = pa.array([False] * rows.num_rows)
    for name in names:
        ahead = pc.or_(ahead, pc.fill_null(pc.greater(rows[name], now_ms), False))
    rows = rows.filter(ahead).combine_chunks()
    partitions = zip(*(rows[name].to_pylist() for name in ("topic", "partition")), strict=True)
    place_times = [times.get(place, floor) for place in partitions]
    for name in names:
        values = zip(rows[name].to_pylist(), place_times, strict=True)
        rows = with_column(rows, name, [_lower(value, time, now_ms) for value, time in values])
    entries = zip(
        rows.select(_ENTRY).to_pylist(), rows["emitted"].is_valid().to_pylist(), place_times, strict=True
    )
    return with_column(rows, _AT, [_due_at(stage, *entry) for entry in entries])


def _names_by_clock(stage: Stage) -> list[str]:
    """Return the columns with a time of the clock, and not a record's timestamp."""
    if stage.clock != "run":
        return []
    names = [_SINCE] if stage.emit.waits_from_arrival else []
    if stage.emit.remembers_flush:
        names.append(_FLUSHED)
    return [*names, _EMITTED] if stage.emit.repeats_by_clock else names


def _lower(value: int | None, time: int, now_ms: int) -> int | None:
    return time if value is not None and value > now_ms else value


def _due_at(stage: Stage, row: Mapping[str, Any], has_emitted: bool, time: int) -> int | None:
    """Return when the entry's timer fires now; None: it has none."""
    if row[_AT] is None:
        return None
    span = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    close = NEVER if stage.window is None or span is None else stage.window.close(span)
    # an entry only to ask the strategy for its timer; no row is read
    entry = Entry(row["key"], span, close, row=0)
    if stage.window is not None and span is not None:
        entry.forget = stage.window.forget(span)
    entry.pending, entry.since = row["pending"] or 0, row[_SINCE]
    entry.flushed_at = row[_FLUSHED]
    entry.expires_at = row["expires_at"] if stage.ttl is not None else None
    # only their presence counts
    entry.emitted, entry.accumulator = has_emitted or None, entry.expires_at
    Timers(stage.emit, stage.window).set(entry, time)
    return None if entry.due == NEVER else entry.due
