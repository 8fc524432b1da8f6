"""Reading a slice of a planned range from a real broker: what is legal in it, and what is an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.errors import BrokerUnavailable, LogTruncated, OffsetsLost, TopicMissing
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import Slice, read_slice
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker

Send = Callable[..., None]


class Topic:
    """A topic of one partition, of one test's own."""

    def __init__(self, servers: str, **config: str) -> None:
        self.servers, self.name = servers, f"records-{uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(self.name, 1, 1, config=config)])[self.name].result()

    def send(self, *values: str, key: str | None = None) -> None:
        producer = ck.Producer({"bootstrap.servers": self.servers, "message.max.bytes": 20_000_000})
        for value in values:
            producer.produce(self.name, value, key, partition=0)
        assert producer.flush(30) == 0

    def transaction(self, *values: str, abort: bool = False, leave_open: bool = False) -> ck.Producer:
        producer = ck.Producer({"bootstrap.servers": self.servers, "transactional.id": uuid4().hex})
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=0)
        assert producer.flush(30) == 0
        if abort:
            producer.abort_transaction()
        elif not leave_open:
            producer.commit_transaction()
        return producer

    def delete_before(self, offset: int) -> None:
        at = ck.TopicPartition(self.name, 0, offset)
        next(iter(self.admin.delete_records([at]).values())).result()

    def read(self, start: int, end: int, seconds: float = 20.0) -> list[tuple[int, str]]:
        blocks = read_slice(KafkaConfig.parse(self.servers), Slice(self.name, 0, start, end), seconds)
        return [(record.offset(), record.value().decode()) for block in blocks for record in block]


@pytest.fixture
def topic(broker: KafkaBroker) -> Topic:
    return Topic(broker.bootstrap_servers)


def test_slice_has_exactly_its_offsets(topic: Topic) -> None:
    topic.send(*"abcdef")
    assert topic.read(2, 5) == [(2, "c"), (3, "d"), (4, "e")]
    assert topic.read(2, 2) == []


def test_a_large_slice_is_whole_and_in_order(topic: Topic) -> None:
    topic.send(*map(str, range(50_000)))
    assert topic.read(0, 50_000) == [(offset, str(offset)) for offset in range(50_000)]


def test_aborted_records_and_markers_are_passed_over(topic: Topic) -> None:
    topic.transaction("a")  # and a marker at 1
    topic.transaction("b", "c", abort=True)  # marker at 4
    topic.transaction("d")
    assert topic.read(0, 7) == [(0, "a"), (5, "d")]


def test_slice_of_markers_and_aborted_records_ends(topic: Topic) -> None:
    topic.transaction("b", "c", abort=True)
    topic.transaction("a")
    assert topic.read(0, 3) == []
    assert topic.read(4, 5) == []


def test_slice_ending_at_an_open_transaction_ends(topic: Topic) -> None:
    topic.transaction("a")
    still_open = topic.transaction("b", leave_open=True)
    assert topic.read(0, 2) == [(0, "a")]
    still_open.abort_transaction()


def test_records_deleted_by_retention_are_named(topic: Topic) -> None:
    topic.send(*"abcdef")
    topic.delete_before(3)
    with pytest.raises(OffsetsLost, match=rf"{topic.name}\[0\] offsets 1 to 2"):
        topic.read(1, 6)
    assert topic.read(3, 6) == [(3, "d"), (4, "e"), (5, "f")]


def test_log_ending_before_the_slice_is_no_reset(topic: Topic) -> None:
    topic.send("a", "b")
    with pytest.raises(LogTruncated, match="ends at offset 2"):
        topic.read(0, 4, seconds=1.0)
    with pytest.raises(LogTruncated, match="ends at offset 2"):
        topic.read(7, 9, seconds=1.0)


def test_a_topic_that_is_gone_is_an_error(broker: KafkaBroker) -> None:
    with pytest.raises(TopicMissing):
        list(read_slice(KafkaConfig.parse(broker.bootstrap_servers), Slice("nowhere", 0, 0, 1), 1.0))


def test_values_of_ten_megabytes_are_read(broker: KafkaBroker) -> None:
    topic = Topic(broker.bootstrap_servers, **{"max.message.bytes": "20000000"})
    topic.send("x" * 10_000_000, "y" * 10_000_000, "z")
    assert [(offset, len(value)) for offset, value in topic.read(0, 3)] == [(0, 10**7), (1, 10**7), (2, 1)]


def test_no_broker_is_a_transient_error() -> None:
    with pytest.raises(BrokerUnavailable):
        list(read_slice(KafkaConfig.parse("127.0.0.1:1"), Slice("t", 0, 0, 1), 0.5))


def test_broker_restart_during_a_slice_disturbs_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "jars").symlink_to(home / "jars", target_is_directory=True)
    with KafkaBroker(tmp_path) as own:
        topic = Topic(own.bootstrap_servers)
        values = [f"{number:05}" * 200 for number in range(60_000)]  # more than is fetched ahead
        topic.send(*values)
        blocks = read_slice(KafkaConfig.parse(own.bootstrap_servers), Slice(topic.name, 0, 0, 60_000))
        records = list(next(blocks))
        own.stop()
        restart = threading.Thread(target=own.start)
        restart.start()
        records += [record for block in blocks for record in block]
        restart.join()
    assert [record.offset() for record in records] == list(range(60_000))


def test_a_reader_asks_for_remaining_records_only(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would wait for the rest of them until its time is over, in each of many small slices."""
    topic.send(*map(str, range(10)))
    requested: list[int] = []

    class Watched(ck.Consumer):
        def consume(self, number: int = 1, timeout: float = -1) -> list[ck.Message]:
            requested.append(number)
            return super().consume(number, timeout)

    monkeypatch.setattr("tidegate.kafka.records.ck.Consumer", Watched)
    assert len(topic.read(2, 7)) == 5
    assert requested[0] == 5
    assert max(requested) == 5
