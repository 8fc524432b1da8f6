"""Each batch in a Kafka topic exactly once, whatever happens to publisher, broker and transaction."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafka import KafkaAdminClient
from tests.attempts import committed
from tests.batch.test_source import own_home
from tests.kafka.batches import batch_of, batches_of, begin, message
from tests.sinks.kafka.sending import SEVERAL, Sending, once
from tests.waits import give_up_soon
from tidegate.batch import check_progress
from tidegate.errors import BrokerUnavailable, Fenced, TidegateError
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.kafka import producer
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import Message
from tidegate.kafka.producer import TransactionalProducer
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
POINTS = ("begin", "send", "send_progress", "flush", "commit")
FAULTS = (
    "publish.connect=raise",
    "publish.init=raise",
    "publish.init=lose",
    "publish.read_progress=lose",
    "publish.commit=raise@1",
    "publish.commit=lose@1",
    *(f"publish.{point}={action}@3" for point in POINTS for action in ("raise", "lose")),
    "publish.commit=lose@2",
    "ledger.set_sink_identity=raise",
    "ledger.set_sink_identity=lose",
    "ledger.add_publication=raise",
)  # the first transaction has the first progress record only; then a chunk is two messages


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(tmp_path, broker.bootstrap_servers, monkeypatch)


@pytest.mark.sample(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_killed_publisher_is_finished_by_the_next(
    sending: Sending, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.batch(1, *SEVERAL)
    fired = tmp_path / "fired"
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with pytest.raises((FailpointRaised, ReplyLost, TidegateError)):
        sending.batches.publish(1)
    assert fired.read_text().split() == [fault]
    sending.batches.publish(1)
    assert sending.sent() == once(*SEVERAL)


def messages(*keys: str) -> list[Message]:
    return [message(key.encode(), b'{"m": 1}', 1) for key in keys]


def test_overtaken_publisher_is_fenced_and_aborted(sending: Sending, broker: KafkaBroker) -> None:
    config = KafkaConfig.from_dict({"bootstrap.servers": broker.bootstrap_servers})
    with KafkaLog(config) as log:
        log.ensure_progress_topic()
    shard = f"shard-{sending.topic}"
    begun, go_on, outcome = threading.Event(), threading.Event(), []

    def slowly(skip: int) -> Iterator[pa.RecordBatch]:
        yield batch_of(messages("1", "2")[skip:])
        begun.set()
        assert go_on.wait(600)
        yield batch_of(messages("3", "4"))

    def publish() -> None:
        try:
            first = KafkaPublisher(KafkaLog(config), shard, sending.topic, committed(), 1)
            begin(first, 1)
            first.publish(DecidedBatch(1, "first", slowly), 0)
        except TidegateError as error:
            outcome.append(type(error))

    zombie = threading.Thread(target=publish)
    zombie.start()
    assert begun.wait(600)
    newer = KafkaPublisher(KafkaLog(config), shard, sending.topic, committed(), 1)
    assert newer.publish(DecidedBatch(1, "first", batches_of(messages("1", "2", "3", "4"))), 0) == 3
    go_on.set()
    zombie.join()
    assert outcome == [Fenced]
    assert sending.sent() == once(("1", 1), ("2", 1), ("3", 1), ("4", 1))


def test_timed_out_transaction_is_sent_by_another_producer(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with KafkaBroker(own_home(home, tmp_path), config=config) as broker:
        sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
        monkeypatch.setattr("tidegate.kafka.config.TRANSACTION_TIMEOUT_MS", 1000)
        commit = TransactionalProducer.commit

        def too_late(self: TransactionalProducer) -> None:
            monkeypatch.setattr(TransactionalProducer, "commit", commit)
            _wait_until_none_is_open(broker)
            commit(self)

        monkeypatch.setattr(TransactionalProducer, "commit", too_late)
        sending.batch(1, *SEVERAL)
        with pytest.raises(Fenced):
            sending.batches.publish(1)
        assert sending.sent() == once()
        sending.batches.publish(1)
        assert sending.sent() == once(*SEVERAL)


def _wait_until_none_is_open(broker: KafkaBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    deadline = time.monotonic() + 300
    while admin.list_transactions(state_filters=["Ongoing", "PrepareAbort", "PrepareEpochFence"])[1]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    admin.close()


def test_broker_lost_in_publish_is_transient(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
        sending.publish(1, *SEVERAL)
        sending.batch(2, ("5", 2))
        broker.kill()
        with monkeypatch.context() as patched:
            patched.setattr(producer, "_INIT_SECONDS", 3.0)
            give_up_soon(patched)
            with pytest.raises(BrokerUnavailable, match="nothing is lost"):
                sending.batches.publish(2)
        broker.start()
        sending.batches.publish(2)
        assert sending.sent() == once(*SEVERAL, ("5", 2))


def test_recreated_output_topic_halts_and_doctor_finds_it(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.recreate()
    code = sending.doctor()
    assert code.exit_code == 2
    with pytest.raises(TidegateError, match="tidegate recover visitors --choose send-again"):
        check_progress(sending.batches.app, sending.batches.stream)
