"""The buffers of keys without windows: the rows of each, and how it ends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar import bounded
from tidegate.core.columnar.bounded import Holdings, Natural
from tidegate.core.columnar.keys import Ints, Keys, Mask, ints, view
from tidegate.core.counts import Counts
from tidegate.core.entry import NEVER
from tidegate.core.rows import FIRST, TIMER
from tidegate.core.stage import Batch, Stage


class Buffers:
    """One element per buffer, key by key, in the order in which they go out. All times in epoch ms."""

    def __init__(self, stage: Stage, batch: Batch, keys: Keys, counts: Counts) -> None:
        self._keys = keys
        timer = _Timers(stage, keys)
        count = _count_ends(stage.emit.full_at, keys)
        chain = _chained(stage, keys, timer, count, counts)
        self.first: Ints = chain.first
        """The first row of each, a record or the state row that it comes from."""
        self.end: Ints = chain.end
        """The row after its last."""
        evicted = chain.evictor >= 0
        by_count = (count[self.first] <= timer.end[self.first]) & (count[self.first] < NEVER)
        by_record = by_count | evicted
        step, place = timer.step[self.first], keys.place[self.first]
        in_time = ~by_record & (step < keys.times.last(self.first))
        batch_end = batch_ends(batch, keys, self.end - 1, ~by_record & ~in_time)
        self.due: Ints = timer.due[place]
        at_end = ~by_record & ~in_time & (self.due <= batch_end)
        self.over: Mask = by_record | in_time | at_end
        """Whether it goes out; of each key only the last may not."""
        record = np.where(evicted, chain.evictor, self.end - 1)
        self.at: Ints = np.where(by_record, keys.times.at[2 * keys.place[record] + 1], self.due)
        self.cause: Ints = self._causes(by_count, np.where(evicted, chain.evictor, -1), timer.waits[place])
        """See `EmittedRows`."""
        self.reason: pa.StringArray = pc.if_else(pa.array(by_count), "count", stage.emit.timer_reason)
        self.reason = pc.if_else(pa.array(evicted), "emit_early", self.reason)
        self.evicted = int(evicted.sum())
        """How many go out early because there is no room for them."""
        fired = np.where(in_time, keys.times.at[np.where(in_time, step, 0)], batch_end)
        self.overtime: Ints = (fired - self.due)[in_time | at_end]
        """How long after its due time each timer fired."""
        stored = np.where(keys.is_state[self.first], ints(keys.values("pending", self.first)), 1)
        self.records: Ints = stored + self.end - self.first - 1

    def _causes(self, by_count: Mask, evictor: Ints, waits: Mask) -> Ints:
        """A record that fills a buffer, or has no room in it; or the timer, also one that is due when the
        first record sets it: that is the record's doing, unless time has come to it with the record."""
        caused = np.where(by_count, self._keys.causes(self.end - 1), TIMER)
        if not waits.all():
            begun = self._keys.causes(self.first)
            caused = np.where(~by_count & ~waits & (begun != FIRST), begun, caused)
        return np.where(evictor >= 0, evictor, caused)

    def waiting(self) -> Ints:
        """Per key, the buffer that is left; -1 if none is."""
        left = np.flatnonzero(~self.over)
        waiting = np.full(len(self._keys.first), -1)
        waiting[self._keys.number[self.first[left]]] = left
        return waiting


class _Timers:
    """The timer of a buffer that begins at a row.

    Per place its time, `due`, and whether that is still to come when it is set, `waits`. Per row the `step`
    in which it fires, after all others if no record's time makes it fire, and `end`, the row after the
    buffer's last.
    """

    def __init__(self, stage: Stage, keys: Keys) -> None:
        now = keys.times.at[1::2]
        natural = stage.emit.due_since(stage.emit.starts_at(keys.placed.timestamp, now))
        state = keys.place[keys.state]
        self.due = np.maximum(natural, now)
        self.due[state] = ints(pc.fill_null(keys.values("due_at", keys.state), NEVER))
        self.waits = natural > now
        self.waits[state] = True  # otherwise it would have fired
        self.step = keys.by_row(keys.times.reached(self.due))
        self.end = keys.times.row_at(self.step)


def _count_ends(full_at: int | None, keys: Keys) -> Ints:
    """Per row, the row after the last of a full buffer that begins there; NEVER: its key ends before."""
    rows = np.arange(len(keys.number))
    if full_at is None:
        return np.broadcast_to(np.int64(NEVER), len(rows))
    missing = np.where(keys.is_state, np.maximum(full_at - ints(keys.column("pending")), 1) + 1, full_at)
    end = rows + missing
    return np.where(end <= keys.end[keys.number], end, NEVER)


def _chained(stage: Stage, keys: Keys, timer: _Timers, count: Ints, counts: Counts) -> Holdings:
    """The buffers that there are, key by key."""
    end = timer.end if stage.emit.full_at is None else np.minimum(timer.end, count)
    first = _first_rows(keys, end)
    if stage.bound:
        return bounded.within(stage.bound, keys, Natural(timer.due, timer.step, end), first, counts)
    return Holdings(first, end[first], np.full(len(first), -1))


def _first_rows(keys: Keys, end: Ints) -> Ints:
    """Each buffer of a key begins where the one before it ends."""
    is_empty = keys.is_state[keys.first] & ~keys.begun()[keys.first]
    firsts: list[int] = []
    ends = view(end)
    for row, key_end in zip((keys.first + is_empty).tolist(), keys.end.tolist(), strict=True):
        while row < key_end:
            firsts.append(row)
            row = ends[row]
    return np.array(firsts, np.int64)


def batch_ends(batch: Batch, keys: Keys, row: Ints, requested: Mask) -> Ints:
    """The time of rows' partitions at the end of the batch; where it is not asked for, the least."""
    ends = np.full(len(row), batch.least_end)
    if batch.ends:
        homes = zip(
            *(keys.values(name, row[requested]).to_pylist() for name in ("topic", "partition")), strict=True
        )
        ends[requested] = [batch.ends.get(home, batch.least_end) for home in homes]
    return ends
