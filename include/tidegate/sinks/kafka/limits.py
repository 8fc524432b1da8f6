"""Topics that refuse records which tidegate does not find too large; stages that gather too much for them."""

from __future__ import annotations

from tidegate.broker.config import MAX_RECORD_BYTES
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


def narrow_size(topic: str, largest: int | None) -> str | None:
    """A sentence on a topic that takes smaller records than a batch may send."""
    if largest is None or largest >= MAX_RECORD_BYTES:
        return None
    return (
        f"{topic} takes records of up to {largest} bytes, and a batch may send some of {MAX_RECORD_BYTES}: "
        "they would be refused when it is decided already. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
    )
