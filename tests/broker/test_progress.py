"""The progress record that a publisher finds is its newest, whatever other pipelines have open beside it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tidegate.broker import PROGRESS_TOPIC, KafkaConfig, KafkaLog
from tidegate.broker.config import PROGRESS_PARTITIONS
from tidegate.broker.publisher import KafkaPublisher, Message, Progress, chunks
from tidegate.errors import Fenced
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


def one_message(skip: int) -> Iterator[Message]:
    yield Message(b"key", b"value", 1_800_000_000_000, ())


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
    assert publisher.publish(1, "first", messages, last_published=0) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert view.stable_ends[place] < view.ends[place]
    assert publisher.progress() == Progress(1, 1, done=True, attempt="first")
    assert publisher.publish(1, "first", messages, last_published=0) == 0
    neighbours[0].close(timeout=1)


def test_a_publisher_that_dies_holds_up_only_those_whose_progress_is_in_its_partition(
    config: KafkaConfig, publisher: KafkaPublisher
) -> None:
    place = place_of(publisher)
    dead = open_transaction(config, (place + 1) % PROGRESS_PARTITIONS, timeout_ms=600_000)
    publisher.begin(1)
    assert publisher.publish(1, "first", one_message, last_published=0) == 1
    assert publisher.publish(2, "first", one_message, last_published=1) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert [at for at, end in view.ends.items() if view.stable_ends[at] < end] == [
        (place + 1) % PROGRESS_PARTITIONS
    ]
    dead.abort_transaction()
    dead.close(timeout=1)


def test_a_shard_that_is_further_than_the_ledger_is_not_taken_for_done(publisher: KafkaPublisher) -> None:
    publisher.begin(1)
    for seq in (1, 2):
        publisher.publish(seq, "first", one_message, last_published=seq - 1)
    with pytest.raises(Fenced, match="at batch 1, but topic tidegate-progress says that it has sent 1 rec"):
        publisher.begin(1)
    with pytest.raises(Fenced, match="this ledger is not the one"):
        publisher.publish(1, "first", one_message, last_published=0)
    assert publisher.progress() == Progress(2, 1, done=True, attempt="first")


def test_another_attempt_of_a_batch_that_was_sent_is_not_taken_for_it(publisher: KafkaPublisher) -> None:
    publisher.begin(1)
    publisher.publish(1, "first", one_message, last_published=0)
    with pytest.raises(Fenced, match="attempt first of batch 1"):
        publisher.publish(1, "of another ledger", one_message, last_published=0)


def test_a_shard_can_begin_twice_before_it_has_sent_anything(publisher: KafkaPublisher) -> None:
    publisher.begin(7)
    publisher.begin(7)
    assert publisher.progress() == Progress(6, 0, done=True)


def test_a_progress_record_that_somebody_else_has_rebuilt_stays(publisher: KafkaPublisher) -> None:
    publisher.begin(1)
    publisher.publish(1, "first", one_message, last_published=0)
    seen = []

    def find(there: Progress | None) -> Progress:
        seen.append(there)
        assert there is not None
        return there

    assert publisher.rewrite_progress(find) == Progress(1, 1, done=True, attempt="first")
    assert seen == [Progress(1, 1, done=True, attempt="first")]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], [[]]),
        ([1, 1, 1], [[1, 1], [1]]),
        ([9, 1, 9, 2], [[9, 1], [9], [2]]),
        ([30, 1, 30], [[30], [1], [30]]),
    ],
)
def test_a_chunk_has_at_most_so_many_records_and_bytes(sizes: list[int], expected: list[list[int]]) -> None:
    found = list(chunks((Message(b"", b"v" * size, 0, ()) for size in sizes), records=2, size=10))
    assert [[message.size for message in chunk] for chunk, _ in found] == expected
    assert [is_last for _, is_last in found] == [False] * (len(expected) - 1) + [True]
