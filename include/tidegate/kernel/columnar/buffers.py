"""The buffers of keys without windows: the rows of each, and how it ends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columnar import bounded
from tidegate.kernel.columnar.bounded import Holdings, Natural
from tidegate.kernel.columnar.keys import Ints, Keys, Mask, ints, view
from tidegate.kernel.counts import Counts
from tidegate.kernel.entry import NEVER
from tidegate.kernel.rows import FIRST, TIMER
from tidegate.kernel.stage import Batch, Stage


class Buffers:
    """One element per buffer, key by key, in the order in which they are emitted. All times are
    in epoch ms.

    Args:
        stage: A stage whose strategy holds values back.
        keys: Plain keys.
        counts: Gets the peak of a bounded buffer.

    Raises BufferFull if a buffer exceeds its bound and may not emit early.
    """

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
        """The number of buffers that are emitted early because there is no room for them."""
        # the record that fills a buffer also flushes it, before its own time fires any timer
        by_count = (count[self.first] <= timer.end[self.first]) & (count[self.first] < NEVER)
        by_record = by_count | evicted
        step, place = timer.step[self.first], keys.place[self.first]
        # a record reaches the timer; otherwise only the batch's end can
        in_time = ~by_record & (step < keys.times.last(self.first))
        batch_end = batch_ends(batch, keys, self.end - 1, ~by_record & ~in_time)
        self.due: Ints = timer.due[place]
        at_end = ~by_record & ~in_time & (self.due <= batch_end)
        self.over: Mask = by_record | in_time | at_end
        """Whether it is emitted; only the last buffer of a key may not be."""
        record = np.where(evicted, chain.evictor, self.end - 1)
        # a timer counts as fired when it was due, however late the batch runs (DESIGN, "Clock")
        self.at: Ints = np.where(by_record, keys.times.at[2 * keys.place[record] + 1], self.due)
        self.cause: Ints = self._causes(by_count, np.where(evicted, chain.evictor, -1), timer.waits[place])
        """The cause of its emission; see `EmittedRows`."""
        self.reason: pa.StringArray = pc.if_else(pa.array(by_count), "count", stage.emit.timer_reason)
        self.reason = pc.if_else(pa.array(evicted), "emit_early", self.reason)
        self.evicted = int(evicted.sum())
        """How many go out early because there is no room for them."""
        fired = np.where(in_time, keys.times.at[np.where(in_time, step, 0)], batch_end)
        self.overtime: Ints = (fired - self.due)[in_time | at_end]
        """The time in ms from when a timer was due to when it fired."""
        # a state row stands for all records that earlier batches have held back
        stored = np.where(keys.is_state[self.first], ints(keys.values("pending", self.first)), 1)
        self.records: Ints = stored + self.end - self.first - 1

    def _causes(self, by_count: Mask, evictor: Ints, waits: Mask) -> Ints:
        """Return the cause of each emission: the record that fills a buffer or finds no room in it, or the
        timer.

        If a timer is already due when the first record sets it, that record is the cause, unless its
        partition's time reached the timer with this record.
        """
        caused = np.where(by_count, self._keys.causes(self.end - 1), TIMER)
        if not waits.all():
            begun = self._keys.causes(self.first)
            caused = np.where(~by_count & ~waits & (begun != FIRST), begun, caused)
        return np.where(evictor >= 0, evictor, caused)

    def waiting(self) -> Ints:
        """Return per key the number of its buffer that is left; -1 if there is none."""
        left = np.flatnonzero(~self.over)
        waiting = np.full(len(self._keys.first), -1)
        waiting[self._keys.number[self.first[left]]] = left
        return waiting


class _Timers:
    """The timers of buffers that begin at a row.

    `due` is per place its time, `waits` whether that is still to come when the timer is set. `step` is per
    row the step in which it fires, beyond all others if no record's time fires it, and `end` the row after
    the buffer's last.
    """

    def __init__(self, stage: Stage, keys: Keys) -> None:
        now = keys.times.at[1::2]
        natural = stage.emit.due_since(stage.emit.starts_at(keys.placed.timestamp, now))
        state = keys.place[keys.state]
        self.due = np.maximum(natural, now)
        # a timer that was set late is later than the settings say: the stored one counts
        self.due[state] = ints(pc.fill_null(keys.values("due_at", keys.state), NEVER))
        self.waits = natural > now
        self.waits[state] = True  # otherwise the timer would have fired in the batch before
        self.step = keys.by_row(keys.times.reached(self.due))
        self.end = keys.times.row_at(self.step)


def _count_ends(full_at: int | None, keys: Keys) -> Ints:
    """Return per row, the row after the last of a full buffer that begins there; NEVER if its key ends
    before.
    """
    rows = np.arange(len(keys.number))
    if full_at is None:
        return np.broadcast_to(np.int64(NEVER), len(rows))
    # state may have `full_at` records already, if that was lowered: then the next record fills it
    missing = np.where(keys.is_state, np.maximum(full_at - ints(keys.column("pending")), 1) + 1, full_at)
    end = rows + missing
    """The row after its last."""
    return np.where(end <= keys.end[keys.number], end, NEVER)


def _chained(stage: Stage, keys: Keys, timer: _Timers, count: Ints, counts: Counts) -> Holdings:
    """Return the buffers, key by key."""
    end = timer.end if stage.emit.full_at is None else np.minimum(timer.end, count)
    first = _first_rows(keys, end)
    """The first row of each buffer: a record, or the state row that it comes from."""
    if stage.bound:
        return bounded.within(stage.bound, keys, Natural(timer.due, timer.step, end), first, counts)
    return Holdings(first, end[first], np.full(len(first), -1))


def _first_rows(keys: Keys, end: Ints) -> Ints:
    """Return the first row of each buffer: a key's next buffer begins where the one before it ends."""
    # the state row of a key that holds nothing back belongs to no buffer
    is_empty = keys.is_state[keys.first] & ~keys.begun()[keys.first]
    firsts: list[int] = []
    ends = view(end)
    # Where a buffer begins depends on the one before: this loop runs once per buffer, not per row.
    for row, key_end in zip((keys.first + is_empty).tolist(), keys.end.tolist(), strict=True):
        while row < key_end:
            firsts.append(row)
            row = ends[row]
    return np.array(firsts, np.int64)


def batch_ends(batch: Batch, keys: Keys, row: Ints, requested: Mask) -> Ints:
    """Return the time of rows' partitions at the end of the batch; where `requested` is False, the least of
    all.

    Args:
        row: Row numbers of `keys`.
        requested: Per element of `row`, whether its own partition counts.
    """
    ends = np.full(len(row), batch.least_end)
    if batch.ends:
        # only of requested rows: a look-up of each row's topic-partition is a loop in Python
        homes = zip(
            *(keys.values(name, row[requested]).to_pylist() for name in ("topic", "partition")), strict=True
        )
        ends[requested] = [batch.ends.get(home, batch.least_end) for home in homes]
    return ends
