"""A large outbox goes out through several producers: on a real broker, each part exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.steps.sending import Sending, once
from tests.steps.shares import Stopped
from tidegate import steps
from tidegate.broker.publisher import KafkaPublisher, Progress
from tidegate.demo.topics import read_published
from tidegate.errors import Fenced, OutcomeUnknown, ProgressLost
from tidegate.failpoints import FailpointRaised
from tidegate.local.broker import KafkaBroker
from tidegate.spec import KafkaSink
from tidegate.steps import producers, sinks

REPOSITORY = Path(__file__).resolve().parents[2]
KEYS = 12


def rows(first: int, keys: int = KEYS) -> list[tuple[str, int | None]]:
    """Two emissions of each key, in the outbox's order."""
    return [(f"{key:02}", first + again) for key in range(keys) for again in range(2)]


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """All keys go out through two producers, each with six transactions."""
    monkeypatch.setattr(producers, "PER_PRODUCER", KEYS)
    return Sending(tmp_path, broker.bootstrap_servers, monkeypatch)


def fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str) -> Path:
    """Let this process and those that it starts meet a fault; the file tells whether they did."""
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(tmp_path / "fired"))
    return tmp_path / "fired"


def lose_record_of_second_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not found any more, until it is written anew."""
    find, rewrite, lost = KafkaPublisher.progress, KafkaPublisher.rewrite_progress, [True]

    def progress(self: KafkaPublisher) -> Progress | None:
        return None if lost and "#1" in self._shard else find(self)

    def rewritten(self: KafkaPublisher, find: Callable[[], Progress]) -> Progress:
        assert "#1" in self._shard
        lost.clear()
        return rewrite(self, find)

    monkeypatch.setattr(KafkaPublisher, "progress", progress)
    monkeypatch.setattr(KafkaPublisher, "rewrite_progress", rewritten)


@pytest.mark.parametrize(
    ("emitted", "expected"), [(0, 1), (1, 1), (100_000, 1), (100_001, 2), (300_001, 4), (10_000_000, 4)]
)
def test_how_many_producers_there_are_follows_from_the_emissions_alone(emitted: int, expected: int) -> None:
    assert producers.producers_for(emitted) == expected


def test_a_parts_name_is_that_of_no_other_sink() -> None:
    names = [producers.part_name("kafka:out", part) for part in range(producers.MOST_PRODUCERS)]
    assert names == ["kafka:out", "kafka:out#1", "kafka:out#2", "kafka:out#3"]


@pytest.mark.broker
def test_all_parts_together_are_the_outbox_and_each_key_is_in_order(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PER_PRODUCER", 8)
    sending.publish(1, *rows(0))
    sending.publish(2, ("00", 2))
    assert [each and each.seq for each in progress(sending, 3)] == [2, 1, 1]  # too small for more than one
    steps.check_progress(sending.batches.app, sending.batches.stream)
    sending.publish(3, *rows(3, keys=5))
    assert [each and each.seq for each in progress(sending, 3)] == [3, 3, 1]
    assert sending.sent() == once(*rows(0), ("00", 2), *rows(3, keys=5))
    expected = {f"{key:02}": [0, 1] for key in range(KEYS)}
    expected["00"].append(2)
    for key in range(5):
        expected[f"{key:02}"] += [3, 4]
    published = read_published(sending.servers, sending.topic)
    assert {key: [value["m"] for value in values] for key, values in published.items()} == expected
    assert "was left as it is" in told(sending.doctor("--reconcile"))


def progress(sending: Sending, of: int) -> list[Progress | None]:
    (sink,) = sending.batches.pipeline.sinks
    assert isinstance(sink, KafkaSink)
    publishers = sinks.topic_publishers(sending.batches.app, sending.batches.stream, sink, of)
    return [each.progress() for each in publishers]


def told(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.mark.broker
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("publish.send=kill_after@3", OutcomeUnknown),
        ("publish.commit=kill_after@4", OutcomeUnknown),
        ("publish.commit=raise@4", FailpointRaised),
        ("publish.start_producers=lose", OutcomeUnknown),
        ("publish.await_producers=raise", FailpointRaised),
    ],
)  # the first two transactions have the first progress records only
def test_after_a_producer_dies_the_next_try_sends_what_is_left(
    sending: Sending, fault: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.batch(1, *rows(0))
    fired = fail(monkeypatch, tmp_path, fault)
    with pytest.raises(error):
        sending.batches.publish(1)
    assert set(fired.read_text().split()) == {fault}
    sending.batches.publish(1)
    assert sending.sent() == once(*rows(0))


@pytest.mark.broker
@pytest.mark.parametrize("fault", ["publish.commit=raise@2", "ledger.set_sink_identity=raise@2"])
def test_the_first_use_of_the_parts_can_stop_between_any_two(
    sending: Sending, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.batch(1, *rows(0))
    fail(monkeypatch, tmp_path, fault)
    with pytest.raises(FailpointRaised):
        sending.batches.publish(1)
    assert sending.sent() == once()
    sending.batches.publish(1)
    assert sending.sent() == once(*rows(0))


@pytest.mark.broker
@pytest.mark.long
def test_a_lost_record_of_any_part_halts_and_is_rebuilt_from_the_topic(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.publish(1, *rows(0))
    sending.publish(2, ("00", 9))
    sending.batch(3, *rows(2))
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "publish.commit=raise@2")  # in each part, after two messages
        with pytest.raises(FailpointRaised):
            sending.batches.publish(3)
    lose_record_of_second_part(monkeypatch)
    with pytest.raises(ProgressLost, match="tidegate doctor visitors --reconcile"):
        steps.check_progress(sending.batches.app, sending.batches.stream)
    assert (
        f"kafka:{sending.topic}: of part 2 the topic has batches up to 3, of which 2 messages of the last; "
        "sent again: 3."
    ) in told(sending.doctor("--reconcile"))
    assert sending.sent() == once(*rows(0), ("00", 9), *rows(2))


@pytest.mark.broker
def test_lost_records_of_all_parts_halt_the_publication_and_are_rebuilt(sending: Sending) -> None:
    sending.publish(1, *rows(0))
    sending.lose_progress()
    sending.batch(2, *rows(2))
    with pytest.raises(ProgressLost, match="tidegate doctor visitors --reconcile"):
        sending.batches.publish(2)
    assert sending.sent() == once(*rows(0))
    assert (
        "of part 1 the topic has batches up to 1; of part 2 the topic has batches up to 1; sent again: 2."
    ) in told(sending.doctor("--reconcile"))
    assert sending.sent() == once(*rows(0), *rows(2))


@pytest.mark.broker
def test_a_part_without_messages_in_the_newest_batch_is_rebuilt_from_older_ones(sending: Sending) -> None:
    of_one_key: list[tuple[str, int | None]] = [("00", 10 + number) for number in range(KEYS + 1)]
    sending.publish(1, *rows(0))
    sending.publish(2, *of_one_key)
    sending.lose_progress()
    assert "nothing" not in told(sending.doctor("--reconcile"))
    assert sending.sent() == once(*rows(0), *of_one_key)
    sending.publish(3, *rows(30))
    assert sending.sent() == once(*rows(0), *of_one_key, *rows(30))


@pytest.mark.broker
def test_a_producer_that_outlives_its_try_is_fenced_by_the_next(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.batch(1, *rows(0))
    shares: list[producers.Share] = []

    def die(of_batch: list[producers.Share]) -> None:
        shares.extend(of_batch)
        raise FailpointRaised

    with monkeypatch.context() as patched:
        patched.setattr(sinks, "publish_shares", die)
        with pytest.raises(FailpointRaised):
            sending.batches.publish(1)
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "publish.commit=pause@2")
        zombie = producers._Producer.start()
    try:
        zombie.connection.send(shares[1])
        wait_until(lambda: state_of(zombie.process.pid) == "T")
        sending.batches.publish(1)
        zombie.process.send_signal(signal.SIGCONT)
        assert isinstance(zombie.answer(), Fenced)
    finally:
        zombie.end()
    assert sending.sent() == once(*rows(0))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def state_of(pid: int) -> str:
    """T: stopped; Z or nothing: ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_the_producers_end_with_the_process_that_started_them(tmp_path: Path, by: signal.Signals) -> None:
    code = f"from tests.steps.shares import publish_for_ever; publish_for_ever({str(tmp_path)!r})"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    parent.send_signal(by)
    assert parent.wait(60) != 0
    wait_until(lambda: all(state_of(int(each.name)) in "Z" for each in tmp_path.iterdir()))


def test_a_producer_that_stands_still_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(producers, "_SILENT_SECONDS", 1.0)
    with pytest.raises(OutcomeUnknown, match="no sign of life"):
        producers.publish_shares([Stopped(tmp_path), Stopped(tmp_path)])  # type: ignore[list-item]
