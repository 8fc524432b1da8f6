"""A topic as a sink: its messages, and what it would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tidegate.kafka.limits import hidden_settings
from tidegate.kafka.registry import SchemaRegistry
from tidegate.sinks.kafka.limits import check_sizes, narrow_size, wide_threshold
from tidegate.sinks.kafka.messages import topic_messages
from tidegate.sinks.kafka.model import KafkaSink
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
from tidegate.spec import Stage


class OpenTopic(PublishedTopic[KafkaSink]):
    """Gets what a stage emits."""

    def check_settings(self) -> None:
        """Check that the cluster and the schema registry are set. Raises SettingsInvalid."""
        super().check_settings()
        if self.declared.registry is not None:
            self.context.settings.registry(self.declared.registry.connection)

    def planned(self, before: KafkaSink | None, may_register: bool) -> KafkaSink:
        """Return the sink with its schemas, if it uses a registry. Without one, it already contains the
        file's schema.
        """
        declared = self.declared
        if declared.registry is None:
            return declared
        with SchemaRegistry(self.context.settings.registry(declared.registry.connection)) as registry:
            return planned_sink(self.pipeline, declared, before, registry, may_register)

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """Return the topic's bounds, only if the sink puts refused emissions into quarantine."""
        if self.declared.messages.refused_timestamp != "quarantine":
            return {}
        with self.log() as log:
            limits = log.timestamp_limits(self.declared.topic)
        return {self.declared.target: timestamp_bounds(limits)}

    def earliest_timestamp(self) -> EarliestTimestamp | None:
        """Return the earliest timestamp by the topic's retention, or its limit on old timestamps."""
        with self.log() as log:
            limits = log.timestamp_limits(self.declared.topic)
        return earliest_timestamp(self.declared, limits)

    def warnings(self) -> Iterator[str]:
        """Yield sentences on limits of the topic that are narrower than a batch may need.

        They concern the size of records, timestamps, a threshold that collects too much, and stages that hold
        values back for longer than the topic retains them.
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
        """Return the stages that a record passes before the sink gets its result."""
        stages = self.pipeline.stages
        return stages[: stages.index(self.stage) + 1]

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the topic would accept each emission now, by timestamp and size.

        Raises TimestampRefused, RecordTooLarge, and what the checks of any topic raise.
        """
        with self.log() as log:
            # Inside of the block, so that all questions share one connection.
            super().check_outbox(outbox)
            topic = self.declared.topic
            limits, largest = log.timestamp_limits(topic), log.largest_bytes(topic)
        # Timestamps first: they need the files' statistics only, sizes may need all messages.
        check_timestamps(self.declared, outbox, limits)
        check_sizes(topic, largest, self.messages(outbox))

    def messages(self, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the emissions in the sink's format."""
        return topic_messages(self.declared, outbox, skip)


SINK = OpenTopic
