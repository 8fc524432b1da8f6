"""A lost progress record of a Kafka sink: what the output topic itself tells, and what it cannot."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from click.testing import Result

from kafka import KafkaProducer
from tests.batch.test_source import own_home
from tests.sinks.kafka.sending import PARTITIONS, SEVERAL, Sending, once
from tidegate.app import App, stream_of
from tidegate.batch import Trigger, check_progress, draft
from tidegate.errors import LedgerMismatch, ProgressLost, TopicMissing
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.generations import drop_generation, promote
from tidegate.inspect.examine import examine_progress_topics
from tidegate.kafka.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Stream
from tidegate.sinks.kafka.evidence import find_progress
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
NOW = Trigger("now", clock_ms=0)


def output_of(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(tmp_path, broker.bootstrap_servers, monkeypatch)


def test_lost_progress_halts_with_the_command(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.lose_progress()
    sending.batch(2, ("5", 2))
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        sending.batches.publish(2)
    assert sending.sent() == once(*SEVERAL)
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        check_progress(sending.batches.app, sending.batches.stream)


def test_a_check_creates_no_topic_and_reconcile_does(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the broker creates each topic that a client asks for, as it does by default."""
    creates = {"auto.create.topics.enable": "true"}
    with KafkaBroker(own_home(home, tmp_path), config=creates) as broker:
        sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
        sending.publish(1, *SEVERAL)
        sending.lose_progress()
        with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
            check_progress(sending.batches.app, sending.batches.stream)
        app = App.for_reading(sending.batches.environment)
        with pytest.raises(TopicMissing):
            draft(app, sending.batches.pipeline, app.ledger.head(sending.batches.stream), NOW)
        assert list(examine_progress_topics(app, [sending.batches.pipeline])) == []
        assert sending.topics() == {sending.topic}
        assert "it has batches up to 1; nothing was missing." in output_of(sending.recover())
        assert sending.topics() >= {sending.topic, PROGRESS_TOPIC}
        with KafkaLog(KafkaConfig.parse(broker.bootstrap_servers)) as log:
            assert log.is_compacted(PROGRESS_TOPIC)


def test_unsent_batch_is_sent_after_restored_progress(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.send_foreign("1", "5")
    sending.lose_progress()
    sending.batch(2, ("5", 2))
    assert f"kafka:{sending.topic}: it has batches up to 1; sent again: 2." in output_of(sending.recover())
    assert sending.sent() == once(*SEVERAL, ("5", 2))
    check_progress(sending.batches.app, sending.batches.stream)
    sending.publish(3, ("6", 3))
    assert sending.sent() == once(*SEVERAL, ("5", 2), ("6", 3))


PARTLY = [(1, "2, of which 2 records of the last; sent again: 2."), (2, "2; nothing was missing.")]


@pytest.mark.parametrize(("commits", "says"), PARTLY)
def test_partly_sent_batch_is_continued_not_repeated(
    sending: Sending, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commits: int, says: str
) -> None:
    sending.publish(1, ("1", 0))
    sending.batch(2, *SEVERAL)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"publish.commit=lose@{commits}")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(tmp_path / "fired"))
    with pytest.raises(Exception, match="lost") as caught:
        sending.batches.publish(2)
    assert isinstance(caught.value.__cause__ or caught.value, ReplyLost)
    assert (tmp_path / "fired").read_text().split() == [f"publish.commit=lose@{commits}"]
    sending.lose_progress()
    sending.send_foreign("1", "2", "3", "4")
    assert f"it has batches up to {says}" in output_of(sending.recover())
    assert sending.sent() == once(("1", 0), *SEVERAL)


@pytest.mark.parametrize(("commits", "says"), [(1, "0"), (2, "1, of which 2 records of the last")])
def test_partly_sent_first_batch_is_noticed(
    sending: Sending, monkeypatch: pytest.MonkeyPatch, commits: int, says: str
) -> None:
    sending.batch(1, *SEVERAL)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", f"publish.begin=raise@{commits + 1}")
        with pytest.raises(FailpointRaised):
            sending.batches.publish(1)
    sending.lose_progress()
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        check_progress(sending.batches.app, sending.batches.stream)
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        sending.batches.publish(1)
    assert f"it has batches up to {says}; sent again: 1." in output_of(sending.recover())
    assert sending.sent() == once(*SEVERAL)


def test_topic_that_lost_newest_batches_gets_them_again(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.batch(2, ("5", 2))
    sending.batches.lease = sending.batches.app.ledger.acquire(sending.batches.stream, "test")
    sending.batches.lease.add_publication(2, f"kafka:{sending.topic}", 1)  # as if it had been there
    sending.batch(3, ("6", 3))
    assert "up to 1; sent again: 2, 3." in output_of(sending.recover())
    assert sending.sent() == once(*SEVERAL, ("5", 2), ("6", 3))


def test_intact_progress_record_stays_unchanged(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    assert "needs no remedy restore-progress: its cause is not there." in output_of(
        sending.recover("--progress", f"kafka:{sending.topic}=0")
    )
    assert sending.sent() == once(*SEVERAL)


def test_user_states_progress_where_retention_cut_it(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.delete_records()
    sending.lose_progress()
    sending.batch(2, ("5", 2))
    refused = sending.recover()
    assert isinstance(refused.exception, ProgressLost)
    remedy = "tidegate recover visitors --choose restore-progress --generation 1"
    remedy += f" --progress kafka:{sending.topic}=1"
    assert "records were deleted from its partitions 0, 1" in str(refused.exception)
    assert remedy in str(refused.exception)
    sending.recover(*remedy.split()[5:])
    assert sending.sent() == once(("5", 2))


def test_batch_after_the_head_cannot_be_stated(sending: Sending) -> None:
    sending.publish(1, *SEVERAL)
    sending.lose_progress()
    refused = sending.recover("--progress", f"kafka:{sending.topic}=2")
    assert "the batches in question are 0 to 1" in str(refused.exception)
    refused = sending.recover("--progress", "kafka:elsewhere=1")
    assert f"It has: kafka:{sending.topic}" in str(refused.exception)


@pytest.mark.parametrize(("value", "clear"), [(2, True), (None, False)])
def test_compacted_topic_is_judged_by_what_compaction_leaves(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, value: int | None, clear: bool
) -> None:
    config = {"cleanup.policy": "compact"}
    sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch, **config)
    sending.publish(1, *SEVERAL)
    sending.lose_progress()
    sending.batch(2, ("1", value))
    result = sending.recover()
    assert ("sent again: 2." in output_of(result)) is clear
    assert ("it is compacted" in str(result.exception)) is not clear
    assert sending.sent() == once(*SEVERAL, *([("1", value)] if clear else []))


def test_another_stream_on_the_topic_is_ambiguous(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    sending.publish(1, *SEVERAL)
    file = sending.batches.file
    file.write_text(file.read_text().replace("pipeline: visitors", "pipeline: visitors\ngeneration: 2"))
    (sink,) = sending.batches.app.sinks(sending.batches.stream, sending.batches.pipeline)
    sending.batches.stream = stream_of(sending.batches.pipeline)
    sending.publish(1, *SEVERAL)
    with pytest.raises(ProgressLost, match="visitors/2 sends there too"):
        find_progress(sink)


def test_messages_of_a_dropped_generation_do_not_count(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, old, new = sending.batches, sending.batches.stream, Stream("visitors", 2)
    sending.publish(1, *SEVERAL)
    batches.file.write_text(batches.file.read_text().replace("source:", "generation: 2\nsource:", 1))
    batches.app.ledger.open_generation(new, old.generation)
    batches.stream = new
    sending.batch(1, *SEVERAL)
    batches.lease.release()
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "publish.begin=raise@2")  # the first progress record is there
        with pytest.raises(FailpointRaised):
            promote(batches.app, new, "test")
    drop_generation(batches.app, old, "test")
    sending.lose_progress()
    (sink,) = batches.app.sinks(new, batches.pipeline)
    with pytest.raises(ProgressLost, match="visitors/1 has sent there too"):
        find_progress(sink)
    sending.recover("--progress", f"kafka:{sending.topic}=0")
    assert sending.sent() == once(*SEVERAL, *SEVERAL)


def test_committed_message_behind_open_transaction_is_found(sending: Sending) -> None:
    stranger = KafkaProducer(
        bootstrap_servers=sending.servers, transactional_id=sending.topic, transaction_timeout_ms=3000
    )
    stranger.init_transactions()
    stranger.begin_transaction()
    for partition in range(PARTITIONS):
        stranger.send(sending.topic, b"", b"", [("other", b"other")], partition=partition).get(timeout=60)
    sending.publish(1, *SEVERAL)
    sending.lose_progress()
    assert "it has batches up to 1; nothing was missing" in output_of(sending.recover())
    stranger.close(timeout=1)
    assert sending.sent() == once(*SEVERAL)


def copy(from_file: str, to_file: str) -> None:
    with closing(sqlite3.connect(from_file)) as source, closing(sqlite3.connect(to_file)) as target:
        source.backup(target)


@pytest.mark.parametrize("silent", [0, 1], ids=["at once", "after a batch that emits nothing"])
def test_ledger_older_than_its_topic_publishes_nothing(sending: Sending, silent: int) -> None:
    """It was restored together with the lake, so only the topic tells."""
    folder = sending.batches.folder
    sending.publish(1, *SEVERAL)
    copy(str(folder / "l.db"), str(folder / "l.backup"))
    copytree(folder / "lake", folder / "lake.backup")
    sending.publish(2, ("5", 2))
    sending.batches.app.ledger._engine.dispose()
    copy(str(folder / "l.backup"), str(folder / "l.db"))
    rmtree(folder / "lake")
    copytree(folder / "lake.backup", folder / "lake")
    sending.batches.suffix = "0000000b"
    for seq in range(2, 2 + silent):
        sending.publish(seq)
    sending.batch(2 + silent, ("5", 3), ("6", 3))
    with pytest.raises(LedgerMismatch, match="batch 2 of visitors/1"):
        sending.batches.publish(2 + silent)
    with pytest.raises(LedgerMismatch, match="batch 2 of visitors/1"):
        check_progress(sending.batches.app, sending.batches.stream)
    assert sending.sent() == once(*SEVERAL, ("5", 2))
