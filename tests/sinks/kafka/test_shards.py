"""A large batch goes to a topic in shards: exactly once, whatever happens to whom."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kafka import KafkaProducer
from tests.attempts import committed
from tests.kafka.batches import batches_of, begin, message
from tests.sinks.kafka.sending import SEVERAL, Sending, once
from tests.sinks.kafka.test_topic_sink import FAULTS, POINTS
from tidegate.batch import check_progress
from tidegate.errors import Fenced, ProgressLost, TidegateError
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.kafka.config import PROGRESS_PARTITIONS, PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.progress import Progress, place_of
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher, ShownProgress
from tidegate.kafka.shard import SendTask, Shard, send_here
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
LATE_FAULTS = (
    *(
        f"publish.{point}={action}@{hit}"
        for point in POINTS
        for action in ("raise", "lose")
        for hit in (5, 7)
    ),
    *(f"publish.init={action}@{hit}" for action in ("raise", "lose") for hit in (2, 3, 4, 5)),
    *(f"publish.read_progress=lose@{hit}" for hit in (2, 4, 5)),
)


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """A stream whose batches go out in two shards."""
    monkeypatch.setattr("tidegate.sinks.outbox.SHARD_EMISSIONS", 1)
    sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
    sending.batches.outbox_files = 2
    return sending


def fail_at(monkeypatch: pytest.MonkeyPatch, fault: str, fired: Path) -> None:
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))


def progress_of(sending: Sending, *parts: str) -> Progress | None:
    """Return the progress of the sink, or of one of its shards."""
    (sink,) = sending.batches.app.sinks(sending.batches.stream, sending.batches.pipeline)
    name = "/".join([f"{sink.shard}-{sending.topic}", *parts])
    return Shard(KafkaLog(KafkaConfig.parse(sending.servers)), name, sending.topic).progress()


def test_large_batch_is_sent_in_shards(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    assert sending.sent() == once(*SEVERAL)
    whole, *parts = (progress_of(sending, *shard) for shard in ([], ["0"], ["1"]))
    assert whole is not None
    assert (whole.sent, whole.done, whole.shards, whole.round) == (4, True, 2, 1)
    assert [part and (part.sent, part.done) for part in parts] == [(2, True), (2, True)]
    sending.batches.outbox_files = 1
    sending.publish(2, ("5", 2))
    assert sending.sent() == once(*SEVERAL, ("5", 2))
    assert progress_of(sending) == Progress(2, 1, True, sending.batches.attempt_name(2), round=1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("fault", [*FAULTS, *LATE_FAULTS])
def test_killed_publisher_in_shards_is_finished(
    sending: Sending, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.batch(1, *SEVERAL)
    fail_at(monkeypatch, fault, tmp_path / "fired")
    with pytest.raises((FailpointRaised, ReplyLost, TidegateError)):
        sending.batches.publish(1)
    assert (tmp_path / "fired").read_text().split() == [fault]
    sending.batches.publish(1)
    assert sending.sent() == once(*SEVERAL)
    check_progress(sending.batches.app, sending.batches.stream)


@pytest.mark.sample(1)
@pytest.mark.parametrize("hit", [4, 5, 6, 7, 8])
def test_lost_progress_of_shards_is_restored(
    sending: Sending, hit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the publication had stopped: the topic shows how much each shard has sent."""
    many = [(str(key), 1) for key in range(12)]
    sending.publish(1, ("1", 0), ("2", 0))
    sending.batch(2, *many)
    fail_at(monkeypatch, f"publish.commit=lose@{hit}", tmp_path / "fired")
    with pytest.raises((ReplyLost, TidegateError)):
        sending.batches.publish(2)
    sending.lose_progress()
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        sending.batches.publish(2)
    sending.recover()
    assert sending.sent() == once(("1", 0), ("2", 0), *many)
    check_progress(sending.batches.app, sending.batches.stream)


def test_lost_progress_of_one_shard_is_restored(
    sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [(str(key), 1) for key in range(12)]
    sending.batch(1, *many)
    fail_at(monkeypatch, "publish.commit=lose@7", tmp_path / "fired")
    with pytest.raises((ReplyLost, TidegateError)):
        sending.batches.publish(1)
    (sink,) = sending.batches.app.sinks(sending.batches.stream, sending.batches.pipeline)
    name = f"{sink.shard}-{sending.topic}/0"
    place = place_of(name, range(PROGRESS_PARTITIONS))
    producer = KafkaProducer(bootstrap_servers=sending.servers)
    producer.send(PROGRESS_TOPIC, None, name.encode(), partition=place.partition)
    producer.flush()
    producer.close()
    with pytest.raises(ProgressLost, match=r"/0 in topic .*restore-progress"):
        sending.batches.publish(1)
    with pytest.raises(ProgressLost, match=r"/0 in topic .*restore-progress"):
        check_progress(sending.batches.app, sending.batches.stream)
    assert "of which" in sending.recover().output
    assert sending.sent() == once(*many)


def test_batch_of_shards_is_sent_again(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.publish(2, ("5", 1), ("6", 1))
    sending.recreate()
    result = sending.recover("--from-batch", "1", choose="send-again")
    assert result.exit_code == 0, result.output
    assert sending.sent() == once(*SEVERAL, ("5", 1), ("6", 1))


def test_batch_of_shards_is_given_up_midway(
    sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [(str(key), 1) for key in range(12)]
    sending.batch(1, *many)
    fail_at(monkeypatch, "publish.begin=raise@7", tmp_path / "fired")
    with pytest.raises(FailpointRaised):
        sending.batches.publish(1)
    partial = sending.sent()
    assert 0 < partial.total() < 12
    for file in (sending.batches.folder / "lake").rglob("outbox/_files/0000000001*/*.parquet"):
        file.unlink()
    output = " ".join(sending.recover(choose="give-up").output.split())
    assert f"It had 12 records, of which the sink has {partial.total()}" in output
    assert sending.sent() == partial
    whole = progress_of(sending)
    assert whole is not None
    assert (whole.sent, whole.done) == (partial.total(), True)
    sending.publish(2, ("1", 2), ("2", 2))
    assert sending.sent() == partial + once(("1", 2), ("2", 2))


class Publishers:
    """Publishers of one sink in two shards, without a ledger."""

    def __init__(self, sending: Sending) -> None:
        self.config = KafkaConfig.parse(sending.servers)
        self.topic, self.name = sending.topic, f"shard-{sending.topic}"
        self.parts = [
            batches_of([message(key.encode(), b'{"m": 1}', 1) for key in keys]) for keys in ("123", "456")
        ]
        with KafkaLog(self.config) as log:
            log.ensure_progress_topic()
        begin(self.publisher, 1)

    @property
    def publisher(self) -> KafkaPublisher:
        return KafkaPublisher(KafkaLog(self.config), self.name, self.topic, committed(), 1)

    def publish(self, send: object = send_here) -> int:
        messages = batches_of([])
        batch = DecidedBatch(1, "first", messages, 2, lambda _: self.parts, send)  # type: ignore[arg-type]
        return self.publisher.publish(batch, 0)


EXPECTED = once(*((key, 1) for key in "123456"))


def test_overtaken_process_sends_no_shard_twice(sending: Sending) -> None:
    """It stops before it sends, and goes on when its successor has sent a part, or everything."""
    publishers, outcome = Publishers(sending), []
    stopped, go_on = threading.Event(), threading.Event()

    def slowly(tasks: Sequence[SendTask]) -> list[int]:
        stopped.set()
        assert go_on.wait(600)
        return send_here(tasks)

    def publish() -> None:
        try:
            publishers.publish(slowly)
        except TidegateError as error:
            outcome.append(type(error))

    zombie = threading.Thread(target=publish)
    zombie.start()
    assert stopped.wait(600)
    assert publishers.publish() == 6
    go_on.set()
    zombie.join()
    assert outcome == [Fenced]
    assert sending.sent() == EXPECTED


def test_process_that_begins_late_is_fenced(sending: Sending) -> None:
    publishers = Publishers(sending)
    assert publishers.publish() == 6
    late = Shard(KafkaLog(publishers.config), f"{publishers.name}/0", publishers.topic)
    with pytest.raises(Fenced, match="says batch 1, round 1"):
        late.begin(Progress(1, 0, False, "first", round=1))
    assert publishers.publish() == 0
    assert sending.sent() == EXPECTED


def test_two_copies_of_a_task_send_once(sending: Sending) -> None:
    publishers = Publishers(sending)

    def twice(tasks: Sequence[SendTask]) -> list[int]:
        """Send each shard by two threads at once, as Spark's speculation does."""
        results: list[int] = []

        def send(task: SendTask) -> None:
            with suppress(Fenced):  # another error ends the thread with a warning, which fails the test
                results.append(task.send())

        for task in tasks:
            copies = [threading.Thread(target=send, args=[task]) for _ in range(2)]
            for copy in copies:
                copy.start()
            for copy in copies:
                copy.join()
        assert set(results) == {3}
        return [3, 3]

    assert publishers.publish(twice) == 6
    assert sending.sent() == EXPECTED


def test_stopped_shards_send_nothing_more(sending: Sending) -> None:
    """A task that comes late, after a repair, finds that its round is over."""
    publishers, left = Publishers(sending), []

    def die(tasks: Sequence[SendTask]) -> list[int]:
        left.extend(tasks)
        raise Fenced("died", "in a test")

    with pytest.raises(Fenced):
        publishers.publish(die)
    restarted = ShownProgress(Progress(0, 0, done=True))
    publishers.publisher.rewrite_progress(lambda _: False, lambda _: restarted)
    assert [task.send() for task in left] == [0, 0]
    assert sending.sent() == Counter()
    assert publishers.publish() == 6
    for task in left:
        with pytest.raises(Fenced):
            task.send()
    assert sending.sent() == EXPECTED
