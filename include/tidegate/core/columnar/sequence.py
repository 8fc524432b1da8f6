"""`sequence` on whole columns: find the changes that are later than all changes of their key before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar.buffers import batch_ends
from tidegate.core.columnar.keys import Ints, Keys, Mask, mask
from tidegate.core.columnar.result import EmittedRows, count_states, emission_rows, state_rows
from tidegate.core.counts import Counts
from tidegate.core.emit import InSequence
from tidegate.core.emit.in_sequence import CHANGE, DELETION
from tidegate.core.stage import Batch, Stage


def suits(stage: Stage, batch: Batch, value: pa.StructType) -> bool:
    """Return whether this module decides the plain keys of a stage."""
    return isinstance(stage.emit, InSequence)


def special(stage: Stage, keys: Keys) -> Sequence[Mask]:
    """Return masks of the rows whose keys are left to `folding`.

    If deletions are forgotten, these are keys with a deletion before their last row, and keys with records
    that may be too late to be compared with one.
    """
    assert isinstance(stage.emit, InSequence)
    if stage.emit.keep_ms is None:
        return (keys.superseded(),)
    records = ~keys.is_state
    late = records & (keys.now - keys.timestamp >= stage.emit.keep_ms)
    last = np.zeros(len(records), np.bool_)
    last[keys.end - 1] = True
    forgotten = last & (_due(stage.emit, keys.timestamp) <= _ends(keys, last))
    deletions = _field(keys, "deleted")
    return (
        keys.superseded(),
        keys.is_state & mask(keys.column("due_at").is_valid()),
        records & deletions & (~last | forgotten),
        late,
    )


def decide(
    stage: Stage, batch: Batch, schema: pa.Schema, keys: Keys, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield emissions and state of plain keys: a change is emitted if its sequence is beyond the largest
    before it.
    """
    assert isinstance(stage.emit, InSequence)
    rank = _ranks(keys)
    before = _largest_before(keys, rank)
    out = np.flatnonzero(~keys.is_state & (rank > before))
    counts["used"] += len(out)
    counts["deduplicated"] += int((~keys.is_state).sum()) - len(out)
    emitted = EmittedRows(
        out,
        keys.values("value", out),
        keys.timestamp[out],
        keys.now[out],
        keys.causes(out),
        pc.if_else(pa.array(before[out] > 0), "later", "new"),
    )
    yield from emission_rows(schema, keys, emitted, counts)
    last = out[np.append(keys.number[out][1:] != keys.number[out][:-1], True)] if len(out) else out
    count_states(keys, last, np.ones(len(last), np.bool_), counts)
    yield from state_rows(schema, keys, last, _state(stage.emit, keys, last))


def _state(emit: InSequence, keys: Keys, last: Ints) -> dict[str, pa.Array]:
    """Return the state columns of the newest change of each key."""
    value = keys.values("value", last)
    deleted, sequence = pc.struct_field(value, "deleted"), pc.struct_field(value, "sequence")
    timestamp = pa.array(keys.timestamp[last])
    due = pa.nulls(len(last), pa.int64())
    if emit.keep_ms is not None:
        due = pc.if_else(deleted, pa.array(_due(emit, keys.timestamp[last])), None)
    return {
        "digest": pc.binary_join_element_wise(pc.if_else(deleted, DELETION, CHANGE), sequence, ""),
        "timestamp": timestamp,
        "emitted_timestamp": timestamp,
        "due_at": due,
    }


def _due(emit: InSequence, timestamp: Ints) -> Ints:
    """Return when a deletion at each row's time is forgotten, epoch ms."""
    assert emit.keep_ms is not None, "otherwise none is"
    return timestamp + 2 * emit.keep_ms


def _ends(keys: Keys, requested: Mask) -> Ints:
    """Return per row the time of its partition at the end of the batch."""
    return batch_ends(keys.batch, keys, np.arange(len(requested)), requested)


def _field(keys: Keys, name: str) -> Mask:
    return mask(pc.fill_null(pc.struct_field(keys.column("value"), name), False))


def _ranks(keys: Keys) -> Ints:
    """Return per row the rank of its sequence among all rows' sequences, from 1; 0 if it has none."""
    record_sequences = pc.struct_field(keys.column("value"), "sequence")
    state_sequences = pc.utf8_slice_codeunits(keys.column("digest"), 1)
    sequences = pc.if_else(pa.array(keys.is_state), state_sequences, record_sequences)
    rank: Ints = pc.rank(sequences, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    rank[mask(sequences.is_null())] = 0
    return rank


def _largest_before(keys: Keys, rank: Ints) -> Ints:
    """Return per row the largest rank among earlier rows of its key; 0 if there is none."""
    # Each key's ranks get a base above all ranks of earlier keys, so one running maximum serves all keys.
    base = keys.number * (int(rank.max()) + 1)
    largest = np.maximum.accumulate(rank + base)
    before = np.zeros_like(rank)
    before[1:] = largest[:-1] - base[1:]
    return np.maximum(before, 0)
