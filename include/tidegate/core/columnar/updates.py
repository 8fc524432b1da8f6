"""`update` of aggregates on whole columns: each record emits the result of its key including the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar import running
from tidegate.core.columnar.keys import Keys, Mask, accumulated, mask
from tidegate.core.columnar.result import EmittedRows, count_states, emission_rows, state_rows
from tidegate.core.counts import Counts
from tidegate.core.emit import Update
from tidegate.core.reduce import Aggregates
from tidegate.core.stage import Batch, Stage


def suits(stage: Stage, batch: Batch, value: pa.StructType) -> bool:
    """Return whether this module decides the plain keys of a stage, for records with these columns."""
    if not isinstance(stage.emit, Update) or not isinstance(stage.reduce, Aggregates):
        return False
    return stage.window is None and stage.where is None and running.suits(stage.reduce, value)


def special(stage: Stage, keys: Keys) -> Sequence[Mask]:
    """Return masks of the rows whose keys are left to `folding`."""
    assert isinstance(stage.reduce, Aggregates)
    has_value, has_emitted = (mask(keys.column(name).is_valid()) for name in ("accumulator", "emitted"))
    # a value that was never emitted: the pipeline file was edited
    unsent = keys.is_state & (has_value != has_emitted)
    overflows = running.may_overflow(stage.reduce, keys)
    return ~keys.at_rest(), unsent, overflows, keys.tombstones(), *keys.duplicates(stage)


def decide(
    stage: Stage, batch: Batch, schema: pa.Schema, keys: Keys, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield emissions and state of plain keys: each record emits a result; a key's last result is its new
    state.
    """
    del batch
    assert isinstance(stage.reduce, Aggregates)
    results = running.folded(stage.reduce, keys, schema.field("accumulator").type)
    timestamps = accumulated(np.maximum, np.maximum(keys.timestamp, -1), keys)  # -1: as entries begin
    records = np.flatnonzero(~keys.is_state)
    counts["used"] += len(records)
    new = _first_of_all(keys)[records]
    emitted = EmittedRows(
        records,
        results.take(pa.array(records)),
        timestamps[records],
        keys.now[records],
        keys.causes(records),
        pc.if_else(pa.array(new), "new", "changed"),
    )
    yield from emission_rows(schema, keys, emitted, counts)
    last = (keys.end - 1)[~keys.is_state[keys.end - 1]]
    values = results.take(pa.array(last))
    columns = {
        "accumulator": values,
        "emitted": values,
        "timestamp": timestamps[last],
        "emitted_timestamp": timestamps[last],
    }
    count_states(keys, last, np.ones(len(last), np.bool_), counts)
    yield from state_rows(schema, keys, last, columns)


def _first_of_all(keys: Keys) -> Mask:
    """Return the records before which their key has emitted nothing."""
    after = np.append(False, keys.is_state[:-1])
    begins = np.zeros(len(after), np.bool_)
    begins[keys.first] = True
    has_value = mask(keys.column("emitted").is_valid())
    first: Mask = (begins & ~keys.is_state) | (after & ~begins & ~np.append(False, has_value[:-1]))
    return first
