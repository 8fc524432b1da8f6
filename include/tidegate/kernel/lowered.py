"""Correct state that a clock ahead of now has left: values wait since a time that has not come yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.entry import NEVER, Entry
from tidegate.kernel.stage import Place, Stage
from tidegate.kernel.timers import Timers

_AT, _SINCE, _FLUSHED, _EMITTED = "due_at", "since", "flushed_at", "emitted_timestamp"
_ENTRY = ("key", "window_start", "window_end", "pending", _SINCE, _FLUSHED, _AT)


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
        rows = _with(rows, name, [_lower(value, time, now_ms) for value, time in values])
    entries = zip(rows.select(_ENTRY).to_pylist(), place_times, strict=True)
    return _with(rows, _AT, [_due_at(stage, entry, time) for entry, time in entries])


def _names_by_clock(stage: Stage) -> list[str]:
    """Return the columns with a time of the clock, and not a record's timestamp."""
    if stage.clock != "run":
        return []
    names = [_SINCE] if stage.emit.waits_from_arrival else []
    if stage.emit.remembers_flush or stage.emit.repeats_by_clock:
        names.append(_FLUSHED)
    return [*names, _EMITTED] if stage.emit.repeats_by_clock else names


def _lower(value: int | None, time: int, now_ms: int) -> int | None:
    return time if value is not None and value > now_ms else value


def _due_at(stage: Stage, row: Mapping[str, Any], time: int) -> int | None:
    """Return when the entry's timer fires now; None: it has none."""
    if row[_AT] is None:
        return None
    span = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    close = NEVER if stage.window is None or span is None else stage.window.close(span)
    # an entry only to ask the strategy for its timer; no row is read
    entry = Entry(row["key"], span, close, row=0)
    entry.pending, entry.since = row["pending"] or 0, row[_SINCE]
    entry.flushed_at = row[_FLUSHED]
    entry.emitted = row[_FLUSHED]  # only its presence counts, and a flushed value was emitted
    Timers(stage.emit, stage.window).set(entry, time)
    return None if entry.due == NEVER else entry.due


def _with(rows: pa.Table, name: str, values: list[int | None]) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), pa.array(values, pa.int64()))
