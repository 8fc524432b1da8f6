"""Output topics that refuse records which tidegate does not find too large."""

from __future__ import annotations

from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.spec import KafkaSink, Pipeline
from tidegate.steps.app import App
from tidegate.steps.timestamps import narrow_timestamps


def narrow_topics(app: App, pipeline: Pipeline) -> list[str]:
    """A sentence for each output topic that takes less, or fewer timestamps than Kafka's topics do.

    Raises TopicMissing, BrokerUnavailable.
    """
    topics = [sink.topic for sink in pipeline.sinks if isinstance(sink, KafkaSink)]
    with app.log() as log:
        largest = {topic: log.largest_bytes(topic) for topic in topics}
        limits = {topic: log.timestamp_limits(topic) for topic in topics}
    narrow = [narrow_timestamps(topic, limit) for topic, limit in limits.items()]
    return [sentence for sentence in narrow if sentence is not None] + [
        f"{topic} takes records of up to {most} bytes, and a batch may send some of {MAX_RECORD_BYTES}: they "
        "would be refused when it is decided already. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
        for topic, most in largest.items()
        if most is not None and most < MAX_RECORD_BYTES
    ]
