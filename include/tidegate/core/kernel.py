"""The kernel: rows sorted by key and position in; state changes, emissions and counts out.

Everything here works on whole columns; there is no Python loop per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.emit import Emit
from tidegate.core.grouping import ends, last_where, previous, row_numbers, starts, whole_keys
from tidegate.core.ordering import already_applied, merge_partitions
from tidegate.core.rows import COUNTS, EMISSION, QUARANTINED, RECORD, STATE, Counts, fill, output_schema


@dataclass(frozen=True)
class Stage:
    """What the kernel needs to know of a stage. The reduce is `latest`."""

    emit: Emit


def decide(stage: Stage, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply a stage to sorted rows (see `rows`): yields state, emission and quarantined rows, then counts.

    The input must have at least one batch, though it may be empty: its schema gives the output's.
    """
    counts = Counts()
    schema: pa.Schema | None = None

    def accepted_rows() -> Iterator[pa.RecordBatch]:
        nonlocal schema
        for batch in batches:
            schema = schema or output_schema(
                batch.schema.field("value").type, batch.schema.field("input").type
            )
            quarantined = pc.equal(batch.column("kind"), QUARANTINED)
            if pc.any(quarantined).as_py():
                held.append(_pass_through(schema, batch.filter(quarantined), counts))
                batch = batch.filter(pc.invert(quarantined))
            yield batch

    held: list[pa.RecordBatch] = []
    for rows in whole_keys(accepted_rows()):
        assert schema is not None  # set with the first batch, and rows come out of batches
        yield from _latest(stage.emit, schema, rows, counts)
        while held:
            yield held.pop()
    yield from held
    if schema is not None:
        yield fill(schema, COUNTS, {"counts": pa.array([counts.to_json()])}, 1)


def _pass_through(schema: pa.Schema, rows: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    counts["quarantined"] += rows.num_rows
    names = ("topic", "partition", "offset", "timestamp", "input")
    return fill(schema, QUARANTINED, {name: rows.column(name) for name in names}, rows.num_rows)


def _latest(emit: Emit, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts) -> Iterator[pa.RecordBatch]:
    """`reduce: latest` over whole keys: each accepted record is a candidate for emission as it stands."""
    rows, merged_keys = merge_partitions(_newest_state(rows))
    rows = _drop_applied(rows, counts)
    record = pc.equal(rows.column("kind"), RECORD)
    tombstone = pc.and_(record, rows.column("value").is_null())
    counts["used"] += pc.sum(record).as_py() or 0
    counts["tombstones"] += pc.sum(tombstone).as_py() or 0
    counts["keys-in-several-partitions"] += merged_keys

    eligible = pc.or_(tombstone, pc.fill_null(rows.column("passes"), True))
    counts["filtered"] += pc.sum(pc.invert(eligible)).as_py() or 0
    candidates = rows.filter(eligible)
    now, last = _candidates_beside_last(candidates)
    out = pc.and_(pc.equal(candidates.column("kind"), RECORD), emit.goes_out(now, last))
    suppressed = pc.and_(pc.and_not(pc.equal(candidates.column("kind"), RECORD), out), now.is_valid())
    counts["idempotent-update-skip"] += pc.sum(suppressed).as_py() or 0

    emitted = candidates.filter(out)
    yield _emissions(schema, emitted, _reason(now.filter(out), last.filter(out)), counts)
    changed = _keep_everything(rows, emitted) if emit.remembers_suppressed else _keep_emitted(emitted)
    yield _states(schema, changed, counts)


def _newest_state(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Of several state rows of a key, which come oldest first, only the last; and none without records."""
    keys = rows.column("key")
    is_state = pc.equal(rows.column("kind"), STATE)
    last_of_key = ends(starts(keys))
    next_is_state = pa.concat_arrays([is_state.slice(1), pa.array([False])])
    superseded = pc.and_(is_state, pc.or_(last_of_key, next_is_state))
    return rows.filter(pc.invert(superseded)) if pc.any(superseded).as_py() else rows


def _drop_applied(rows: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    state_row = pc.equal(rows.column("kind"), STATE)
    if not pc.any(state_row).as_py():
        return rows
    state = last_where(state_row, starts(rows.column("key")))
    applied = pc.and_(pc.invert(state_row), already_applied(rows, state))
    dropped = pc.sum(applied).as_py() or 0
    counts["deduplicated"] += dropped
    return rows.filter(pc.invert(applied)) if dropped else rows


def _candidates_beside_last(candidates: pa.RecordBatch) -> tuple[pa.StructArray, pa.StructArray]:
    """Per candidate, its value and that of the one before it; a state row stands for what it emitted."""
    is_state = pc.equal(candidates.column("kind"), STATE)
    now = candidates.column("value")
    if pc.any(is_state).as_py():
        now = pc.if_else(is_state, candidates.column("emitted"), now)
    return now, previous(now, starts(candidates.column("key")))


def _reason(now: pa.StructArray, last: pa.StructArray) -> pa.StringArray:
    return pc.if_else(now.is_null(), "deleted", pc.if_else(last.is_null(), "new", "changed"))


def _emissions(
    schema: pa.Schema, rows: pa.RecordBatch, reason: pa.StringArray, counts: Counts
) -> pa.RecordBatch:
    for entry in pc.value_counts(reason).to_pylist():
        counts["emitted." + entry["values"]] += entry["counts"]
    counts["emitted"] += rows.num_rows
    start = starts(rows.column("key"))
    first = last_where(start, start)
    columns = {
        name: rows.column(name) for name in ("key", "topic", "partition", "offset", "timestamp", "source")
    }
    columns |= {
        "value": rows.column("value"),
        "ordinal": pc.subtract(row_numbers(rows.num_rows), first),
        "reason": reason,
    }
    return fill(schema, EMISSION, columns, rows.num_rows)


def _keep_emitted(emitted: pa.RecordBatch) -> pa.RecordBatch:
    """Each key's last emission is its new state."""
    last = emitted.filter(ends(starts(emitted.column("key"))))
    return last.set_column(last.schema.get_field_index("emitted"), "emitted", last.column("value"))


def _keep_everything(rows: pa.RecordBatch, emitted: pa.RecordBatch) -> pa.RecordBatch:
    """Each key's last record is its new value; beside it stands what the key last emitted."""
    start = starts(rows.column("key"))
    last = ends(start)
    has_state = last_where(pc.equal(rows.column("kind"), STATE), start)
    previously = rows.column("emitted").take(has_state).filter(last)
    values = rows.filter(last)
    final = emitted.filter(ends(starts(emitted.column("key"))))
    sent = pc.index_in(values.column("key"), value_set=final.column("key"))
    now = pc.if_else(sent.is_valid(), final.column("value").take(sent), previously)
    values = values.set_column(values.schema.get_field_index("emitted"), "emitted", now)
    known = has_state.filter(last).is_valid()
    changed = pc.and_(
        pc.equal(values.column("kind"), RECORD), pc.or_(known, values.column("value").is_valid())
    )
    return values.filter(changed)


def _states(schema: pa.Schema, rows: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    names = ("key", "topic", "partition", "offset", "timestamp", "value", "emitted")
    counts["state-rows-changed"] += rows.num_rows
    return fill(schema, STATE, {name: rows.column(name) for name in names}, rows.num_rows)
