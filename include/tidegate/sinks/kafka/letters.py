"""Convert quarantined records to messages: key, value and headers as consumed, and facts in more headers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.broker.messages import BROUGHT, sizes_of
from tidegate.formats import EMISSION
from tidegate.lake.quarantine_files import POSITION
from tidegate.ledger import Plan
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import TimestampBounds

_HEADER = "tidegate-quarantine-"
OMITTED = f"{_HEADER}omitted"
"""The parts of a record that are left out because it is larger than Kafka accepts: `value`, `headers`, `key`,
in this order.
"""
_OMISSIBLE = {"value": "value", BROUGHT: "headers", "key": "key"}
_COLUMNS = (*POSITION, "recorded", "timestamp", "key", "value", "headers", "reason", "part")


def letters(outbox: Outbox, bounds: TimestampBounds, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the dead letters of a batch's quarantine from the `skip`-th on, always in the same order.

    Args:
        bounds: The timestamps that the topic accepts, from the plan.

    Raises LakeDamaged, LakeUnavailable.
    """
    return map(partial(_letters, outbox.plan, bounds), outbox.batches(_COLUMNS, skip))


def _letters(plan: Plan, bounds: TimestampBounds, rows: pa.RecordBatch) -> pa.RecordBatch:
    topic, partition, offset = (rows.column(name) for name in POSITION)
    place = pc.binary_join_element_wise(topic, partition.cast(pa.string()), offset.cast(pa.string()), "/")
    part, is_emission = rows.column("part"), pc.equal(rows.column("part"), EMISSION)
    original = pc.coalesce(rows.column("recorded"), rows.column("timestamp"))
    facts = {
        "reason": rows.column("reason"),
        "position": place,
        "batch": pa.repeat(f"{plan.stream}/{plan.seq}", rows.num_rows),
        "part": pc.if_else(is_emission, "emission", part.cast(pa.string())),
        "timestamp": original.cast(pa.string()),
    }
    return _fitting(
        pa.RecordBatch.from_pydict(
            {
                "key": rows.column("key"),
                "value": rows.column("value"),
                "timestamp_ms": _taken(original, bounds, plan.clock_ms),
                BROUGHT: rows.column("headers"),
                **{f"{_HEADER}{name}": texts.cast(pa.binary()) for name, texts in facts.items()},
            }
        )
    )


def _taken(timestamps: pa.Int64Array, bounds: TimestampBounds, clock_ms: int) -> pa.Int64Array:
    """Return timestamps that the topic accepts: the records' own, or the nearest; the batch's clock if
    there is none.

    Kafka accepts no timestamp before 1970.
    """
    earliest, latest = bounds
    taken = pc.max_element_wise(pc.fill_null(timestamps, clock_ms), max(earliest or 0, 0))
    return taken if latest is None else pc.min_element_wise(taken, latest)


def _fitting(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages that are not larger than a batch may send. Parts that are left out remain in
    quarantine.
    """
    # the value first: it is usually the largest part, and key and headers help to find the record
    for column in _OMISSIBLE:
        is_large = sizes_of(messages) > MAX_RECORD_BYTES
        if not is_large.any():
            break
        messages = _without(messages, column, is_large)
    return messages


def _without(
    messages: pa.RecordBatch, column: str, is_large: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.RecordBatch:
    columns = dict(zip(messages.schema.names, messages.columns, strict=True))
    rows = pa.array(np.arange(len(is_large)), mask=is_large)
    omitted = columns.get(OMITTED, pa.nulls(len(is_large), pa.binary()))
    more = pc.binary_join_element_wise(omitted, _OMISSIBLE[column].encode(), b", ", null_handling="skip")
    columns[column] = columns[column].take(rows)
    columns[OMITTED] = pc.if_else(pa.array(is_large), more, omitted)
    return pa.RecordBatch.from_pydict(columns)
