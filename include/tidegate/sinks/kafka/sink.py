"""A topic as a sink: what its messages are, and what it would not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tidegate.broker.limits import hidden_settings
from tidegate.broker.registry import SchemaRegistry
from tidegate.sinks.kafka.limits import check_sizes, narrow_size, wide_threshold
from tidegate.sinks.kafka.messages import topic_messages
from tidegate.sinks.kafka.schema import planned_sink
from tidegate.sinks.kafka.timestamps import (
    check_timestamps,
    earliest_timestamp,
    long_hold,
    narrow_timestamps,
    timestamp_bounds,
)
from tidegate.sinks.kafka.topic import PublishedTopic
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import EarliestTimestamp, TimestampBounds
from tidegate.spec import KafkaSink, Stage


class OpenTopic(PublishedTopic[KafkaSink]):
    """Gets what a stage emits."""

    def check_settings(self) -> None:
        """Its cluster is set, and its schema registry."""
        super().check_settings()
        if self.declared.registry is not None:
            self.context.settings.registry(self.declared.registry.connection)

    def planned(self, before: KafkaSink | None, may_register: bool) -> KafkaSink:
        """With its schemas, if a registry has them. Without one, the file's is in it already."""
        declared = self.declared
        if declared.registry is None:
            return declared
        with SchemaRegistry(self.context.settings.registry(declared.registry.connection)) as registry:
            return planned_sink(self.pipeline, declared, before, registry, may_register)

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """Asks the topic only where the sink quarantines what it would refuse."""
        if self.declared.messages.refused_timestamp != "quarantine":
            return {}
        with self.log() as log:
            limits = log.timestamp_limits(self.declared.topic)
        return {self.declared.target: timestamp_bounds(limits)}

    def earliest_timestamp(self) -> EarliestTimestamp | None:
        """By the topic's retention, or its limit on old timestamps."""
        with self.log() as log:
            limits = log.timestamp_limits(self.declared.topic)
        return earliest_timestamp(self.declared, limits)

    def warnings(self) -> Iterator[str]:
        """Where the topic takes less than a batch may send, or fewer timestamps than Kafka's topics do; where
        a threshold lets more gather than it takes; where stages hold values for longer than it keeps them.
        """
        topic = self.declared.topic
        with self.log() as log:
            largest, limits = log.largest_bytes(topic), log.timestamp_limits(topic)
        sentences = (
            hidden_settings(topic) if largest is None else None,
            narrow_timestamps(topic, limits),
            narrow_size(topic, largest),
            wide_threshold(self.stage, topic, largest),
            long_hold(self.declared, self._stages(), limits),
        )
        return filter(None, sentences)

    def _stages(self) -> Sequence[Stage]:
        """The stages that a record goes through before the sink gets what comes of it."""
        stages = self.pipeline.stages
        return stages[: stages.index(self.stage) + 1]

    def check_outbox(self, outbox: Outbox) -> None:
        """Find an emission that the topic would refuse now, by its timestamp or its size."""
        with self.log() as log:
            super().check_outbox(outbox)
            topic = self.declared.topic
            limits, largest = log.timestamp_limits(topic), log.largest_bytes(topic)
        check_timestamps(self.declared, outbox, limits)
        check_sizes(topic, largest, self.messages(outbox))

    def messages(self, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The emissions, in the sink's format."""
        return topic_messages(self.declared, outbox, skip)
