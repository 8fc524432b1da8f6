"""Output topics that refuse records which tidegate does not find too large; stages that gather too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.spec import KafkaSink, Pipeline, ThresholdEmit
from tidegate.steps.app import App
from tidegate.steps.timestamps import narrow_timestamps

_BESIDE_BYTES = 2_000
"""Room for what a record has beside its value: the key, and the chain of positions in a header."""


def narrow_topics(app: App, pipeline: Pipeline) -> list[str]:
    """A sentence for each output topic that takes less than a batch may send, or fewer timestamps than
    Kafka's topics do, and for each threshold that lets more gather than its topic takes.

    Raises TopicMissing, BrokerUnavailable.
    """
    topics = [sink.topic for sink in pipeline.sinks if isinstance(sink, KafkaSink)]
    with app.log() as log:
        largest = {topic: log.largest_bytes(topic) for topic in topics}
        limits = {topic: log.timestamp_limits(topic) for topic in topics}
    timestamps = [narrow_timestamps(topic, limit) for topic, limit in limits.items()]
    told = [sentence for sentence in timestamps if sentence is not None]
    return [*told, *_too_narrow(largest), *wide_thresholds(pipeline, largest)]


def wide_thresholds(pipeline: Pipeline, largest: Mapping[str, int | None]) -> Iterator[str]:
    """A sentence for each `max_bytes` that makes records too large. `largest`: bytes that a topic takes."""
    for sink in pipeline.sinks:
        if isinstance(sink, KafkaSink):
            stage = pipeline.stage_of(sink)
            takes = min(MAX_RECORD_BYTES, largest.get(sink.topic) or MAX_RECORD_BYTES)
            most = stage.emit.max_bytes if isinstance(stage.emit, ThresholdEmit) else None
            if most is not None and most > takes - _BESIDE_BYTES:
                yield (
                    f"{stage.name} gathers values of up to {most} bytes (`max_bytes`), and {sink.topic} gets "
                    f"records of at most {takes}, key and headers included: a batch with a larger one halts. "
                    f"Write `max_bytes: {(takes - _BESIDE_BYTES) * 9 // 10}`"
                )


def _too_narrow(largest: Mapping[str, int | None]) -> list[str]:
    return [
        f"{topic} takes records of up to {most} bytes, and a batch may send some of {MAX_RECORD_BYTES}: they "
        "would be refused when it is decided already. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
        for topic, most in largest.items()
        if most is not None and most < MAX_RECORD_BYTES
    ]
