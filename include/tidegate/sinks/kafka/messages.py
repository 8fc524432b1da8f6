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
