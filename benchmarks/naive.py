"""The kernel's peer: the loop over records that one would write into a `mapInArrow` function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tidegate import core

_READ = ("kind", "key", "topic", "partition", "offset", "timestamp", "value", "emitted")
_WRITTEN = ("key", "topic", "partition", "offset", "timestamp", "value")


def naive_decide(batches: Iterable[pa.RecordBatch], only_changes: bool) -> int:
    """Emissions and new state of every batch, as record batches; returns how many records were emitted.

    As plain as it can be: no quarantine, no `where`, no tombstones, no keys in several partitions.
    """
    current, last, newest = None, None, None
    count = 0
    for batch in batches:
        emitted: list[tuple[Any, ...]] = []
        states: list[tuple[Any, ...]] = []
        columns = [batch.column(name).to_pylist() for name in _READ]
        for kind, key, topic, partition, offset, timestamp, value, sent in zip(*columns, strict=True):
            if key != current:
                if newest is not None:
                    states.append(newest)
                current, last, newest = key, None, None
            if kind == core.STATE:
                last = sent
            elif not only_changes or value != last:
                last = value
                newest = (key, topic, partition, offset, timestamp, value)
                emitted.append(newest)
        _as_batch(emitted, batch.schema)
        _as_batch(states, batch.schema)  # the very last key's is left out, for brevity
        count += len(emitted)
    return count


def _as_batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(_WRITTEN)
    arrays = [
        pa.array(column, schema.field(name).type) for column, name in zip(columns, _WRITTEN, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(_WRITTEN))
