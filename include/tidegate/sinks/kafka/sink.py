"""A topic that a stream publishes to, for messages of any kind.

The progress record is in the same transaction as the messages.

A topic of emissions also checks what the topic would refuse.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

from tidegate.errors import ProgressLost, SettingsInvalid, SinkRefused, TopicRecreated
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.progress import Progress
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher, ShownProgress
from tidegate.kafka.registry import SchemaRegistry
from tidegate.kafka.shard import Messages
from tidegate.kafka.topic_facts import hidden_settings
from tidegate.ledger import LeasedLedger, Stream
from tidegate.model.quarantine_rules import DeadLetterTopic
from tidegate.model.stage import Stage
from tidegate.sinks.kafka.evidence import find_progress
from tidegate.sinks.kafka.limits import (
    check_sizes,
    check_timestamps,
    earliest_timestamp,
    long_hold,
    narrow_size,
    narrow_timestamps,
    timestamp_bounds,
    wide_threshold,
)
from tidegate.sinks.kafka.messages import planned_sink, topic_messages
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import Dataset, EarliestTimestamp, OpenSink, TimestampBounds, topic_dataset

DeclaredTopic = TypeVar("DeclaredTopic", bound=KafkaSink | DeadLetterTopic)


class PublishedTopic(OpenSink[DeclaredTopic]):
    """Publishes in transactions of chunks. A lost progress record is derived from the topic itself."""

    title = "Kafka"
    can_lose_progress = True
    has_rivals: ClassVar[bool] = True
    """Whether messages of another stream can look the same, so that the topic's content does not show who
    sent it.
    """

    @abstractmethod
    def messages(self, outbox: Outbox) -> Messages:
        """Return a function that yields the messages of a batch from the n-th on, with the columns of
        `kafka.messages`. It can be sent to a Spark task.

        The messages are always the same, in the same order. The function raises LakeDamaged, LakeUnavailable.
        """

    @property
    def dataset(self) -> Dataset:
        """The topic."""
        declared = self.declared
        return topic_dataset(self.context.settings.kafka(declared.connection).servers, declared.topic)

    def check_settings(self) -> None:
        """Check that the cluster is set. Raises SettingsInvalid."""
        self.context.settings.kafka(self.declared.connection)

    def refuse_compaction(self, why: str, instead: str = "") -> None:
        """Raise SinkRefused if the topic is compacted: it then takes no record without a key.

        Args:
            why: why that is refused, as a sentence.
            instead: what the error offers beside another setting of the topic.
        """
        topic = self.declared.topic
        with self.log() as log:
            if log.requires_keys(topic):
                alter = f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy=delete"
                raise SinkRefused(why, f"{instead}{alter}")

    def check_source(self, topic_ids: Mapping[str, str]) -> None:
        """Check that the topic is not one of the source, by its id.

        Names can be equal in two clusters, and two connections can lead to the same cluster. The broker is
        asked only if the names are equal. Raises SinkRefused if it is the same topic.
        """
        topic = self.declared.topic
        if topic in topic_ids and self._topic_id() == topic_ids[topic]:
            raise SinkRefused(
                f"The topic {topic} of sink {self.name} is the one that the pipeline reads: its source's "
                "connection goes to the same cluster",
                "Use another topic, or correct one of the connections.",
            )

    def check_target(self) -> None:
        """Check that the topic is the one that was first published to. Raises TopicMissing,
        TopicRecreated.
        """
        self._require_same_topic()

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the user may publish to the topic, and, at the first use of the sink, may use
        transactions.
        """
        with self.log() as log:
            # A missing right halts the batch here; after the commit the stream would halt with it.
            log.require_write(self.declared.topic)
            if self.context.ledger.sink_identity(self.context.stream, self.name) is None:
                log.check_progress_topic()
                self._publisher().check_admission()

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish chunk by chunk, from the position in the progress record.

        At the first use of a sink, the progress record is written first, then the ledger's note, and only
        then messages. So if the ledger has the note, a missing record is a lost record.
        """
        # a topic that was created again has none of the messages in the progress record
        identity = self._require_same_topic()
        is_first_use = lease.sink_identity(lease.stream, self.name) is None
        begun = partial(lease.set_sink_identity, self.name, identity) if is_first_use else None
        batch = DecidedBatch(
            outbox.plan.seq,
            outbox.attempt,
            self.messages(outbox),
            outbox.shards,
            lambda number: [self.messages(part) for part in outbox.cut(number)],
            self.context.send_shards,
        )
        with self.log() as log:
            log.ensure_progress_topic()
        with _recoverable(self.context.stream):
            self._publisher().publish(batch, last_published, begun)

    def check_progress(self) -> None:
        """Check that the topic is the same, and that its progress record agrees with the ledger."""
        ledger, stream = self.context.ledger, self.context.stream
        if ledger.sink_identity(stream, self.name) is None:
            return
        self._require_same_topic()
        publisher = self._publisher()
        with _recoverable(stream):
            # It may have more than the ledger knows: a try may have sent that, and been killed.
            progress = publisher.check(publisher.progress(), ledger.last_published(stream, self.name))
            publisher.check_committed(progress)

    def lost_progress(self, stated: int | None) -> Progress | None:
        """Return the progress by the topic's messages, if the record is lost and they still exist."""
        if self.context.ledger.sink_identity(self.context.stream, self.name) is None:
            return None
        self._require_same_topic()
        record = self._publisher().progress()
        return self._found_progress(stated, record).progress if self._is_lost(record) else None

    def restore_progress(self, stated: int | None) -> Progress | None:
        """Write the progress record. The topic is read again after other publishers have been fenced."""
        if self.context.ledger.sink_identity(self.context.stream, self.name) is None:
            return None
        self._require_same_topic()
        # Read without fencing first: an intact record needs no new producer epoch.
        if not self._is_lost(self._publisher().progress()):
            return None
        with self.log() as log:
            log.ensure_progress_topic()

        # A publisher may have gone on until this one fences it; then its record is the truth.
        return self._publisher().rewrite_progress(
            lambda record: not self._is_lost(record), partial(self._found_progress, stated)
        )

    def erasure_effect(self) -> str:
        """Return a sentence on the tombstones, and on the messages before them."""
        return (
            f"{self.name}: a tombstone for each key. A compacted topic then removes the messages before it; "
            "a topic that is not compacted keeps them until its retention ends."
        )

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on messages after `seq`, which cannot be removed from the topic."""
        ledger, stream, topic = self.context.ledger, self.context.stream, self.declared.topic
        if ledger.sink_identity(stream, self.name) != self._topic_id():
            return f"{self.name}: the topic is another one now, and has no message of {stream} yet."
        return (
            f"{self.name}: messages of batches after {seq} that the topic {topic} has stay there: consumers "
            "read them a second time."
        )

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Write another progress record for the topic that now has the sink's name."""
        identity = self._topic_id()
        with self.log() as log:
            log.ensure_progress_topic()
        progress = Progress(seq, 0, done=True, attempt=self._attempt_name(seq))
        self._publisher().rewrite_progress(lambda _: False, lambda _: ShownProgress(progress))
        return identity

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Write a progress record that says that the batch is done, with the number of its messages that
        were sent.
        """
        if lease.sink_identity(lease.stream, self.name) is None:
            return 0  # nothing was ever sent; `publish` must write the first record, before the ledger's note
        with self.log() as log:
            log.ensure_progress_topic()
        progress = self._publisher().rewrite_progress(
            lambda record: not record.lacks(seq), partial(self._sealed, seq)
        )
        return progress.sent if progress.seq == seq else 0

    def _sealed(self, seq: int, record: Progress | None) -> ShownProgress:
        # Nothing of the batch was sent, so the record counts no message.
        if record is None or record.seq < seq:
            return ShownProgress(Progress(seq, 0, done=True, attempt=self._attempt_name(seq)))
        return ShownProgress(replace(record, done=True))

    def _is_lost(self, record: Progress | None) -> bool:
        last = self.context.ledger.last_published(self.context.stream, self.name)
        try:
            self._publisher().check(record, last)
        except ProgressLost:
            return True
        return False

    def _found_progress(self, stated: int | None, record: Progress | None) -> ShownProgress:
        """Return what replaces a lost progress record."""
        if stated is None:
            return find_progress(self, record)
        ledger, stream = self.context.ledger, self.context.stream
        least, head = record.seq if record is not None else 0, ledger.head(stream).seq
        if not least <= stated <= head:
            raise SettingsInvalid(
                f"--progress {self.name}={stated} cannot be: the batches in question are {least} to {head}",
                "A batch that the progress record has is in the topic, and one after the head was never "
                "sent.",
            )
        return ShownProgress(Progress(stated, 0, done=True, attempt=self._attempt_name(stated)))

    def _require_same_topic(self) -> str:
        """Return the topic's id, if the topic is the one that was first published to.

        Raises TopicMissing, TopicRecreated, BrokerUnavailable.
        """
        topic, stream = self.declared.topic, self.context.stream
        identity = self._topic_id()
        first_identity = self.context.ledger.sink_identity(stream, self.name)
        if first_identity is not None and first_identity != identity:
            raise TopicRecreated(
                f"The output topic {topic} was deleted and created again "
                f"(id {first_identity} is now {identity})",
                f"Let the new topic get what it is to have: {stream.recover_command('send-again')}. If the "
                "connection leads to another Kafka than before, correct that instead.",
            )
        return identity

    def _topic_id(self) -> str:
        with self.log() as log:
            return log.topic_id(self.declared.topic)

    def log(self) -> KafkaLog:
        """Return the log of the topic's cluster. Raises SettingsInvalid."""
        return self.context.log(self.declared.connection)

    def _publisher(self) -> KafkaPublisher:
        return KafkaPublisher(self.log(), self.shard, self.declared.topic, self.require_committed)


@contextmanager
def _recoverable(stream: Stream) -> Iterator[None]:
    """Add the command that repairs a lost progress record to the error."""
    try:
        yield
    except ProgressLost as error:
        raise ProgressLost(
            error.what,
            "Let tidegate find out from the output topic what was sent, and send the rest: "
            f"{stream.recover_command('restore-progress')}",
        ) from error


class OpenTopic(PublishedTopic[KafkaSink]):
    """Gets what a stage emits."""

    @property
    def sends_shards(self) -> bool:
        """True: each shard has a transactional id of its own."""
        return True

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

    def check_target(self) -> None:
        """Check that the topic is the one that was first published to, and takes emissions without a key if
        there may be some.

        Raises SinkRefused if the topic is compacted, and what the check of any topic raises.
        """
        super().check_target()
        self._check_keyless()

    def _check_keyless(self) -> None:
        """Raise SinkRefused if emissions may be without a key, and the topic is compacted."""
        if self._may_lack_keys:
            self.refuse_compaction(
                f"The topic {self.declared.topic} is compacted, and takes no record without a key",
                "Let such records go into quarantine (`null_key: quarantine`), or: ",
            )

    @property
    def _may_lack_keys(self) -> bool:
        return self.pipeline.may_lack_keys(self.stage)

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
        return self.pipeline.path_to(self.stage)

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the topic would accept each emission now, by timestamp and size.

        Raises TimestampRefused, RecordTooLarge, and what the checks of any topic raise.
        """
        with self.log() as log:
            # Inside of the block, so that all questions share one connection.
            super().check_outbox(outbox)
            self._check_keyless()
            topic = self.declared.topic
            limits, largest = log.timestamp_limits(topic), log.largest_bytes(topic)
        # Timestamps first: they need the files' statistics only, sizes may need all messages.
        check_timestamps(self.declared, outbox, limits)
        check_sizes(topic, largest, self.messages(outbox)(0))

    def messages(self, outbox: Outbox) -> Messages:
        """Return a function that yields the emissions in the sink's format."""
        return partial(topic_messages, self.declared, outbox, may_lack_keys=self._may_lack_keys)


SINK = OpenTopic
