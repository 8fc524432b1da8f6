"""Strategies that emit with a record: their reasons, and their rule on whole columns for `latest`.

It decides `update`, and a `change` that is exact or `within`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts, count_emissions
from tidegate.kernel.gate import without_refused
from tidegate.kernel.ordering import after_first, already_applied, ends, last_where, row_numbers, starts
from tidegate.kernel.rows import EMISSION, FIRST, RECORD, RECORDED, STATE, fill, least_times, with_column
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import Entry

FIRST_SEEN = {
    "new": "the key's first value, or its first after a deletion or the end of its time to live",
    "changed": "differs from what last went out",
    "deleted": "a record without a value deletes the key",
}
"""The reasons of `first_seen` -> their meaning."""


def first_seen(entry: Entry, now: Any) -> str | None:
    """Return the reason for an emission without comparison; a deletion only if consumers have
    seen the key.

    Example: a value after no emission is `new`, a deletion after none is None.
    """
    if now is None:
        return "deleted" if entry.emitted is not None else None
    return "changed" if entry.emitted is not None else "new"


def suits(stage: Stage, batch: Batch, value: pa.StructType) -> bool:
    """Return whether this module decides a stage, for records with these columns."""
    simple = stage.reduce.newest_only and stage.window is None and stage.deduplicate != "root"
    return simple and not batch.trace and stage.emit.decides_latest(value)


def fold_columns(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield emissions, refused values and state of whole keys; each accepted record is a candidate for
    emission.

    Raises ConditionFailed if an expectation has no result.
    """
    # first: the steps below expect at most one state row of a key, before its records
    rows = _newest_state(rows)
    if stage.deduplicate != "none":
        rows = _drop_applied(rows, counts)
    record = pc.equal(rows.column("kind"), RECORD)
    tombstone = pc.and_(record, rows.column("value").is_null())
    counts["used"] += pc.sum(record).as_py() or 0
    counts["tombstones"] += pc.sum(tombstone).as_py() or 0

    # a deletion always passes `where`: consumers have the value; null is a record that was not tested
    eligible = pc.or_(tombstone, pc.fill_null(rows.column("passes"), True))
    candidates = _only(rows, eligible)
    counts["filtered"] += rows.num_rows - candidates.num_rows
    if not stage.emit.emits_deletions:
        # consumers keep the value that was emitted before a deletion, and the next one replaces it
        candidates = _only(candidates, pc.invert(tombstone.filter(eligible)))
    candidates, refused = without_refused(stage.expectations, schema, candidates, counts)
    yield from refused
    is_record = pc.equal(candidates.column("kind"), RECORD)
    start = starts(candidates.column("key"))
    now, has_last = _candidates(candidates, start)
    out = pc.and_(is_record, stage.emit.emits_latest(now, has_last, start))
    # a deletion that deletes nothing does not count as a repeated value
    suppressed = pc.and_(pc.and_not(is_record, out), now.is_valid())
    counts["idempotent-update-skip"] += pc.sum(suppressed).as_py() or 0

    emitted = candidates.filter(out)
    yield _emissions(schema, batch, emitted, _reason(now.filter(out), has_last.filter(out)), counts)
    # under `change` a suppressed record writes no state: a batch costs what it changes
    forgets = stage.emit.forgets_suppressed
    changed = _keep_emitted(emitted) if forgets else _keep_everything(rows, emitted)
    live = pc.or_(changed.column("value").is_valid(), changed.column("emitted").is_valid())
    before = rows.column("key").filter(pc.fill_null(rows.column("live"), False))
    was_live = pc.is_in(changed.column("key"), value_set=before)
    counts["state-rows"] += (pc.sum(live).as_py() or 0) - (pc.sum(was_live).as_py() or 0)
    times = _flushed(changed, live) if stage.emit.stores_times else {}
    if stage.ttl is not None:
        times |= stage.ttl.state_columns(candidates, out)
    yield _states(schema, changed, live, counts, times)


def _newest_state(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with only the newest state row of each key, and no state without records."""
    keys = rows.column("key")
    is_state = pc.equal(rows.column("kind"), STATE)
    last_of_key = ends(starts(keys))
    next_is_state = pa.concat_arrays([is_state.slice(1), pa.array([False])])
    # state without records after it needs no decision: its key does not change
    superseded = pc.and_(is_state, pc.or_(last_of_key, next_is_state))
    return _only(rows, pc.invert(superseded))


def _only(rows: pa.RecordBatch, selected: pa.BooleanArray) -> pa.RecordBatch:
    """Return the selected rows; usually all are, and then nothing is copied."""
    return rows if pc.all(selected).as_py() else rows.filter(selected)


def _drop_applied(rows: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    state_row = pc.equal(rows.column("kind"), STATE)
    if not pc.any(state_row).as_py():
        return rows
    state = last_where(state_row, starts(rows.column("key")))
    unapplied = _only(rows, pc.or_(state_row, pc.invert(already_applied(rows, state))))
    counts["deduplicated"] += rows.num_rows - unapplied.num_rows
    return unapplied


def _candidates(candidates: pa.RecordBatch, start: pa.BooleanArray) -> tuple[pa.StructArray, pa.BooleanArray]:
    """Return the candidates' values (of state: the emitted one), and whether the one before had one."""
    is_state = pc.equal(candidates.column("kind"), STATE)
    now = candidates.column("value")
    if pc.any(is_state).as_py():
        # a state row counts as its key's last emission, with which the first record is compared
        now = pc.if_else(is_state, candidates.column("emitted"), now)
    return now, pc.and_not(after_first(now.is_valid().slice(0, max(len(now) - 1, 0)), len(now)), start)


def _reason(now: pa.StructArray, has_last: pa.BooleanArray) -> pa.StringArray:
    return pc.if_else(now.is_null(), "deleted", pc.if_else(has_last, "changed", "new"))


def _emissions(
    schema: pa.Schema, batch: Batch, rows: pa.RecordBatch, reason: pa.StringArray, counts: Counts
) -> pa.RecordBatch:
    count_emissions(rows.column("value"), reason, counts)
    start = starts(rows.column("key"))
    first = last_where(start, start)
    before = pc.max_element_wise(rows.column("time"), least_times(rows, batch))
    columns = {
        name: rows.column(name)
        for name in ("hash", "key", "topic", "partition", "offset", "timestamp", "source", RECORDED)
        if name in rows.schema.names
    }
    columns |= {
        "value": rows.column("value"),
        "at": pc.max_element_wise(before, rows.column("timestamp")),
        "turn": pc.if_else(pc.greater(rows.column("timestamp"), before), FIRST, rows.column("turn")),
        "part": rows.column("part"),
        "ordinal": pc.subtract(row_numbers(rows.num_rows), first),
        "reason": reason,
    }
    return fill(schema, EMISSION, columns, rows.num_rows)


def _keep_emitted(emitted: pa.RecordBatch) -> pa.RecordBatch:
    """Return each key's last emission as its new state."""
    last = emitted.filter(ends(starts(emitted.column("key"))))
    return with_column(last, "emitted", last.column("value"))


def _keep_everything(rows: pa.RecordBatch, emitted: pa.RecordBatch) -> pa.RecordBatch:
    """Return each key's last record as its new value, with what the key emitted last."""
    start = starts(rows.column("key"))
    last = ends(start)
    has_state = last_where(pc.equal(rows.column("kind"), STATE), start)
    previously = rows.column("emitted").take(has_state).filter(last)
    values = rows.filter(last)
    final = emitted.filter(ends(starts(emitted.column("key"))))
    sent = pc.index_in(values.column("key"), value_set=final.column("key"))
    now = pc.if_else(sent.is_valid(), final.column("value").take(sent), previously)
    values = with_column(values, "emitted", now)
    # a key whose records were all repetitions keeps the row that is stored
    return values.filter(pc.equal(values.column("kind"), RECORD))


def _flushed(rows: pa.RecordBatch, live: pa.BooleanArray) -> dict[str, pa.Array]:
    """Return the columns of a state row that holds nothing back; an exact `change` never reads them."""
    zeros = pa.repeat(0, rows.num_rows)
    emitted_ms = pc.if_else(live, rows.column("timestamp"), None)
    return {"pending": zeros, "bytes": zeros, "emitted_timestamp": emitted_ms}


def _states(
    schema: pa.Schema,
    rows: pa.RecordBatch,
    live: pa.BooleanArray,
    counts: Counts,
    flushed: dict[str, pa.Array],
) -> pa.RecordBatch:
    names = ("hash", "key", "topic", "partition", "offset", "timestamp", "source", "emitted")
    counts["state-rows-changed"] += rows.num_rows
    columns = {name: rows.column(name) for name in names} | {
        "accumulator": rows.column("value"),
        "live": live,
    }
    return fill(schema, STATE, columns | flushed, rows.num_rows)
