"""An outbox as the messages that go to Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.lake.outbox import SOURCE, TIMESTAMP, WINDOW, payload_column
from tidegate.lake.schema import KEY
from tidegate.sinks.outbox import Outbox
from tidegate.spec import KafkaSink


def topic_messages(sink: KafkaSink, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """The emissions from the `skip`-th on, as the topic gets them, always in the same order.

    Columns as `broker.messages` has them.
    """
    columns = (KEY, payload_column(sink.with_key), TIMESTAMP, SOURCE, *WINDOW)
    return map(_messages, outbox.batches(columns, skip))


def _messages(emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Emissions as messages: where each came from, and the window that it is of, stand in its headers."""
    key, payload, timestamp, source, *window = emissions.columns
    return pa.RecordBatch.from_pydict(
        {
            "key": key.view(pa.binary()),
            "value": payload.view(pa.binary()),
            "timestamp_ms": timestamp,
            "tidegate-source": source.view(pa.binary()),
            "tidegate-window": _windows(*window),
        }
    )


def _windows(start: pa.Array, end: pa.Array) -> pa.Array:
    """`start/end`; null where there is no window."""
    if start.null_count == len(start):
        return pa.nulls(len(start), pa.binary())
    return pc.binary_join_element_wise(start.cast(pa.string()), end.cast(pa.string()), "/").view(pa.binary())
