"""`time_limit`, `interval`, `quiet` and `threshold` without a window, on whole columns.

For every row at once, the end of a buffer that would begin there is computed: by its timer, in the step in
which the time of the key's partition reaches it, or by count. Then each key's buffers follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import bounded
from tidegate.kernel.bounded import Holdings, Natural
from tidegate.kernel.columns import Keys, Times, accumulated
from tidegate.kernel.counts import Counts
from tidegate.kernel.outcome import EmittedRows, count_overtime, count_states, emission_rows, state_rows
from tidegate.kernel.reduce import Contents
from tidegate.kernel.rows import TIMER, Ints, Mask, ints, mask, only, view
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategy import Emit
from tidegate.kernel.tables import made_by_tables


class Buffering(Emit):
    """A strategy that holds values back until a timer fires, or a buffer is full."""

    holds: ClassVar[bool] = True

    def is_decided_by_key(self, stage: Stage) -> bool:
        """Return whether nothing but a key's own records decides, and no condition can fail."""
        return stage.window is None and stage.where is None

    def special(self, stage: Stage, keys: Keys) -> Iterator[Mask]:
        # the rules on columns assume that time never goes back, and state that this stage has left
        ascend = _times(stage, keys).ascend
        yield from (keys.before_epoch(), ~ascend, _edited(stage, keys), *keys.duplicates(stage))
        if not stage.reduce.takes_nulls:
            yield keys.tombstones()
        if stage.expects:
            yield keys.is_state & mask(made_by_tables(keys.rows))

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        buffers = Buffers(stage, keys, counts, self.last_rows(keys))
        contents = stage.reduce.contents(keys)
        _count(stage, keys, buffers, counts)
        emitted = _emitted(keys, buffers, contents)
        yield from emission_rows(schema, keys, emitted, counts)
        yield from _states(stage, schema, keys, buffers, contents, emitted, counts)

    def last_rows(self, keys: Keys) -> Mask | None:
        """Return the records that end their buffer by their own value; None: there is no such rule."""
        return None


class BufferingNewest(Buffering):
    """A strategy that holds back the newest value."""

    def due(self, entry: Entry) -> int:
        """Return when the first value held back is due; without one, the end of the window."""
        return self.due_since(entry.since) if entry.pending else entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        return self.timer_reason if entry.pending else None

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether the value is the newest record's own."""
        return stage.reduce.newest_only and self.is_decided_by_key(stage)


def _times(stage: Stage, keys: Keys) -> Times:
    return keys.silences if stage.emit.restarts else keys.times


def _edited(stage: Stage, keys: Keys) -> Mask:
    """Return state that the stage would not have left: its strategy or settings have changed."""
    has_timer, windowed, has_value = (
        mask(keys.values(name, keys.state).is_valid()) for name in ("due_at", "window_start", "accumulator")
    )
    pending = keys.stored("pending") > 0
    natural = stage.emit.due_since(keys.stored("since"))
    due = np.where(has_timer, keys.stored("due_at"), NEVER)
    # a timer that was set late is later than the settings say, but never earlier
    moved = np.where(pending, (natural > due) | (has_timer != (natural != NEVER)), has_timer)
    sized = ~pending & (keys.stored("bytes") != 0)
    edited = moved | sized | windowed
    if stage.reduce.lists_events:
        edited |= (has_value != pending) | (~pending & (keys.timestamp[keys.state] != -1))
    return keys.states(edited)


def _count(stage: Stage, keys: Keys, buffers: Buffers, counts: Counts) -> None:
    records = int((~keys.is_state).sum())
    counts["used"] += records
    counts["tombstones"] += int(keys.tombstones().sum())
    counts["buffer-evict"] += buffers.evicted
    if not stage.emit.empties:
        begun_by_record = int((~keys.is_state[buffers.first]).sum())
        counts["intermediate-result-suppression"] += records - begun_by_record
    count_overtime(buffers.overtime, counts)


def _emitted(keys: Keys, buffers: Buffers, contents: Contents) -> EmittedRows:
    """Return the emissions; a deletion is emitted only for a value that consumers have."""
    over = np.flatnonzero(buffers.over)
    values = contents.values(buffers.first[over], buffers.end[over])
    # null: the newest record deletes its key
    if values.null_count:
        out = _is_due(keys, buffers.first[over], mask(values.is_valid()))
        over, values = over[out], values.filter(pa.array(out))
    first, end = buffers.first[over], buffers.end[over]
    return EmittedRows(
        end - 1,
        values,
        contents.timestamps(first, end),
        buffers.at[over],
        buffers.cause[over],
        buffers.reason.take(pa.array(over)),
    )


def _is_due(keys: Keys, first: Ints, has_value: Mask) -> Mask:
    """Return which of the buffers that end have a value, or delete the value that was emitted before."""
    number = keys.number[first]
    has_stored = mask(keys.values("emitted", keys.first[number]).is_valid())
    is_first = np.diff(number, prepend=-1) != 0
    # a later buffer replaces what its key's buffer before it has emitted
    consumers_have = np.where(is_first, has_stored, np.append(False, has_value[:-1]))
    return has_value | consumers_have


def _states(
    stage: Stage,
    schema: pa.Schema,
    keys: Keys,
    buffers: Buffers,
    contents: Contents,
    emitted: EmittedRows,
    counts: Counts,
) -> Iterator[pa.RecordBatch]:
    """Yield a state row for each key with records or with an emission."""
    flush = np.full(len(keys.first), -1)
    flush[keys.number[emitted.row]] = np.arange(len(emitted.row))  # NumPy keeps a key's last
    # a state row that is its key's last row has no record, and stays unless its buffer goes out
    changes = ~keys.is_state[keys.end - 1]
    changes[keys.number[buffers.first[buffers.over]]] = True
    changed = np.flatnonzero(changes)
    if not len(changed):
        return
    row, left = keys.end[changed] - 1, buffers.waiting()[changed]
    waits = left >= 0
    first = np.where(waits, buffers.first[left], row)
    values, timestamp = contents.values(first, row + 1), contents.timestamps(first, row + 1)
    if stage.empties:
        values, timestamp = only(values, waits), np.where(waits, timestamp, -1)
    size = np.zeros(len(row), np.int64)
    size[waits] = contents.sizes(values.filter(pa.array(waits)))
    due, since = np.where(waits, buffers.due[left], NEVER), buffers.since[left]
    last_emitted = _last_emitted(stage, keys, changed, flush[changed], emitted)
    live = waits | mask(values.is_valid())
    if "emitted" in last_emitted:
        live |= mask(last_emitted["emitted"].is_valid())
    columns = {
        "accumulator": values,
        "timestamp": timestamp,
        "live": live,
        "pending": np.where(waits, buffers.records[left], 0),
        "since": pa.array(since, mask=~waits),
        "bytes": size,
        "due_at": pa.array(due, mask=due == NEVER),
        **{name: only(column, live) for name, column in last_emitted.items()},
    }
    count_states(keys, row, live, counts)
    start = keys.first[changed]
    # a difference: `counts.running_totals` adds it to the total before the batch
    counts["suppression-buffer-records"] += int(waits.sum()) - int(keys.begun()[start].sum())
    counts["suppression-buffer-bytes"] += int(size.sum()) - int(ints(keys.values("bytes", start)).sum())
    yield from state_rows(schema, keys, row, columns)


def _last_emitted(
    stage: Stage, keys: Keys, changed: Ints, flush: Ints, emitted: EmittedRows
) -> dict[str, pa.Array]:
    """Return each changed key's last emission: `flush` of this batch, or (-1) that of its state."""
    first, went_out = keys.first[changed], flush >= 0
    stored_ms, stored = (keys.values(name, first) for name in ("emitted_timestamp", "emitted"))
    # an exact `change` stores no `emitted_timestamp`: its state rows are those of its emissions
    if not stage.empties:
        stored_ms = pc.if_else(
            pc.and_(stored_ms.is_null(), stored.is_valid()), pa.array(keys.timestamp[first]), stored_ms
        )
    place = pa.array(np.where(went_out, flush, len(emitted.row) + np.arange(len(first))))
    columns = {"emitted_timestamp": pa.concat_arrays([pa.array(emitted.timestamp), stored_ms]).take(place)}
    if not stage.empties:
        columns["emitted"] = pa.concat_arrays([emitted.value, stored]).take(place)
    return columns


class Buffers:
    """One element per buffer, key by key, in the order in which they are emitted. All times are
    in epoch ms.

    Args:
        stage: A stage whose strategy holds values back.
        keys: Plain keys.
        counts: Gets the peak of a bounded buffer.
        last_rows: The records that end their buffer by their own value; None: none does.

    Raises BufferFull if a buffer exceeds its bound and may not emit early.
    """

    def __init__(self, stage: Stage, keys: Keys, counts: Counts, last_rows: Mask | None = None) -> None:
        self._keys = keys
        times = _times(stage, keys)
        timer = _Timers(stage, keys, times)
        full = _count_ends(stage.emit.full_at, keys)
        count = full if last_rows is None else np.minimum(full, _value_ends(last_rows, keys))
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
        # the row that sets the timer: each record sets it anew, or only the first one sets it
        setter = self.end - 1 if stage.emit.restarts else self.first
        step, place = timer.step[setter], keys.place[setter]
        # a record reaches the timer; otherwise only the batch's end can
        in_time = ~by_record & (step < times.last(self.first))
        batch_end = keys.batch_ends(self.end - 1, ~by_record & ~in_time)
        self.due: Ints = timer.due[place]
        self.since: Ints = timer.since[place]
        """The time from which each waits."""
        at_end = ~by_record & ~in_time & (self.due <= batch_end)
        self.over: Mask = by_record | in_time | at_end
        """Whether it is emitted; only the last buffer of a key may not be."""
        record = np.where(evicted, chain.evictor, self.end - 1)
        # a timer counts as fired when it was due, however late the batch runs (docs/semantics.md, "Timers")
        self.at: Ints = np.where(by_record, times.at[2 * keys.place[record] + 1], self.due)
        evictor = np.where(evicted, chain.evictor, -1)
        self.cause: Ints = self._causes(by_count, evictor, timer.waits[place], setter)
        """The cause of its emission; see `EmittedRows`."""
        self.reason: pa.StringArray = pc.if_else(pa.array(by_count), "count", stage.emit.timer_reason)
        by_value = by_count & (count[self.first] < full[self.first])
        self.reason = pc.if_else(pa.array(by_value), "until", self.reason)
        self.reason = pc.if_else(pa.array(evicted), "emit_early", self.reason)
        self.evicted = int(evicted.sum())
        """How many go out early because there is no room for them."""
        fired = np.where(in_time, times.at[np.where(in_time, step, 0)], batch_end)
        self.overtime: Ints = (fired - self.due)[in_time | at_end]
        """The time in ms from when a timer was due to when it fired."""
        # a state row stands for all records that earlier batches have held back
        stored = np.where(keys.is_state[self.first], ints(keys.values("pending", self.first)), 1)
        self.records: Ints = stored + self.end - self.first - 1

    def _causes(self, by_count: Mask, evictor: Ints, waits: Mask, setter: Ints) -> Ints:
        """Return the cause of each emission: the record that fills a buffer or finds no room in it, or the
        timer.

        If a timer is already due when a record sets it, that record is the cause, unless its partition's time
        reached the timer with this record.
        """
        caused = np.where(by_count, self._keys.causes(self.end - 1), TIMER)
        if not waits.all():
            set_by = self._keys.causes(setter)
            caused = np.where(~by_count & ~waits & (set_by >= 0), set_by, caused)
        return np.where(evictor >= 0, evictor, caused)

    def waiting(self) -> Ints:
        """Return per key the number of its buffer that is left; -1 if there is none."""
        left = np.flatnonzero(~self.over)
        waiting = np.full(len(self._keys.first), -1)
        waiting[self._keys.number[self.first[left]]] = left
        return waiting


class _Timers:
    """The timers of buffers that begin at a row, or, if each record starts the timer anew, end with it.

    `since` is per place the time from which the buffer waits, `due` the timer's time, and `waits` whether
    that is still to come when the timer is set. `step` is per row the step in which it fires, beyond all
    others if no record's time fires it, and `end` the row after the last one of a buffer that begins there.
    """

    def __init__(self, stage: Stage, keys: Keys, times: Times) -> None:
        now = times.at[1::2]
        state = keys.place[keys.state]
        self.since: Ints = np.array(stage.emit.starts_at(keys.placed.timestamp, now))
        self.since[state] = keys.stored("since")
        if stage.emit.restarts:
            self.since = _newest_so_far(keys, self.since)
        natural = stage.emit.due_since(self.since)
        self.due = np.maximum(natural, now)
        # a timer that was set late is later than the settings say: the stored one counts
        self.due[state] = ints(pc.fill_null(keys.values("due_at", keys.state), NEVER))
        self.waits = natural > now
        self.waits[state] = True  # otherwise the timer would have fired in the batch before
        self.step = keys.by_row(times.reached(self.due))
        self.end = times.row_at(self.step)
        if stage.emit.restarts:
            self.end = _ends_of_silences(self.end)


def _newest_so_far(keys: Keys, since: Ints) -> Ints:
    """Return per place its key's latest time so far: buffers before whose time is later are over."""
    since = keys.by_row(since)
    # the state of a key that holds nothing back waits from no time
    since[keys.is_state & ~keys.begun()] = -1
    return keys.by_place(accumulated(np.maximum, since, keys))


def _ends_of_silences(end: Ints) -> Ints:
    """Return per row the row after the last of its silence: no record comes before that one's timer fires.

    Args:
        end: Per row, the row before which the timer fires that the row sets.
    """
    last = np.flatnonzero(end == np.arange(1, len(end) + 1))
    ends: Ints = last[np.searchsorted(last, np.arange(len(end)))] + 1
    return ends


def _count_ends(full_at: int | None, keys: Keys) -> Ints:
    """Return per row the end of a full buffer that begins there; NEVER if its key ends before."""
    rows = np.arange(len(keys.number))
    if full_at is None:
        return np.broadcast_to(np.int64(NEVER), len(rows))
    # state may have `full_at` records already, if that was lowered: then the next record fills it
    missing = np.where(keys.is_state, np.maximum(full_at - ints(keys.column("pending")), 1) + 1, full_at)
    end = rows + missing
    """The row after its last."""
    return np.where(end <= keys.end[keys.number], end, NEVER)


def _value_ends(last_rows: Mask, keys: Keys) -> Ints:
    """Return per row the row after the next ending value; NEVER if its key ends before."""
    places = np.append(np.flatnonzero(last_rows), NEVER - 1)
    end: Ints = places[np.searchsorted(places, np.arange(len(last_rows)))] + 1
    return np.where(end <= keys.end[keys.number], end, NEVER)


def _chained(stage: Stage, keys: Keys, timer: _Timers, count: Ints, counts: Counts) -> Holdings:
    """Return the buffers, key by key."""
    end = np.minimum(timer.end, count)
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
