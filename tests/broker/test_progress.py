"""The progress record that a publisher finds is its newest, whatever other pipelines have open beside it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tidegate.broker import PROGRESS_TOPIC, KafkaConfig, KafkaLog
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


def open_transaction(config: KafkaConfig) -> KafkaProducer:
    """Another pipeline's, with a progress record in it. The broker aborts it after its timeout."""
    neighbour = KafkaProducer(
        **config.for_python(), transactional_id=f"neighbour-{uuid4().hex[:8]}", transaction_timeout_ms=3000
    )
    neighbour.init_transactions()
    neighbour.begin_transaction()
    neighbour.send(PROGRESS_TOPIC, value=b"{}", key=b"neighbour", partition=0).get(timeout=10)
    return neighbour


def test_a_transaction_that_another_pipeline_has_open_does_not_hide_what_was_published(
    config: KafkaConfig, publisher: KafkaPublisher
) -> None:
    neighbours = []

    def messages(skip: int) -> Iterator[Message]:
        """Another pipeline begins to publish just now, and dies of it."""
        neighbours.append(open_transaction(config))
        yield Message(b"key", b"value", 1_800_000_000_000, ())

    publisher.begin(1)
    assert publisher.publish(1, messages, last_published=0) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert view.stable_ends[0] < view.ends[0]
    assert publisher.progress() == Progress(1, 1, done=True)
    assert publisher.publish(1, messages, last_published=0) == 0
    neighbours[0].close(timeout=1)
