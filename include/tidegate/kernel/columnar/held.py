"""`time_limit`, `interval` and `threshold` without a window, on whole columns.

For every row at once, the end of a buffer that would begin there is computed: by its timer, in the step in
which the time of the key's partition reaches it, or by count. Then each key's buffers follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columnar.buffers import Buffers
from tidegate.kernel.columnar.contents import Contents, Events, Newest
from tidegate.kernel.columnar.keys import Ints, Keys, Mask, ints, mask, only
from tidegate.kernel.columnar.result import (
    EmittedRows,
    count_overtime,
    count_states,
    emission_rows,
    state_rows,
)
from tidegate.kernel.counts import Counts
from tidegate.kernel.entry import NEVER, Entry
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.strategy import Emit


class Buffering(Emit):
    """A strategy that holds values back until a timer fires, or a buffer is full."""

    holds: ClassVar[bool] = True

    def is_decided_by_key(self, stage: Stage) -> bool:
        """Return whether nothing but a key's own records decides, and no condition can fail."""
        return stage.window is None and stage.where is None

    def special(self, stage: Stage, keys: Keys) -> Iterator[Mask]:
        """Yield masks of the rows whose keys are left to `folding`.

        Args:
            keys: All keys of the rows, each with its state.
        """
        # the rules on columns assume that time never goes back, and state that this stage has left
        yield from (keys.before_epoch(), ~keys.times.ascend, _edited(stage, keys), *keys.duplicates(stage))
        if not stage.reduce.takes_nulls:
            yield keys.tombstones()

    def decide(
        self, stage: Stage, batch: Batch, schema: pa.Schema, keys: Keys, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        """Yield emissions and state of plain keys: buffers that are over are emitted, the rest is kept.

        Args:
            batch: The times of topic-partitions at its end, which fire the last timers.
            schema: The kernel's output schema.
            counts: Gets what became of the records.

        Raises BufferFull if a buffer exceeds its bound and may not emit early.
        """
        buffers = Buffers(stage, batch, keys, counts)
        contents: Contents = Events(keys) if stage.reduce.lists_events else Newest(keys)
        _count(stage, keys, buffers, counts)
        emitted = _emitted(keys, buffers, contents)
        yield from emission_rows(schema, keys, emitted, counts)
        yield from _states(stage, schema, keys, buffers, contents, emitted, counts)


class BufferingNewest(Buffering):
    """A strategy that holds back the newest value."""

    def due(self, entry: Entry) -> int:
        """Return when the first value held back is due; without one, the end of the window."""
        return self.due_since(entry.since) if entry.pending else entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for emitting what is held back."""
        return self.timer_reason if entry.pending else None

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether the value is the newest record's own."""
        return stage.reduce.newest_only and self.is_decided_by_key(stage)


def _edited(stage: Stage, keys: Keys) -> Mask:
    """Return state that the stage in its present form would not have left: its strategy or settings have
    changed.
    """
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
    if stage.emit.empties:
        values, timestamp = only(values, waits), np.where(waits, timestamp, -1)
    size = np.zeros(len(row), np.int64)
    size[waits] = contents.sizes(values.filter(pa.array(waits)))
    due = np.where(waits, buffers.due[left], NEVER)
    last_emitted = _last_emitted(stage, keys, changed, flush[changed], emitted)
    live = waits | mask(values.is_valid())
    if "emitted" in last_emitted:
        live |= mask(last_emitted["emitted"].is_valid())
    columns = {
        "accumulator": values,
        "timestamp": timestamp,
        "live": live,
        "pending": np.where(waits, buffers.records[left], 0),
        "since": pa.array(_since(stage, keys, first), mask=~waits),
        "bytes": size,
        "due_at": pa.array(due, mask=due == NEVER),
        **{name: only(column, live) for name, column in last_emitted.items()},
    }
    count_states(keys, row, live, counts)
    start = keys.first[changed]
    # a difference: `metrics.running_totals` adds it to the total before the batch
    counts["suppression-buffer-records"] += int(waits.sum()) - int(keys.begun()[start].sum())
    counts["suppression-buffer-bytes"] += int(size.sum()) - int(ints(keys.values("bytes", start)).sum())
    yield from state_rows(schema, keys, row, columns)


def _since(stage: Stage, keys: Keys, first: Ints) -> Ints:
    """Return the times from which buffers wait that begin with these rows."""
    start = stage.emit.starts_at(keys.timestamp[first], keys.now[first])
    return np.where(keys.is_state[first], ints(keys.values("since", first)), start)


def _last_emitted(
    stage: Stage, keys: Keys, changed: Ints, flush: Ints, emitted: EmittedRows
) -> dict[str, pa.Array]:
    """Return what each changed key emitted last: emission `flush` of this batch, or (-1) what its
    state has.
    """
    first, went_out = keys.first[changed], flush >= 0
    stored_ms, stored = (keys.values(name, first) for name in ("emitted_timestamp", "emitted"))
    # an exact `change` stores no `emitted_timestamp`: its state rows are those of its emissions
    if not stage.emit.empties:
        stored_ms = pc.if_else(
            pc.and_(stored_ms.is_null(), stored.is_valid()), pa.array(keys.timestamp[first]), stored_ms
        )
    place = pa.array(np.where(went_out, flush, len(emitted.row) + np.arange(len(first))))
    columns = {"emitted_timestamp": pa.concat_arrays([pa.array(emitted.timestamp), stored_ms]).take(place)}
    if not stage.emit.empties:
        columns["emitted"] = pa.concat_arrays([emitted.value, stored]).take(place)
    return columns
