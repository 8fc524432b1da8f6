"""Windows that are over, on whole columns: the rule of `window_close` for aggregates in tumbling windows.

Rows are brought together by key and window, without those that come too late. An entry, which is a window of
a key, is over in the step in which the time of its key's partition reaches its end, or at the batch's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.kernel import bounded
from tidegate.kernel.columns import Keys
from tidegate.kernel.counts import Counts
from tidegate.kernel.json_text import text_bytes
from tidegate.kernel.outcome import EmittedRows, count_overtime, count_states, emission_rows, state_rows
from tidegate.kernel.rows import TIMER, Ints, Mask, ints, mask, only
from tidegate.kernel.stage import Stage
from tidegate.kernel.windows import Window


def decide(stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
    """Yield emissions and state of plain keys, as `Emit.decide` does, of a stage without early results.

    Raises BufferFull.
    """
    assert stage.window is not None, "windows are over"
    windows = _Windows(stage.window, keys)
    counts["expired-window-record-drop"] += windows.late
    counts["late-record-drop"] += windows.late
    # no open window is left, and the array operations below need a row
    if not windows.order.size:
        return
    if stage.bound:
        bounded.require_room(stage.bound, keys, windows.first, windows.due_step, counts)
    entries = windows.entries
    results = stage.reduce.running(entries, schema.field("accumulator").type)
    _count(windows, counts)
    over = np.flatnonzero(windows.over)
    emitted = EmittedRows(
        windows.last[over],
        results.take(pa.array(windows.last[over])),
        windows.timestamp[over],
        windows.close[over],
        np.full(len(over), TIMER),  # a record that is not late leaves its window's end still to come
        "window_close",
        (windows.start[over], windows.end[over]),
    )
    yield from emission_rows(schema, entries, emitted, counts)
    yield from _states(schema, windows, results, counts)


def edited(window: Window, keys: Keys) -> Mask:
    """Return state that the stage would not have left: its strategy or windows have changed."""
    start, end, due = (ints(keys.column(name)) for name in ("window_start", "window_end", "due_at"))
    natural_start, natural_end = window.bounds(start)
    natural = (start == natural_start) & (end == natural_end) & (due == end + window.grace_ms)
    has_contents = mask(keys.column("accumulator").is_valid()) & (ints(keys.column("pending")) > 0)
    fresh = mask(keys.column("emitted").is_null()) & mask(keys.column("window_start").is_valid())
    edited: Mask = _open(keys) & ~(natural & has_contents & fresh)
    return edited


def _open(keys: Keys) -> Mask:
    """Return the state rows of windows that are not over, which have a timer."""
    return keys.is_state & mask(keys.column("due_at").is_valid())


class _Windows:
    """Rows of keys, brought together by window; then one element per entry. All times are in epoch ms."""

    def __init__(self, window: Window, keys: Keys) -> None:
        start, end = window.bounds(keys.timestamp)
        start = np.where(keys.is_state, ints(keys.column("window_start")), start)
        end = np.where(keys.is_state, ints(keys.column("window_end")), end)
        close = end + window.grace_ms
        is_late = ~keys.is_state & (close <= np.where(keys.is_state, 0, keys.now))
        self.late = int(is_late.sum())
        """The number of records that come too late."""
        self.order: Ints = _by_window(keys, start, ~is_late)
        """The other rows, by key and window; of an entry's state rows only the newest, if it is open."""
        times = keys.times
        self._row_step, self._times = keys.by_row(times.reached(keys.by_place(close))), times
        self._keys = keys
        self._row_start, self._row_end, self._row_close = start, end, close

    @cached_property
    def entries(self) -> Keys:
        """The rows in that order."""
        number, start = self._keys.number[self.order], self._row_start[self.order]
        begins = np.append(True, (number[1:] != number[:-1]) | (start[1:] != start[:-1]))
        return Keys(self._keys.rows.take(pa.array(self._keys.place[self.order])), self._keys.batch, begins)

    @cached_property
    def first(self) -> Ints:
        """The row that each entry begins with, among all rows."""
        return self.order[self.entries.first]

    @cached_property
    def last(self) -> Ints:
        """The row that each entry ends with, among `entries`."""
        return self.entries.end - 1

    @cached_property
    def start(self) -> Ints:
        return self._row_start[self.first]

    @cached_property
    def end(self) -> Ints:
        return self._row_end[self.first]

    @cached_property
    def close(self) -> Ints:
        """The time at which each entry is over."""
        return self._row_close[self.first]

    @cached_property
    def due_step(self) -> Ints:
        """The step in which the time of its key's partition reaches its end."""
        step: Ints = self._row_step[self.first]
        return step

    @cached_property
    def timestamp(self) -> Ints:
        """The largest timestamp in each entry."""
        return np.maximum.reduceat(self.entries.timestamp, self.entries.first)

    @cached_property
    def is_stored(self) -> Mask:
        """Whether the entry has a state row."""
        stored: Mask = self.entries.is_state[self.entries.first]
        return stored

    @cached_property
    def records(self) -> Ints:
        """The number of new records in each entry."""
        return self.entries.end - self.entries.first - self.is_stored

    @cached_property
    def _in_time(self) -> Mask:
        """Whether its key's records have reached its end."""
        in_time: Mask = self.due_step < self._times.last(self.first)
        return in_time

    @cached_property
    def fired(self) -> Ints:
        """The time that reached its end, or the time at the end of the batch."""
        # a step behind the last one has no time; the mask replaces that value
        steps = np.minimum(self.due_step, len(self._times.at) - 1)
        ends = self.entries.batch_ends(self.last, ~self._in_time)
        return np.where(self._in_time, self._times.at[steps], ends)

    @cached_property
    def over(self) -> Mask:
        over: Mask = self.close <= self.fired
        return over


def _by_window(keys: Keys, start: Ints, counts: Mask) -> Ints:
    """Return the rows that count by key, window and order; of an entry's state only the newest row."""
    order = np.lexsort((start, keys.number))
    number, start, is_state = keys.number[order], start[order], keys.is_state[order]
    follows = (number[1:] == number[:-1]) & (start[1:] == start[:-1]) & is_state[1:]
    superseded = is_state & np.append(follows, False)
    closed = is_state & ~_open(keys)[order]
    in_order: Ints = order[counts[order] & ~superseded & ~closed]
    return in_order


def _count(windows: _Windows, counts: Counts) -> None:
    begun = int((~windows.is_stored & (windows.records > 0)).sum())
    records = int(windows.records.sum())
    counts["used"] += records
    counts["intermediate-result-suppression"] += records - begun
    count_overtime((windows.fired - windows.close)[windows.over], counts)


def _states(
    schema: pa.Schema, windows: _Windows, results: pa.StructArray, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield waiting entries with new records, and entries that are over and had a state row."""
    entries = windows.entries
    changed = np.flatnonzero(np.where(windows.over, windows.is_stored, windows.records > 0))
    if not len(changed):
        return
    row, stored, waits = windows.last[changed], windows.is_stored[changed], ~windows.over[changed]

    def was(name: str) -> Ints:
        """Return a column of the entries' state rows; 0 for entries without one."""
        return np.where(stored, ints(entries.column(name))[entries.first[changed]], 0)

    values = only(results.take(pa.array(row)), waits)
    size = np.zeros(len(row), np.int64)
    size[waits] = text_bytes(values.filter(pa.array(waits)))
    since = np.where(stored, was("since"), entries.timestamp[entries.first[changed]])
    columns = {
        "accumulator": values,
        "timestamp": windows.timestamp[changed],
        "live": waits,
        "pending": np.where(waits, was("pending") + windows.records[changed], 0),
        "since": pa.array(since, mask=~waits),
        "bytes": size,
        "due_at": pa.array(windows.close[changed], mask=~waits),
        "window_start": windows.start[changed],
        "window_end": windows.end[changed],
    }
    count_states(entries, row, waits, counts)
    counts["suppression-buffer-records"] += int(waits.sum()) - int(stored.sum())
    counts["suppression-buffer-bytes"] += int(size.sum() - was("bytes").sum())
    yield from state_rows(schema, entries, row, columns)
