"""`tidegate recover` of a Kafka sink, on a real broker: each record is in the topic once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.recovery.commands import recover
from tests.sinks.kafka.sending import SEVERAL, Sending, once
from tidegate.batch import check_progress
from tidegate.errors import LakeDamaged, TopicRecreated
from tidegate.failpoints import FailpointRaised
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
    sending.publish(1, *SEVERAL)
    return sending


def chosen(sending: Sending, choice: str, *options: str) -> str:
    sending.batches.app.ledger.acquire(sending.batches.stream, "test").release()
    result = recover(sending.batches.environment, "visitors", "--choose", choice, *options)
    assert result.exit_code in (0, 4), (result.output, result.exception)
    return result.output


def test_recreated_topic_gets_undelivered_records(sending: Sending) -> None:
    sending.batch(2, ("5", 2))
    sending.recreate()
    with pytest.raises(TopicRecreated):
        sending.batches.publish(2)
    shown = chosen(sending, "send-again")
    assert "was deleted and created again" in shown
    assert "It gets batch 2, 1 record." in shown
    assert "Batches 1 to 1, which were sent before, are not sent again" in shown
    assert sending.sent() == Counter()
    chosen(sending, "send-again", "--yes")
    sending.publish(3, ("6", 3))
    assert sending.sent() == once(("5", 2), ("6", 3))
    check_progress(sending.batches.app, sending.batches.stream)


def test_recreated_topic_is_filled_from_a_batch(sending: Sending) -> None:
    sending.batch(2, ("5", 2))
    sending.recreate()
    chosen(sending, "send-again", "--from-batch", "1", "--yes")
    sending.publish(3, ("6", 3))
    assert sending.sent() == once(*SEVERAL, ("5", 2), ("6", 3))


def test_killed_between_topic_and_ledger_is_repeated(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.recreate()
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "ledger.send_again=raise@1")
        died = recover(
            *(sending.batches.environment, "visitors", "--choose", "send-again"),
            *("--from-batch", "1", "--yes"),
        )
    assert isinstance(died.exception, FailpointRaised)
    assert sending.sent() == Counter()
    chosen(sending, "send-again", "--from-batch", "1", "--yes")
    assert sending.sent() == once(*SEVERAL)


def test_batch_without_outbox_is_given_up(sending: Sending) -> None:
    sending.batch(2, ("5", 2))
    for file in (sending.batches.folder / "lake").rglob("outbox/_files/0000000002*/*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamaged):
        sending.batches.publish(2)
    assert "It had 1 record, of which the sink has 0" in chosen(sending, "give-up", "--yes")
    sending.publish(3, ("6", 3))
    assert sending.sent() == once(*SEVERAL, ("6", 3))


def test_partly_sent_given_up_batch_stays(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    sending.batch(2, *SEVERAL)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    with monkeypatch.context() as patched:
        patched.setenv("TIDEGATE_FAILPOINTS", "publish.begin=raise@2")
        with pytest.raises(FailpointRaised):
            sending.batches.publish(2)
    for file in (sending.batches.folder / "lake").rglob("outbox/_files/0000000002*/*.parquet"):
        file.unlink()
    assert "It had 4 records, of which the sink has 2" in chosen(sending, "give-up", "--yes")
    sending.publish(3, ("6", 3))
    assert sending.sent() == once(*SEVERAL, *SEVERAL[:2], ("6", 3))


def test_lost_progress_is_found_despite_given_up_batch(sending: Sending) -> None:
    sending.batch(2, ("5", 2))
    for file in (sending.batches.folder / "lake").rglob("outbox/_files/0000000002*/*.parquet"):
        file.unlink()
    chosen(sending, "give-up", "--yes")
    sending.lose_progress()
    sending.batch(3, ("6", 3))
    assert "sent again: 3." in " ".join(sending.recover().output.split())
    assert sending.sent() == once(*SEVERAL, ("6", 3))
