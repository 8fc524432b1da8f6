"""An outbox as the messages that go to Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.spec import KafkaSink
from tidegate.steps.outbox import Outbox


def topic_messages(sink: KafkaSink, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """The emissions from the `skip`-th on, as the topic gets them, always in the same order.

    Columns as `broker.messages` has them.
    """
    payload = "payload_with_key" if sink.with_key else "payload"
    columns = ("key", payload, "timestamp", "source", "window_start", "window_end")
    return map(_messages, outbox.batches(columns, skip))


def _messages(emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Emissions as messages: where each came from, and the window that it is of, stand in its headers."""
    key, payload, timestamp, source, *window = emissions.columns
    bounds = (bound.cast(pa.string()) for bound in window)
    return pa.RecordBatch.from_pydict(
        {
            "key": key.cast(pa.binary()),
            "value": payload.cast(pa.binary()),
            "timestamp_ms": timestamp,
            "tidegate-source": source.cast(pa.binary()),
            "tidegate-window": pc.binary_join_element_wise(*bounds, "/").cast(pa.binary()),
        }
    )
