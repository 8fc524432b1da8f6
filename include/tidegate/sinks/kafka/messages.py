"""Convert an outbox to the messages that are sent to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.storage.schema import KEY, REASON, SOURCE, TIMESTAMP, VALUE, WINDOW


def topic_messages(sink: KafkaSink, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the emissions from the `skip`-th message on, always in the same order.

    The columns are those of `broker.messages`. If deletions are sent in an envelope, a tombstone follows each
    of them, as with Debezium: a compacted topic removes the key only by a tombstone.

    Raises LakeDamaged, LakeUnavailable.
    """
    key = KEY if sink.key is None else sink.key.column
    columns = (key, sink.payload.column, TIMESTAMP, SOURCE, *WINDOW, *((REASON,) if sink.headers else ()))
    batch = f"{outbox.plan.stream}/{outbox.plan.seq}"
    if not sink.payload.enveloped:
        # One emission is one message here, so the outbox itself skips, without reading row groups.
        messages: Iterator[pa.RecordBatch] = map(partial(_messages, batch), outbox.batches(columns, skip))
    else:
        # messages, not emissions, are counted in the progress record, so all emissions are read to skip some
        messages = _from(map(partial(_with_tombstones, batch), outbox.batches((*columns, VALUE))), skip)
    return messages if sink.timestamp == "event" else map(partial(_at, outbox.plan.clock_ms), messages)


def _at(clock_ms: int, messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return the messages with the batch's clock as their timestamp."""
    clocks = pa.repeat(pa.scalar(clock_ms, pa.int64()), messages.num_rows)
    return messages.set_column(messages.schema.get_field_index("timestamp_ms"), "timestamp_ms", clocks)


def _messages(batch: str, emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Return emissions as messages.

    Headers contain the source chain, the window, and, if the sink asks for them, the batch and the reason.
    """
    key, payload, timestamp, source, *rest = emissions.columns
    window, reason = rest[: len(WINDOW)], rest[len(WINDOW) :]
    columns = {
        # `view` copies nothing: Arrow's text is UTF-8 bytes already.
        "key": key.view(pa.binary()),
        "value": payload.view(pa.binary()),
        "timestamp_ms": timestamp,
        "tidegate-source": source.view(pa.binary()),
        "tidegate-window": _windows(*window),
    }
    if reason:
        columns["tidegate-batch"] = pa.repeat(pa.scalar(batch.encode(), pa.binary()), emissions.num_rows)
        columns["tidegate-reason"] = reason[0].view(pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def _windows(start: pa.Array, end: pa.Array) -> pa.Array:
    """Return `start/end`; null if there is no window."""
    # A stage without windows has none at all, so the text is not built for each row.
    if start.null_count == len(start):
        return pa.nulls(len(start), pa.binary())
    return pc.binary_join_element_wise(start.cast(pa.string()), end.cast(pa.string()), "/").view(pa.binary())


def _with_tombstones(batch: str, emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Return emissions as messages, each deletion twice: in an envelope, and then as a tombstone."""
    deletes = emissions.column(VALUE).is_null().to_numpy(zero_copy_only=False)
    messages = _messages(batch, emissions.drop_columns([VALUE]))
    if not deletes.any():
        return messages
    rows = np.repeat(np.arange(len(deletes)), np.where(deletes, 2, 1))
    # The second of two equal row numbers is the tombstone.
    follows = np.concatenate([[False], rows[1:] == rows[:-1]])
    doubled = messages.take(pa.array(rows))
    values = pc.if_else(pa.array(follows), pa.scalar(None, pa.binary()), doubled.column("value"))
    return doubled.set_column(doubled.schema.get_field_index("value"), "value", values)


def _from(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages without the first `skip`."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)
