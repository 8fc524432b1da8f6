"""Check topics that refuse large records, and stages that collect more than a topic accepts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.errors import RecordTooLarge
from tidegate.kafka.config import MAX_RECORD_BYTES
from tidegate.kafka.messages import Message, messages_of, sizes_of
from tidegate.spec import Stage

_BESIDE_BYTES = 2_000
"""Room for the parts of a record beside its value: the key, and the source chain in a header."""


def wide_threshold(stage: Stage, topic: str, largest: int | None) -> str | None:
    """Return a sentence on a `max_bytes` that makes records too large; None if it does not.

    Args:
        largest: The largest record that the topic accepts, in bytes; None if it is unknown.
    """
    # Two limits: tidegate's own for any record, and `max.message.bytes` of the topic.
    takes = min(MAX_RECORD_BYTES, largest or MAX_RECORD_BYTES)
    most = stage.emit.max_text_bytes
    if most is None or most <= takes - _BESIDE_BYTES:
        return None
    return (
        f"{stage.name} gathers values of up to {most} bytes (`max_bytes`), and {topic} gets "
        f"records of at most {takes}, key and headers included: a batch with a larger one halts. "
        f"Write `max_bytes: {(takes - _BESIDE_BYTES) * 9 // 10}`"
    )


def check_sizes(topic: str, largest: int | None, batches: Iterable[pa.RecordBatch]) -> None:
    """Check that each message fits into the topic, as it is or compressed.

    `batches` are read only if the topic accepts less than a batch may send.

    Raises RecordTooLarge if a message does not fit.
    """
    if largest is None or largest >= MAX_RECORD_BYTES:
        return
    # a broker compares the compressed batch with its limit; only large records are compressed here
    for batch in batches:
        large = np.flatnonzero(sizes_of(batch) > largest)
        for message in messages_of(batch.take(pa.array(large))):
            if _compressed_bytes(message) > largest:
                raise RecordTooLarge(
                    f"The emission of key {(message.key or b'')[:100]!r} has {message.size} bytes; the topic "
                    f"{topic} takes {largest} (max.message.bytes)",
                    "Nothing was published. Let the topic take more: kafka-configs.sh --alter --topic "
                    f"{topic} --add-config max.message.bytes=1048588; then run again.",
                )


def _compressed_bytes(message: Message) -> int:
    """Return the compressed bytes of key and value: a message that is too large without headers is so with
    them.
    """
    whole = (message.key or b"") + (message.value or b"")
    return len(pa.compress(whole, codec="lz4", asbytes=True))


def narrow_size(topic: str, largest: int | None) -> str | None:
    """Return a sentence on a topic that accepts only smaller records than a batch may send; None for other
    topics.
    """
    if largest is None or largest >= MAX_RECORD_BYTES:
        return None
    return (
        f"{topic} takes records of up to {largest} bytes, and a batch may send some of {MAX_RECORD_BYTES}: "
        "such a batch halts. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
    )
