"""Batches of messages for tests, as `tidegate.kafka.messages` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from tidegate.kafka.messages import Message
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher

SOURCE = b"events/0/1"
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("tidegate-source", pa.binary()),
        ("tidegate-window", pa.binary()),
    ]
)


def message(
    key: bytes = b"key", value: bytes | None = b"value", timestamp_ms: int = 1_700_000_000_000
) -> Message:
    """A message with a source, and without a window."""
    return Message(key, value, timestamp_ms, [("tidegate-source", SOURCE)])


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages as columns."""
    fixed = ("key", "value", "timestamp_ms")
    rows = [dict(zip(fixed, message[:3], strict=True)) | dict(message.headers) for message in messages]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def batches_of(messages: Sequence[Message]) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """Return the argument of `KafkaPublisher.publish`: a function of all messages from the n-th on, each
    in a batch of its own.
    """
    return lambda skip: (batch_of([message]) for message in messages[skip:])


class HasBegun(Exception):
    """Ends a publication when its shard has its first progress record, and nothing is sent yet."""


def begin(publisher: KafkaPublisher, seq: int) -> None:
    """Begin a first publication that dies at once, and leave what it wrote."""

    def die() -> None:
        raise HasBegun

    with pytest.raises(HasBegun):
        publisher.publish(DecidedBatch(seq, "never sent", batches_of([])), 0, die)
