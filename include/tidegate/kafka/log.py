"""Questions to a Kafka cluster: which topics exist, their ids and settings, and where their logs end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.admin import ACLOperation, ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import (
    AuthorizationError,
    ClusterAuthorizationFailedError,
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaError,
    NoError,
    PolicyViolationError,
    SaslAuthenticationFailedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import IsolationLevel

from kafka import KafkaAdminClient, TopicPartition
from tidegate.errors import SettingsInvalid, TopicMissing
from tidegate.failpoints import failpoint
from tidegate.kafka.config import PROGRESS_PARTITIONS, PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.connection import login_refused, topic_right_missing, unreachable
from tidegate.kafka.topic_facts import (
    SETTINGS,
    TIMESTAMP_SETTINGS,
    EpochEnd,
    OpenTransaction,
    Partition,
    TimestampLimits,
    epoch_ends,
    epochs_before,
    hidden_settings,
    open_transactions,
    shortcomings,
)

_API_TIMEOUT_MS = 15_000
_NO_SUCH_TOPIC = (UnknownTopicOrPartitionError, InvalidTopicError)


@dataclass(frozen=True)
class TopicView:
    """The state of a topic.

    The last stable offset is smaller than the high watermark only while a transaction is open.

    Args:
        topic_id: Kafka's id, which changes if the topic is deleted and created again.
        starts: partition -> the first offset that is kept.
        stable_ends: partition -> the last stable offset.
        ends: partition -> the high watermark.
        leader_epochs: partition -> the epoch of its leader; missing if the broker does not report it.
    """

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    stable_ends: Mapping[int, int]
    ends: Mapping[int, int]
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


@contextmanager
def broker_errors(config: KafkaConfig) -> Iterator[None]:
    """Turn exceptions of the client into tidegate's errors, which name the servers, but never the
    credentials.

    Raises SettingsInvalid if the login is refused, BrokerUnavailable otherwise.
    """
    try:
        yield
    except (AuthorizationError, SaslAuthenticationFailedError) as error:
        raise login_refused(config, type(error).__name__) from error
    except (KafkaError, OSError) as error:
        raise unreachable(config, type(error).__name__) from error


class KafkaLog:
    """Questions to a Kafka cluster, over one connection, which the first question opens.

    As a context manager it can be nested: the outermost block closes the connection. After an error the next
    question opens a new connection. `timeout_ms` limits how long a question waits for a broker that does not
    answer; by default the settings decide.

    Example:
        with KafkaLog(settings.kafka()) as log:
            view = log.view("events")
    """

    def __init__(self, config: KafkaConfig, timeout_ms: int | None = None) -> None:
        self.config = config
        self._timeout_ms = timeout_ms
        self._client: Any = None
        self._users = 0

    def __enter__(self) -> KafkaLog:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            self._close()

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with broker_errors(self.config):
            try:
                yield self._connected()
            except (KafkaError, OSError):
                self._close()
                raise

    def _connected(self) -> Any:
        if self._client is None:
            with failpoint("kafka.connect"):
                options = {"request_timeout_ms": _API_TIMEOUT_MS, **self.config.for_python()}
                if self._timeout_ms is not None:
                    options["request_timeout_ms"] = self._timeout_ms
                self._client = KafkaAdminClient(
                    **options, bootstrap_timeout_ms=self._timeout_ms or _API_TIMEOUT_MS
                )
        return self._client

    def view(self, topic: str) -> TopicView:
        """Return the present state of a topic. Raises TopicMissing, BrokerUnavailable."""
        with self._admin() as admin:
            described = self._describe(admin, topic)
            partitions = [
                TopicPartition(topic, partition["partition_index"]) for partition in described["partitions"]
            ]
            starts = _listed(admin, partitions, OffsetSpec.EARLIEST)
            # Ask for the high watermark first, so that records that arrive between the two questions do not
            # look like an open transaction.
            ends = _listed(admin, partitions, OffsetSpec.LATEST)
            stable_ends = _listed(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
            return TopicView(
                topic=topic,
                topic_id=str(described["topic_id"]),
                starts={at.partition: start.offset for at, start in starts.items()},
                # Records that arrived between the two questions are left to the next view.
                stable_ends={
                    at.partition: min(end.offset, ends[at].offset) for at, end in stable_ends.items()
                },
                ends={at.partition: end.offset for at, end in ends.items()},
                leader_epochs={
                    at.partition: end.leader_epoch for at, end in ends.items() if end.leader_epoch is not None
                },
            )

    def stable_ends(self, topics: Iterable[str]) -> dict[Partition, int]:
        """Return the last stable offset of each partition of the topics, with one question for all.

        A topic that does not exist has no partitions. Raises BrokerUnavailable.
        """
        names = sorted(set(topics))
        if not names:
            return {}  # for Kafka, an empty list means all topics
        with self._admin() as admin:
            with failpoint("kafka.describe"):
                described = admin.describe_topics(names)
            partitions = [
                TopicPartition(topic["name"], partition["partition_index"])
                for topic in described
                if topic["error_code"] == 0
                for partition in topic["partitions"]
            ]
            ends = _listed(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
            return {(at.topic, at.partition): end.offset for at, end in ends.items()}

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, which changes if the topic is deleted and created again. Raises as
        `view`.
        """
        with self._admin() as admin:
            return str(self._describe(admin, topic)["topic_id"])

    def topics(self) -> list[str]:
        """Return the names of all topics that this user may describe, without internal ones: Kafka's own, and
        the topic of tidegate's progress records.

        Raises BrokerUnavailable.
        """
        with self._admin() as admin:
            with failpoint("kafka.describe"):
                described = admin.describe_topics()
            return sorted(
                topic["name"]
                for topic in described
                if not topic["is_internal"]
                and topic["name"] != PROGRESS_TOPIC
                and for_code(topic["error_code"]) not in (*_NO_SUCH_TOPIC, TopicAuthorizationFailedError)
            )

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic exists. Raises SettingsInvalid if the user may not ask, and as `view`."""
        with self._admin() as admin:
            return self._description(admin, topic) is not None

    def _describe(self, admin: Any, topic: str) -> Mapping[str, Any]:
        described = self._description(admin, topic)
        if described is None:
            raise TopicMissing(
                f"The topic {topic} does not exist at {self.config.servers}",
                f"Create it, or correct the name: kafka-topics.sh --create --topic {topic}.",
            )
        return described

    def _description(self, admin: Any, topic: str) -> Mapping[str, Any] | None:
        """Return a topic's metadata; None if the topic does not exist.

        To a user without the right Describe a broker answers the same, whether the topic exists or not.
        Raises SettingsInvalid for such a user.
        """
        with failpoint("kafka.describe"):
            described: Mapping[str, Any] = admin.describe_topics([topic])[0]
        error = for_code(described["error_code"])
        if error is TopicAuthorizationFailedError:
            raise topic_right_missing(self.config, "Describe", topic)
        if error in _NO_SUCH_TOPIC or (error is NoError and not described["partitions"]):
            return None
        if error is not NoError:
            raise error(f"The broker does not describe the topic {topic}")
        return described

    def epoch_ends(self, epochs: Mapping[Partition, int]) -> Mapping[Partition, EpochEnd]:
        """Return where a leader epoch of each partition ends now. Raises BrokerUnavailable."""
        if not epochs:
            return {}
        with self._admin() as admin, failpoint("kafka.epochs"):
            return epoch_ends(admin, epochs)

    def epochs_before(
        self, views: Iterable[TopicView], offsets: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Return the leader epoch of the record before each offset, if the log has such a record and reports
        its epoch.

        Raises BrokerUnavailable.
        """
        newest = {
            (view.topic, partition): epoch
            for view in views
            for partition, epoch in view.leader_epochs.items()
            if offsets.get((view.topic, partition), 0) > view.starts[partition]
        }
        return epochs_before(self.epoch_ends, offsets, newest)

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions, none if it does not exist. Raises as `has_topic`."""
        with self._admin() as admin:
            described = self._description(admin, topic)
            partitions = [] if described is None else described["partitions"]
            return [partition["partition_index"] for partition in partitions]

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset that the log keeps, and the high watermark: the offset after the last
        record, also if its transaction is open.

        Raises BrokerUnavailable.
        """
        at = TopicPartition(topic, partition)
        with self._admin() as admin:
            start, end = (_listed(admin, [at], spec)[at] for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
            return int(start.offset), int(end.offset)

    def offsets_at(self, topic: str, partitions: list[int], timestamp_ms: int) -> dict[int, tuple[int, int]]:
        """Return partition -> (offset, timestamp) of the first record at or after an instant, if such a
        record exists.

        Raises BrokerUnavailable.
        """
        with self._admin() as admin:
            instants = {TopicPartition(topic, partition): timestamp_ms for partition in partitions}
            with failpoint("kafka.offsets_at"):
                # The broker answers -1 for a partition without a record at or after the instant.
                first_records = admin.list_partition_offsets(instants)
            return {
                at.partition: (record.offset, record.timestamp)
                for at, record in first_records.items()
                if record.offset >= 0
            }

    def open_transactions(self, view: TopicView) -> list[OpenTransaction]:
        """Return the transactions that keep readers from the end of a topic: the oldest open one of each
        partition.
        """
        starts = {at: end for at, end in view.stable_ends.items() if end < view.ends[at]}
        if not starts:
            return []
        with self._admin() as admin, failpoint("kafka.open_transactions"):
            return open_transactions(admin, view.topic, starts)

    def is_compacted(self, topic: str) -> bool:
        """Return whether the broker may remove records of a topic for newer ones with the same key.

        Raises SettingsInvalid if the user may not ask, and as `view`.
        """
        policy = self.settings(topic, ["cleanup.policy"]).get("cleanup.policy")
        if policy is None:
            raise topic_right_missing(self.config, "DescribeConfigs", topic)
        return "compact" in policy

    def requires_keys(self, topic: str) -> bool:
        """Return whether a topic refuses records without a key, as compacted topics do; False if the user may
        not ask.
        """
        return "compact" in self.settings(topic, ["cleanup.policy"]).get("cleanup.policy", "")

    def largest_bytes(self, topic: str) -> int | None:
        """Return the largest batch of records, in bytes, that a topic accepts; None if the user may not
        ask.
        """
        largest = self.settings(topic, ["max.message.bytes"]).get("max.message.bytes")
        return None if largest is None else int(largest)

    def timestamp_limits(self, topic: str) -> TimestampLimits:
        """Return the timestamps that a topic accepts; no limits if the user may not ask. Raises as `view`."""
        return TimestampLimits.parse(self.settings(topic, TIMESTAMP_SETTINGS))

    def settings(self, topic: str, names: Collection[str]) -> dict[str, str]:
        """Return the topic's settings with these names, as far as the broker has them; empty if the user may
        not ask.

        kafka-python drops the broker's refusal and returns no settings. Raises as `view`.
        """
        with self._admin() as admin:
            self._describe(admin, topic)
            with failpoint("kafka.configs"):
                requested = ConfigResource(ConfigResourceType.TOPIC, topic, list(names))
                # kafka-python leaves out the broker's defaults otherwise, which limit records, too.
                configs = admin.describe_configs([requested], config_filter="all")["topic"][topic]
            return {name: str(configs[name]["value"]) for name in names if name in configs}

    def require_write(self, topic: str) -> None:
        """Raise SettingsInvalid if this user may not write to a topic. Raises as `view`."""
        with self._admin() as admin:
            allowed = self._describe(admin, topic).get("authorized_operations") or ()
        if allowed and ACLOperation.WRITE.name not in allowed:  # a broker before 2.3 reports none
            raise topic_right_missing(self.config, "Write", topic)

    def progress_topic_shortcomings(self) -> list[str]:
        """Return a message for each unsuitable setting of the topic of progress records; empty if the topic
        does not exist.

        If the user may not see the settings, the message says so.
        """
        if not self.has_topic(PROGRESS_TOPIC):
            return []
        settings = self.settings(PROGRESS_TOPIC, SETTINGS)
        return list(shortcomings(settings, PROGRESS_TOPIC)) if settings else [hidden_settings(PROGRESS_TOPIC)]

    def ensure_progress_topic(self) -> None:
        """Create the compacted topic of progress records unless it exists, and wait until it can be used.

        Never add partitions to it: a shard would look for its record in another partition.
        """
        if not self.has_topic(PROGRESS_TOPIC):
            with failpoint("kafka.create_progress_topic"):
                self._create_progress_topic(wait_for_metadata=True)

    def check_progress_topic(self) -> None:
        """Raise SettingsInvalid if this user may neither write progress records nor create their topic.

        It creates nothing. Raises BrokerUnavailable.
        """
        if self.has_topic(PROGRESS_TOPIC):
            self.require_write(PROGRESS_TOPIC)
        else:
            self._create_progress_topic(validate_only=True)

    def _create_progress_topic(self, **options: bool) -> None:
        # Replication factor -1: the default of the broker.
        topic = NewTopic(PROGRESS_TOPIC, PROGRESS_PARTITIONS, -1, topic_configs=dict(SETTINGS))
        with self._admin() as admin:
            try:
                admin.create_topics([topic], raise_errors=True, **options)
            except TopicAlreadyExistsError:
                return
            except (ClusterAuthorizationFailedError, TopicAuthorizationFailedError) as error:
                raise topic_right_missing(self.config, "Create", PROGRESS_TOPIC) from error
            except (InvalidConfigurationError, PolicyViolationError) as error:
                raise SettingsInvalid(
                    f"Kafka at {self.config.servers} refuses the settings of the topic {PROGRESS_TOPIC}: "
                    f"{error}",
                    f"Create it: compacted (cleanup.policy=compact), with {PROGRESS_PARTITIONS} partitions, "
                    f"and, of {', '.join(name for name in SETTINGS if name != 'cleanup.policy')}, the "
                    "smallest values that are allowed.",
                ) from error


def _listed(
    admin: Any,
    partitions: list[TopicPartition],
    spec: OffsetSpec,
    isolation: Any = IsolationLevel.READ_UNCOMMITTED,
) -> Mapping[TopicPartition, Any]:
    """Return the offset, and its leader epoch, that `spec` names in each partition."""
    with failpoint("kafka.offsets"):
        listed: Mapping[TopicPartition, Any] = admin.list_partition_offsets(
            dict.fromkeys(partitions, spec), isolation_level=isolation
        )
    return listed
