"""What a broker will not have, however often it is sent, on a broker with Kafka's own settings."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from kafka import KafkaAdminClient
from tests.attempts import committed
from tests.batch.test_source import own_home
from tests.kafka.batches import batches_of, begin
from tidegate.errors import (
    BrokerUnavailable,
    Fenced,
    Permanent,
    RecordTooLarge,
    SettingsInvalid,
    SinkRefused,
    TidegateError,
    TimestampRefused,
)
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import Message
from tidegate.kafka.producer import publication_error
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate.kafka.topic_facts import AFTER, BEFORE, TimestampLimits
from tidegate_dev.broker import KafkaBroker

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
        self.publisher = KafkaPublisher(KafkaLog(self.config), f"shard-{self.name}", self.name, committed())
        begin(self.publisher, 1)

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

        good = [message(key=b"%d" % number) for number in range(20)]
        messages = batches_of([*good, refused, *good])
        return self.publisher.publish(DecidedBatch(1, "first", messages), last_published=0)


def message(timestamp_ms: int = NOW_MS, value: bytes = b"{}", key: bytes = b"k") -> Message:
    return Message(key, value, timestamp_ms, [])


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


@pytest.mark.parametrize(("settings", "refused", "error", "limit", "cure"), REFUSALS.values(), ids=REFUSALS)
def test_refused_record_names_its_limit_and_is_resent(
    broker: KafkaBroker,
    settings: Mapping[str, str],
    refused: Message,
    error: type[Permanent],
    limit: str,
    cure: Mapping[str, str],
) -> None:
    topic = Topic(broker.bootstrap_servers, settings)
    with pytest.raises(error, match=limit) as raised:
        topic.publish(refused)
    assert topic.name in str(raised.value)
    topic.configure(cure)
    assert topic.publish(refused) == 41


def test_topic_without_own_limits_has_kafka_defaults(broker: KafkaBroker) -> None:
    default = Topic(broker.bootstrap_servers, {})
    appended = Topic(broker.bootstrap_servers, {"message.timestamp.type": "LogAppendTime", AFTER: "1"})
    with KafkaLog(default.config) as log:
        assert log.timestamp_limits(default.name) == TimestampLimits(None, HOUR_MS)
        assert log.timestamp_limits(appended.name) == TimestampLimits()


def test_an_older_brokers_one_limit_holds_both_ways() -> None:
    limits = TimestampLimits.parse({"message.timestamp.difference.max.ms": "5000"})
    assert (limits.earliest_ms(7000), limits.latest_ms(7000)) == (2000, 12_000)


def test_small_topic_gets_smaller_batches(broker: KafkaBroker) -> None:
    topic = Topic(broker.bootstrap_servers, {"max.message.bytes": "20000"})
    random = [message(key=b"%d" % number, value=os.urandom(1000)) for number in range(200)]
    assert topic.publisher.publish(DecidedBatch(1, "first", batches_of(random)), last_published=0) == 200


def refusal(code: int) -> TidegateError:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "reader", "sasl.password": "secret"}
    config = KafkaConfig.from_dict(
        {"bootstrap.servers": "nobody:9092", "security.protocol": "SASL_PLAINTEXT", **login}
    )
    return publication_error(KafkaError(code, "a compacted topic has keys"), KafkaLog(config), "shard", "out")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError.POLICY_VIOLATION, SinkRefused),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, SettingsInvalid),
        (KafkaError._AUTHENTICATION, SettingsInvalid),
        (KafkaError._SSL, SettingsInvalid),
        (KafkaError._TIMED_OUT, BrokerUnavailable),
        (KafkaError._INCONSISTENT, BrokerUnavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, BrokerUnavailable),
    ],
)
def test_client_error_says_whether_a_retry_helps(code: int, error: type[TidegateError]) -> None:
    assert type(refusal(code)) is error
    assert "secret" not in str(refusal(code))


def test_policy_violation_is_reported_with_its_reason() -> None:
    refused = str(refusal(KafkaError.INVALID_RECORD))
    assert "topic out refuses an emission of shard" in refused
    assert "a compacted topic has keys" in refused


def test_broker_with_short_transactions_names_the_setting(home: Path, tmp_path: Path) -> None:
    allowed = {"transaction.max.timeout.ms": "30000"}
    with KafkaBroker(own_home(home, tmp_path), config=allowed) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        publishers = [
            KafkaPublisher(KafkaLog(KafkaConfig.from_dict(servers | more)), "shard", "out", committed())
            for more in ({}, {"transaction.timeout.ms": "30000"})
        ]
        with pytest.raises(SettingsInvalid, match=r'of 60000 ms.*Set "transaction.timeout.ms" in TIDEGATE_'):
            publishers[0].check_admission()
        publishers[1].check_admission()
