"""An outbox, or one part of it, as the records that go to Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pyarrow as pa

from tidegate.broker.publisher import Message
from tidegate.spec import KafkaSink
from tidegate.steps.outbox import Outbox, rows_from


def topic_messages(
    sink: KafkaSink, outbox: Outbox, skip: int = 0, part: int = 0, of: int = 1
) -> Iterator[Message]:
    """The emissions from the `skip`-th on, as the topic gets them, always in the same order.

    Of several parts, one has all emissions of its keys; `skip` counts within it.
    """
    payload = "payload_with_key" if sink.with_key else "payload"
    columns = ("key", payload, "timestamp", "source", "window_start", "window_end")
    if of == 1:
        batches = outbox.batches(columns, skip)
    else:
        batches = rows_from((_part(batch, part, of) for batch in outbox.batches(columns)), skip)
    for batch in batches:
        yield from map(_message, *(column.to_pylist() for column in batch.columns))


def _part(batch: pa.RecordBatch, part: int, of: int) -> pa.RecordBatch:
    keys = batch.column("key").to_pylist()
    return batch.filter(pa.array([crc32(key.encode()) % of == part for key in keys], pa.bool_()))


def _message(
    key: str, payload: str | None, timestamp_ms: int, source: str, start: int | None, end: int | None
) -> Message:
    """An emission as a record: where it came from, and the window that it is of, stand in its headers."""
    value = None if payload is None else payload.encode()
    headers = [("tidegate-source", source.encode())]
    if start is not None:
        headers.append(("tidegate-window", f"{start}/{end}".encode()))
    return Message(key.encode(), value, timestamp_ms, tuple(headers))
