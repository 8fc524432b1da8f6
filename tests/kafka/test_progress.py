"""The progress record that a publisher finds is its newest, whatever other pipelines have open beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Message
from kafka.admin import NewTopic

from kafka import KafkaAdminClient, KafkaProducer
from tests.attempts import committed
from tests.kafka.batches import batch_of, batches_of, begin, message
from tidegate.errors import Fenced, LedgerMismatch, ProgressLost, ProgressUnreadable
from tidegate.kafka import progress as progress_module
from tidegate.kafka.config import PROGRESS_PARTITIONS, PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.progress import Progress, place_of
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher, ShownProgress
from tidegate.kafka.records import Slice, read_records
from tidegate.kafka.topic_facts import FIRST_WINDOW, SETTINGS, shortcomings
from tidegate_dev.broker import KafkaBroker

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
    return KafkaPublisher(KafkaLog(config), f"shard-{topic}", topic, committed())


def open_transaction(config: KafkaConfig, partition: int, timeout_ms: int = 3000) -> KafkaProducer:
    """Another pipeline's, with a progress record in it. The broker aborts it after its timeout."""
    neighbour = KafkaProducer(
        **config.for_python(),
        transactional_id=f"neighbour-{uuid4().hex[:8]}",
        transaction_timeout_ms=timeout_ms,
    )
    neighbour.init_transactions()
    neighbour.begin_transaction()
    neighbour.send(PROGRESS_TOPIC, value=b"{}", key=b"neighbour", partition=partition).get(timeout=60)
    return neighbour


one_message = batches_of([message()])


def partition_of(publisher: KafkaPublisher) -> int:
    return place_of(publisher._own.name, range(PROGRESS_PARTITIONS)).partition


def test_foreign_open_transaction_hides_no_progress(config: KafkaConfig, publisher: KafkaPublisher) -> None:
    neighbours = []
    place = partition_of(publisher)

    def messages(skip: int) -> Iterator[pa.RecordBatch]:
        """Another pipeline begins to publish just now, and dies of it."""
        neighbours.append(open_transaction(config, place))
        yield batch_of([message()])

    begin(publisher, 1)
    assert publisher.publish(DecidedBatch(1, "first", messages), last_published=0) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert view.stable_ends[place] < view.ends[place]
    assert publisher.progress() == Progress(1, 1, done=True, attempt="first")
    assert publisher.publish(DecidedBatch(1, "first", messages), last_published=0) == 0
    neighbours[0].close(timeout=1)


def test_dead_publisher_blocks_only_its_progress_partition(
    config: KafkaConfig, publisher: KafkaPublisher
) -> None:
    place = partition_of(publisher)
    dead = open_transaction(config, (place + 1) % PROGRESS_PARTITIONS, timeout_ms=600_000)
    begin(publisher, 1)
    assert publisher.publish(DecidedBatch(1, "first", one_message), last_published=0) == 1
    assert publisher.publish(DecidedBatch(2, "first", one_message), last_published=1) == 1
    with KafkaLog(config) as log:
        view = log.view(PROGRESS_TOPIC)
    assert [at for at, end in view.ends.items() if view.stable_ends[at] < end] == [
        (place + 1) % PROGRESS_PARTITIONS
    ]
    dead.abort_transaction()
    dead.close(timeout=1)


def test_shard_ahead_of_the_ledger_is_not_done(publisher: KafkaPublisher) -> None:
    begin(publisher, 1)
    for seq in (1, 2):
        publisher.publish(DecidedBatch(seq, "first", one_message), last_published=seq - 1)
    begin(publisher, 1)  # a restored ledger does not know any more that it has begun
    with pytest.raises(Fenced, match="at batch 1, but topic"):
        publisher.publish(DecidedBatch(1, "first", one_message), last_published=0)
    assert publisher.progress() == Progress(2, 1, done=True, attempt="first")


def test_another_attempt_of_a_sent_batch_is_distinguished(publisher: KafkaPublisher) -> None:
    begin(publisher, 1)
    publisher.publish(DecidedBatch(1, "first", one_message), last_published=0)
    publisher._require_committed = committed("of another ledger")
    with pytest.raises(LedgerMismatch):
        publisher.publish(DecidedBatch(1, "of another ledger", one_message), last_published=0)


def test_unsent_shard_can_begin_twice(publisher: KafkaPublisher) -> None:
    begin(publisher, 7)
    begin(publisher, 7)
    assert publisher.progress() == Progress(6, 0, done=True)


def test_intact_progress_record_stays(publisher: KafkaPublisher) -> None:
    begin(publisher, 1)
    publisher.publish(DecidedBatch(1, "first", one_message), last_published=0)
    seen = []

    def is_intact(progress: Progress) -> bool:
        seen.append(progress)
        return True

    def find(progress: Progress | None) -> ShownProgress:
        raise AssertionError(progress)

    assert publisher.rewrite_progress(is_intact, find) == Progress(1, 1, done=True, attempt="first")
    assert seen == [Progress(1, 1, done=True, attempt="first")]


@dataclass
class Counted:
    """The number of records that were read to find progress."""

    records: int = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def read(*arguments: Any) -> Iterator[Message]:
        for record in read_records(*arguments):
            counted.records += 1
            yield record

    monkeypatch.setattr(progress_module, "read_records", read)
    return counted


def write(config: KafkaConfig, key: bytes, place: int, *transactions: tuple[int, bool]) -> None:
    """Transactions of so many progress records, batch after batch, each committed or aborted."""
    name = f"writer-{uuid4().hex[:8]}"
    producer = KafkaProducer(**config.for_python(), transactional_id=name, linger_ms=5)
    producer.init_transactions()
    seq = 0
    for records, commits in transactions:
        producer.begin_transaction()
        for _ in range(records):
            seq += 1
            body = Progress(seq, 1, done=True, attempt=name).body
            producer.send(PROGRESS_TOPIC, value=body, key=key, partition=place)
        (producer.commit_transaction if commits else producer.abort_transaction)()
    producer.close()


def newest_seq(publisher: KafkaPublisher) -> int:
    progress = publisher.progress()
    assert progress is not None
    return progress.seq


def test_reading_progress_does_not_grow_with_history(
    config: KafkaConfig, publisher: KafkaPublisher, counted: Counted
) -> None:
    shard, place = publisher._own.name.encode(), partition_of(publisher)
    write(config, shard, place, *[(1, True)] * 100)
    assert newest_seq(publisher) == 100
    in_the_beginning, counted.records = counted.records, 0
    write(config, shard, place, *[(1, True)] * 300)
    assert newest_seq(publisher) == 300
    assert counted.records == in_the_beginning <= FIRST_WINDOW


@pytest.mark.parametrize("other_records", [0, FIRST_WINDOW, 5 * FIRST_WINDOW, 12 * FIRST_WINDOW])
def test_distant_progress_record_is_still_the_newest(
    config: KafkaConfig, publisher: KafkaPublisher, other_records: int
) -> None:
    shard, place = publisher._own.name.encode(), partition_of(publisher)
    write(config, shard, place, (3, True), (FIRST_WINDOW // 2, False))
    write(config, b"neighbour", place, (other_records // 2, True), (other_records // 2, False))
    assert newest_seq(publisher) == 3


@pytest.mark.parametrize("aborted", [FIRST_WINDOW - 1, 2 * FIRST_WINDOW, 10 * FIRST_WINDOW])
def test_aborted_record_at_a_window_start_is_ignored(
    config: KafkaConfig, publisher: KafkaPublisher, aborted: int
) -> None:
    write(config, publisher._own.name.encode(), partition_of(publisher), (2, True), (aborted, False))
    assert newest_seq(publisher) == 2


def test_a_shard_without_a_record_has_none(config: KafkaConfig, publisher: KafkaPublisher) -> None:
    write(config, b"neighbour", partition_of(publisher), (FIRST_WINDOW + 1, True))
    assert publisher.progress() is None


def put(config: KafkaConfig, publisher: KafkaPublisher, body: bytes | None) -> None:
    """Send `body` as the shard's newest progress record."""
    producer = KafkaProducer(**config.for_python())
    key, partition = publisher._own.name.encode(), partition_of(publisher)
    producer.send(PROGRESS_TOPIC, value=body, key=key, partition=partition).get(timeout=60)
    producer.close()


WRITTEN = {"seq": 1, "sent": 1, "done": True, "attempt": "first"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"format": 99, "batch": 1}, "has format 99; this tidegate reads 1.*a newer one"),
        (WRITTEN, "has no format.*before the first release.*Raise `generation`"),
        ({"format": 1, "seq": 1}, "cannot be read: TypeError"),
        ([1], "cannot be read"),
        (None, "cannot be read"),
    ],
    ids=["newer", "older", "damaged", "of others", "null"],
)
def test_record_of_an_unknown_format_is_refused(
    config: KafkaConfig, publisher: KafkaPublisher, body: object, says: str
) -> None:
    put(config, publisher, json.dumps(body).encode())
    calls: list[Callable[[], object]] = [
        publisher.progress,
        lambda: begin(publisher, 1),
        lambda: publisher.publish(DecidedBatch(1, "first", one_message), last_published=0),
        lambda: publisher.rewrite_progress(
            lambda _: False, lambda _: ShownProgress(Progress(1, 1, done=True))
        ),
    ]
    for call in calls:
        with pytest.raises(ProgressUnreadable, match=f"{publisher._own.name} in topic.*{says}"):
            call()


def test_deleted_progress_is_gone_before_compaction(config: KafkaConfig, publisher: KafkaPublisher) -> None:
    begin(publisher, 1)
    publisher.publish(DecidedBatch(1, "first", one_message), last_published=0)
    put(config, publisher, None)
    assert publisher.progress() is None
    with pytest.raises(ProgressLost, match="is missing"):
        publisher.publish(DecidedBatch(2, "first", one_message), last_published=1)


def test_topic_is_created_to_close_and_compact_segments(config: KafkaConfig) -> None:
    with KafkaLog(config) as log:
        assert log.settings(PROGRESS_TOPIC, SETTINGS) == SETTINGS
        assert log.progress_topic_shortcomings() == []


def test_topic_compacted_late_is_reported() -> None:
    by_default = {**SETTINGS, "segment.ms": "604800000", "max.compaction.lag.ms": str(2**63 - 1)}
    (late,) = shortcomings(by_default, "topic")
    assert "168 hours" in late
    assert "--add-config segment.ms=3600000,max.compaction.lag.ms=3600000" in late
    (deletes,) = shortcomings({**SETTINGS, "cleanup.policy": "compact,delete"}, "topic")
    assert "--add-config cleanup.policy=compact" in deletes


@pytest.mark.long
def test_topic_content_does_not_grow_with_history(config: KafkaConfig, publisher: KafkaPublisher) -> None:
    """The broker's cleaner comes by every 15 seconds."""
    place = partition_of(publisher)
    megabytes = [(4000, True)] * 6
    write(config, publisher._own.name.encode(), place, *megabytes)
    for _ in range(120):
        with KafkaLog(config) as log:
            slice_ = Slice(PROGRESS_TOPIC, place, *log.bounds(PROGRESS_TOPIC, place))
        records = sum(1 for _ in read_records(config, slice_))
        if records < 16_000:
            break
    assert newest_seq(publisher) == 24_000
    assert records < 16_000
