"""The progress record that a publisher finds is its newest, whatever other pipelines have open beside it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tidegate.broker import PROGRESS_TOPIC, KafkaConfig, KafkaLog
from tidegate.broker.config import PROGRESS_PARTITIONS
from tidegate.broker.publisher import KafkaPublisher, Message, Progress
from tidegate.local.broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def config(broker: KafkaBroker) -> KafkaConfig:
    config = KafkaConfig.parse(broker.bootstrap_servers)
    with KafkaLog(config) as log:
        log.ensure_progress_topic()
    return config


@pytest.fixture
def publisher(broker: KafkaBroker, config: KafkaConfig) -> KafkaPublisher:
    topic = f"published-{uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    return KafkaPublisher(config, f"shard-{topic}", topic)


def open_transaction(config: KafkaConfig, partition: int, timeout_ms: int = 3000) -> KafkaProducer:
    """Another pipeline's, with a progress record in it. The broker aborts it after its timeout."""
    neighbour = KafkaProducer(
        **config.for_python(),
        transactional_id=f"neighbour-{uuid4().hex[:8]}",
        transaction_timeout_ms=timeout_ms,
    )
    neighbour.init_transactions()
    neighbour.begin_transaction()
    neighbour.send(PROGRESS_TOPIC, value=b"{}", key=b"neighbour", partition=partition).get(timeout=10)
    return neighbour


def place_of(publisher: KafkaPublisher) -> int:
    return publisher._place(range(PROGRESS_PARTITIONS)).partition


def test_a_transaction_that_another_pipeline_has_open_does_not_hide_what_was_published(
    config: KafkaConfig, publisher: KafkaPublisher
) -> None:
    neighbours = []
    place = place_of(publisher)

    def messages(skip: int) -> Iterator[Message]:
        """Another pipeline begins to publish just now, and dies of it."""
        neighbours.append(open_transaction(config, place))
        yield Message(b"key", b"value", 1_800_000_000_000, ())

    publisher.begin(1)
    assert publisher.publish(1, messages, last_published=0) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert view.stable_ends[place] < view.ends[place]
    assert publisher.progress() == Progress(1, 1, done=True)
    assert publisher.publish(1, messages, last_published=0) == 0
    neighbours[0].close(timeout=1)


def test_a_publisher_that_dies_holds_up_only_those_whose_progress_is_in_its_partition(
    config: KafkaConfig, publisher: KafkaPublisher
) -> None:
    def messages(skip: int) -> Iterator[Message]:
        yield Message(b"key", b"value", 1_800_000_000_000, ())

    place = place_of(publisher)
    dead = open_transaction(config, (place + 1) % PROGRESS_PARTITIONS, timeout_ms=600_000)
    publisher.begin(1)
    assert publisher.publish(1, messages, last_published=0) == 1
    assert publisher.publish(2, messages, last_published=1) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert [at for at, end in view.ends.items() if view.stable_ends[at] < end] == [
        (place + 1) % PROGRESS_PARTITIONS
    ]
    dead.abort_transaction()
    dead.close(timeout=1)
