"""A slow broker gets smaller transactions, and each message once."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.admin import NewTopic

from kafka import KafkaAdminClient
from tests.attempts import committed
from tests.batch.test_source import own_home
from tests.kafka.batches import batch_of, message
from tests.kafka.test_producer import read
from tidegate.errors import BrokerUnavailable, SettingsInvalid
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import LEAST_CHUNK_BYTES
from tidegate.kafka.producer import DeliveryTimedOut, Pace, TransactionalProducer
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate_dev.broker import KafkaBroker

KIB = 1024


def test_transactions_grow_while_the_broker_is_quick() -> None:
    pace = Pace(4096 * KIB, delivery_seconds=40)
    sizes = []
    for _ in range(4):
        sizes.append(pace.bytes // KIB)
        pace.delivered(0.1)
    assert sizes == [1024, 2048, 4096, 4096]


def test_transactions_shrink_down_to_the_least() -> None:
    pace = Pace(4096 * KIB, delivery_seconds=40)
    pace.delivered(30)
    assert pace.bytes == 512 * KIB
    assert [pace.timed_out() for _ in range(3)] == [True, True, False]
    assert pace.bytes == LEAST_CHUNK_BYTES
    pace.delivered(30)
    assert pace.bytes == LEAST_CHUNK_BYTES


def set_quota(broker: KafkaBroker, client: str, **limits: int) -> None:
    named = ",".join(f"{name}={limit}" for name, limit in limits.items())
    whom = ["--entity-type", "clients", "--entity-name", client]
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers]
    subprocess.run([*broker._java(), *tool, "--alter", "--add-config", named, *whom], check=True)


@pytest.mark.broker
def test_a_batch_goes_out_under_a_produce_quota(home: Path, tmp_path: Path) -> None:
    """Publish more than the broker takes in the time for one transaction."""
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        limit = {"delivery.timeout.ms": "4000", "client.id": "slow"}
        config = KafkaConfig.from_dict({"bootstrap.servers": broker.bootstrap_servers} | limit)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.create_topics([NewTopic("out", 2, 1)])
        admin.close()
        set_quota(broker, "slow", producer_byte_rate=50_000)
        with KafkaLog(config) as log:
            log.ensure_progress_topic()
        publisher = KafkaPublisher(KafkaLog(config), "shard", "out", committed())
        chance = random.Random(1)
        sent = [message(b"%d" % number, chance.randbytes(1000)) for number in range(600)]

        def messages(skip: int) -> Iterator[pa.RecordBatch]:
            yield batch_of(sent[skip:])

        publisher.publish(DecidedBatch(1, "first", messages), 0, lambda: None)
        assert sorted(int(key) for _, key, _ in read(config, "out")) == list(range(600))


def test_delivery_timeout_stays_within_its_transaction() -> None:
    wrong = {"bootstrap.servers": "a:1", "transaction.timeout.ms": "30000", "message.timeout.ms": "40000"}
    with pytest.raises(SettingsInvalid, match=r"delivery.timeout.ms is longer.*Write 20000 or less"):
        KafkaConfig.from_dict(wrong)
    with pytest.raises(SettingsInvalid, match="from 65536 to"):
        KafkaConfig.from_dict({"bootstrap.servers": "a:1", "tidegate.transaction.bytes": "many"})


@pytest.mark.broker
def test_broker_too_slow_for_the_smallest_is_reported(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = KafkaConfig.from_dict({"bootstrap.servers": broker.bootstrap_servers})
    with KafkaLog(config) as log:
        log.ensure_progress_topic()
    tries = []

    def time_out(self: TransactionalProducer) -> None:
        tries.append(publisher._own._pace.bytes)
        raise DeliveryTimedOut

    monkeypatch.setattr(TransactionalProducer, "flush", time_out)
    publisher = KafkaPublisher(KafkaLog(config), "shard-of-a-slow-one", "out", committed())
    with pytest.raises(BrokerUnavailable, match=r"64 KiB.*min.insync.replicas.*delivery.timeout.ms"):
        publisher.publish(
            DecidedBatch(1, "first", lambda skip: iter([batch_of([message()])])), 0, lambda: None
        )
    assert tries == [1024 * KIB, 256 * KIB, 64 * KIB]
