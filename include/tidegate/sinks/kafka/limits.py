"""Topics that refuse records which tidegate does not find too large; stages that gather too much for them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.broker.messages import Message, messages_of, sizes_of
from tidegate.errors import RecordTooLarge
from tidegate.spec import Stage, ThresholdEmit

_BESIDE_BYTES = 2_000
"""Room for what a record has beside its value: the key, and the chain of positions in a header."""


def wide_threshold(stage: Stage, topic: str, largest: int | None) -> str | None:
    """A sentence on a `max_bytes` that makes records too large. `largest`: bytes that the topic takes."""
    takes = min(MAX_RECORD_BYTES, largest or MAX_RECORD_BYTES)
    most = stage.emit.max_bytes if isinstance(stage.emit, ThresholdEmit) else None
    if most is None or most <= takes - _BESIDE_BYTES:
        return None
    return (
        f"{stage.name} gathers values of up to {most} bytes (`max_bytes`), and {topic} gets "
        f"records of at most {takes}, key and headers included: a batch with a larger one halts. "
        f"Write `max_bytes: {(takes - _BESIDE_BYTES) * 9 // 10}`"
    )


def check_sizes(topic: str, largest: int | None, batches: Iterable[pa.RecordBatch]) -> None:
    """Find a message that is too large for a topic, also when it is compressed. Raises RecordTooLarge.

    `batches` are read only where the topic takes less than a batch may send.
    """
    if largest is None or largest >= MAX_RECORD_BYTES:
        return
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
    """Without headers: what is larger than a topic takes without them is so with them."""
    whole = (message.key or b"") + (message.value or b"")
    return len(pa.compress(whole, codec="lz4", asbytes=True))


def narrow_size(topic: str, largest: int | None) -> str | None:
    """A sentence on a topic that takes smaller records than a batch may send."""
    if largest is None or largest >= MAX_RECORD_BYTES:
        return None
    return (
        f"{topic} takes records of up to {largest} bytes, and a batch may send some of {MAX_RECORD_BYTES}: "
        "such a batch halts. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
    )
