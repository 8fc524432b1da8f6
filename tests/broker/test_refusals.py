"""What a broker will not have, however often it is sent, on a broker with Kafka's own settings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import InvalidRecordError, KafkaError, NotEnoughReplicasError

from tidegate.broker import KafkaConfig, KafkaLog
from tidegate.broker.limits import AFTER, BEFORE, TimestampLimits
from tidegate.broker.publisher import KafkaPublisher, Message
from tidegate.broker.refusals import refusal
from tidegate.errors import Permanent, RecordTooLarge, SinkRefused, TimestampRefused
from tidegate.local.broker import KafkaBroker

pytestmark = pytest.mark.broker
HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000


class Topic:
    """A topic of a test's own, and who publishes to it."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        self.config, self.name = KafkaConfig.parse(servers), f"out-{uuid4().hex[:8]}"
        with KafkaLog(self.config) as log:
            log.ensure_progress_topic()
        self.admin("create_topics", [NewTopic(self.name, 2, 1, topic_configs=dict(settings))])
        self.publisher = KafkaPublisher(self.config, f"shard-{self.name}", self.name)
        self.publisher.begin(1)

    def admin(self, call: str, *arguments: object) -> None:
        client = KafkaAdminClient(bootstrap_servers=self.config.servers)
        try:
            getattr(client, call)(*arguments)
        finally:
            client.close()

    def configure(self, settings: Mapping[str, str]) -> None:
        self.admin("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, self.name, dict(settings))])

    def publish(self, refused: Message) -> int:
        """One record that is refused, among others for either partition."""

        def messages(skip: int) -> Iterator[Message]:
            good = [Message(b"%d" % number, b"{}", NOW_MS, ()) for number in range(20)]
            yield from [*good, refused, *good][skip:]

        return self.publisher.publish(1, "first", messages, last_published=0)


def message(timestamp_ms: int = NOW_MS, value: bytes = b"{}", key: bytes = b"k") -> Message:
    return Message(key, value, timestamp_ms, ())


REFUSALS = {
    "ahead": (
        {},
        message(NOW_MS + 2 * HOUR_MS),
        TimestampRefused,
        f"{AFTER}=3600000",
        {AFTER: str(3 * HOUR_MS)},
    ),
    "old": (
        {BEFORE: str(HOUR_MS)},
        message(NOW_MS - 2 * HOUR_MS),
        TimestampRefused,
        f"{BEFORE}=3600000",
        {BEFORE: str(3 * HOUR_MS)},
    ),
    "too large": (
        {"max.message.bytes": "100000"},
        message(value=os.urandom(500_000)),
        RecordTooLarge,
        "max.message.bytes=100000",
        {"max.message.bytes": "1048588"},
    ),
}


@pytest.mark.parametrize(("settings", "refused", "error", "told", "cure"), REFUSALS.values(), ids=REFUSALS)
def test_a_record_that_the_topic_refuses_is_told_with_its_limit_and_sent_after_the_cure(
    broker: KafkaBroker,
    settings: Mapping[str, str],
    refused: Message,
    error: type[Permanent],
    told: str,
    cure: Mapping[str, str],
) -> None:
    topic = Topic(broker.bootstrap_servers, settings)
    with pytest.raises(error, match=told) as raised:
        topic.publish(refused)
    assert topic.name in str(raised.value)
    topic.configure(cure)
    assert topic.publish(refused) == 41


def test_a_topic_has_kafkas_own_limits_unless_it_has_others_or_the_brokers_clock(broker: KafkaBroker) -> None:
    default = Topic(broker.bootstrap_servers, {})
    appended = Topic(broker.bootstrap_servers, {"message.timestamp.type": "LogAppendTime", AFTER: "1"})
    with KafkaLog(default.config) as log:
        assert log.timestamp_limits(default.name) == TimestampLimits(None, HOUR_MS)
        assert log.timestamp_limits(appended.name) == TimestampLimits()


def test_an_older_brokers_one_limit_holds_both_ways() -> None:
    limits = TimestampLimits.parse({"message.timestamp.difference.max.ms": "5000"})
    assert (limits.earliest_ms(7000), limits.latest_ms(7000)) == (2000, 12_000)


def test_what_a_brokers_rules_are_against_is_told_as_that_and_a_passing_error_as_none() -> None:
    config = KafkaConfig.parse("nobody:9092")
    refused = refusal(InvalidRecordError("a compacted topic has keys"), config, "shard", "out")
    assert isinstance(refused, SinkRefused)
    assert "topic out refuses an emission of shard" in str(refused)
    assert "a compacted topic has keys" in str(refused)
    later = KafkaError("Cannot perform send because a previous request has failed", InvalidRecordError())
    assert isinstance(refusal(later, config, "shard", "out"), SinkRefused)
    assert refusal(NotEnoughReplicasError(), config, "shard", "out") is None
