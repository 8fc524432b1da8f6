"""The transactional client on a real broker: where keys go, and what is known after an error."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from kafka.admin import NewTopic

from kafka import KafkaAdminClient, KafkaProducer
from tests.batch.test_source import own_home
from tests.kafka.batches import batch_of, message
from tidegate.errors import OutcomeUnknown
from tidegate.kafka import producer
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.producer import DeliveryTimedOut, TransactionalProducer
from tidegate.kafka.records import Slice, read_records
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
PARTITIONS = 7


def new_topic(config: KafkaConfig) -> str:
    name = f"out-{uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=config.servers)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    admin.close()
    return name


def read(config: KafkaConfig, topic: str) -> list[tuple[int | None, bytes | None, int]]:
    """Partition, key and timestamp of all that is committed, as soon as its markers are there."""
    with KafkaLog(config) as log:
        ends = log.view(topic).ends
    slices = (Slice(topic, partition, 0, end) for partition, end in ends.items())
    records = [record for slice_ in slices for record in read_records(config, slice_)]
    return [(record.partition(), record.key(), record.timestamp()[1]) for record in records]


def send(config: KafkaConfig, topic: str, *keys: bytes, timestamp_ms: int = 5) -> None:
    with TransactionalProducer(config, f"shard-{topic}", topic) as client:
        client.init()
        client.begin()
        client.send(topic, batch_of([message(key, timestamp_ms=timestamp_ms) for key in keys]))
        client.flush()
        client.commit()


def test_key_has_the_partition_of_other_clients(broker: KafkaBroker) -> None:
    config = KafkaConfig.parse(broker.bootstrap_servers)
    ours, theirs = new_topic(config), new_topic(config)
    keys = [b"", b"\x00", b"\xff\xfe", *(b"key-%d" % number for number in range(100))]
    other = KafkaProducer(bootstrap_servers=config.servers)
    for key in keys:
        other.send(theirs, b"value", key, timestamp_ms=5)
    other.close()
    send(config, ours, *keys)
    assert sorted(read(config, ours)) == sorted(read(config, theirs))


def test_the_timestamp_0_is_not_taken_for_now(broker: KafkaBroker) -> None:
    config = KafkaConfig.parse(broker.bootstrap_servers)
    topic = new_topic(config)
    send(config, topic, b"key", timestamp_ms=0)
    assert [timestamp for _, _, timestamp in read(config, topic)] == [1]


def test_error_in_a_transaction_aborts_it_at_once(broker: KafkaBroker) -> None:
    config = KafkaConfig.parse(broker.bootstrap_servers)
    topic = new_topic(config)
    client = TransactionalProducer(config, f"shard-{topic}", topic)
    client.init()
    client.begin()
    client.send(topic, batch_of([message()]))
    client.flush()
    with pytest.raises(ZeroDivisionError), client:
        raise ZeroDivisionError
    admin = KafkaAdminClient(bootstrap_servers=config.servers)
    ongoing = admin.list_transactions(state_filters=["Ongoing"])[1]
    admin.close()
    assert f"shard-{topic}" not in [transaction.transactional_id for transaction in ongoing]
    assert read(config, topic) == []


def finish(client: TransactionalProducer) -> None:
    client.flush()
    client.commit()


def test_unanswered_commit_is_unknown_and_failed_is_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        soon = {"delivery.timeout.ms": "2000"}
        config = KafkaConfig.from_dict({"bootstrap.servers": broker.bootstrap_servers} | soon)
        topic = new_topic(config)
        sent, unsent = (TransactionalProducer(config, f"shard-{number}", topic) for number in range(2))
        for client in (sent, unsent):
            client.init()
            client.begin()
            client.send(topic, batch_of([message()]))
            client.flush()
        broker.kill()
        unsent.send(topic, batch_of([message()]))
        monkeypatch.setattr(producer, "_ANSWER_SECONDS", 2.0)
        monkeypatch.setattr(producer, "_ABORT_SECONDS", 1.0)
        with pytest.raises(OutcomeUnknown, match="_TIMED_OUT"), sent:
            sent.commit()
        with pytest.raises(DeliveryTimedOut), unsent:
            finish(unsent)
