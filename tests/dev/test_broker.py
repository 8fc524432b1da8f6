"""The broker that tests and the demo rely on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import InvalidTimestampError

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tidegate.errors import SetupFailed
from tidegate_dev.broker import KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("nothing_left")]
LONG_AGO_MS = 86_400_000


@pytest.fixture(scope="module")
def broker(module_home: Path, nothing_left: None) -> Iterator[KafkaBroker]:
    with KafkaBroker(module_home, fresh=True) as running:
        yield running


def create(broker: KafkaBroker, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.close()


def send(broker: KafkaBroker, topic: str, value: bytes, timestamp_ms: int = LONG_AGO_MS) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send(topic, value, timestamp_ms=timestamp_ms).get(timeout=60)
    producer.close()


def read(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


@pytest.mark.long
def test_broker_keeps_data_and_port_after_kill(broker: KafkaBroker) -> None:
    address = broker.bootstrap_servers
    create(broker, "kept")
    send(broker, "kept", b"first")
    broker.stop()
    assert not broker.running
    broker.start()
    send(broker, "kept", b"second")
    broker.kill()
    broker.start()
    assert broker.bootstrap_servers == address
    assert read(broker, "kept", 2) == [b"first", b"second"]


def test_broker_keeps_old_records_and_refuses_future(
    broker: KafkaBroker,
) -> None:
    create(broker, "times")
    send(broker, "times", b"old", timestamp_ms=0)
    with pytest.raises(InvalidTimestampError):
        send(broker, "times", b"far", timestamp_ms=9_999_999_999_999)
    assert read(broker, "times", 1) == [b"old"]


def test_topics_are_not_made_by_mistake(broker: KafkaBroker) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    consumer.partitions_for_topic("mistaken")
    assert "mistaken" not in consumer.topics()
    consumer.close()


def test_its_port_is_claimed_only_once(broker: KafkaBroker, module_home: Path) -> None:
    with pytest.raises(SetupFailed, match=r"Port \d+ is taken.*TIDEGATE_KAFKA_PORT"):
        KafkaBroker(module_home / "other", port=broker.port).start()


def test_a_setting_that_kafka_refuses_is_shown(module_home: Path, tmp_path: Path) -> None:
    (tmp_path / "jars").symlink_to(module_home / "jars")
    with pytest.raises(SetupFailed, match=r"num\.partitions"):
        KafkaBroker(tmp_path, config={"num.partitions": "none"}).start()
