"""The topic of dead letters, which is published to like a sink. Its outbox is a batch's quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidegate.broker.limits import hidden_settings
from tidegate.errors import Halted, SinkRefused
from tidegate.ledger import Attempt, Plan
from tidegate.sinks.kafka.letters import letters
from tidegate.sinks.kafka.limits import narrow_size
from tidegate.sinks.kafka.timestamps import letter_bounds
from tidegate.sinks.kafka.topic import PublishedTopic
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink, TimestampBounds
from tidegate.spec import DeadLetterTopic


class OpenDeadLetters(PublishedTopic[DeadLetterTopic]):
    """Gets what all stages put into quarantine.

    No record is refused: if the topic does not accept a part of a record, the part is left out, and a header
    says so.
    """

    gets_emissions = False
    has_rivals = False  # each message names its stream in a header

    def outbox(self, plan: Plan, attempt: Attempt) -> Outbox:
        """Return the quarantine of an attempt. Raises LakeDamaged, LakeUnavailable."""
        return self.context.read_quarantine(plan, attempt)

    def published(self, seq: int) -> tuple[OpenSink[DeadLetterTopic], Outbox] | None:
        """Return what a batch had for the topic, while the batch's quarantine is retained.

        Raises Halted if the quarantine has expired, and the topic got something of the batch.
        """
        ledger, stream = self.context.ledger, self.context.stream
        if seq > ledger.expired_quarantine(stream).seq:
            return super().published(seq)
        if seq <= ledger.last_published(stream, self.name):
            raise Halted(
                f"What batch {seq} of {stream} has sent to {self.name} is no longer in quarantine, so it "
                "cannot be compared with what is in the topic",
                "State which is the newest batch that the topic has as a whole: "
                f"{stream.recover_command('restore-progress')} --progress {self.name}=BATCH",
            )
        return None

    def check_target(self) -> None:
        """Check that the topic is the one that was first published to, and accepts records without a key.

        Raises SinkRefused if the topic is compacted.
        """
        super().check_target()
        topic = self.declared.topic
        with self.log() as log:
            if not log.requires_keys(topic):
                return
        raise SinkRefused(
            f"The topic {topic} of dead letters is compacted: it takes no record without a key, and forgets "
            "all but the newest of a key",
            f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy=delete",
        )

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """Return the bounds of the timestamps of dead letters.

        This also checks the topic before a batch is planned, since a batch cannot use another one later.
        """
        with self.log() as log:
            self.check_target()
            limits = log.timestamp_limits(self.declared.topic)
        return {self.declared.target: letter_bounds(limits)}

    def warnings(self) -> Iterator[str]:
        """Yield a sentence if the topic accepts only smaller records than a batch may send."""
        topic = self.declared.topic
        with self.log() as log:
            largest = log.largest_bytes(topic)
        return filter(
            None, [hidden_settings(topic) if largest is None else None, narrow_size(topic, largest)]
        )

    def messages(self, outbox: Outbox, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the records as they were consumed, each with the facts about its quarantine in headers."""
        bounds = outbox.plan.timestamps.get(self.declared.target, (None, None))
        return letters(outbox, bounds, skip)
