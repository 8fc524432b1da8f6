"""The topic of dead letters on a real broker: what each batch puts into quarantine, exactly once."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from kafka.admin import NewTopic

from tests.batch.committed import Committed
from tests.quarantines import HEADERS, quarantined
from tests.sampling import sampled
from tests.sinks.kafka.sending import Sending
from tidegate import inspect
from tidegate.batch import check_progress
from tidegate.errors import SinkRefused, TopicMissing, TopicRecreated
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.ledger import Plan
from tidegate.sinks.kafka.dead_letters import OpenDeadLetters
from tidegate.storage.quarantine_files import QUARANTINE
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.demo.topics import committed_records

pytestmark = pytest.mark.broker
FAULTS = (
    *(f"publish.commit={action}@{number}" for action in ("raise", "lose") for number in (1, 2, 3)),
    *("publish.send=raise@3", "publish.flush=lose@3", "outbox.read=raise"),
    *("ledger.set_sink_identity=raise", "ledger.set_sink_identity=lose"),
    *("ledger.add_publication=raise@2", "ledger.add_publication=lose@2"),
)
"""The first transaction has the first progress record only; then a chunk is two messages. The sink of
emissions, which is published to before, gets nothing.
"""
NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 86_400_000
ROWS = [
    quarantined(1, 1, headers=HEADERS, recorded=NOW_MS - 1, timestamp=None),
    quarantined(1, 2, key=None, value=None, headers=[("tidegate-source", b"hop/0/1")]),
    quarantined(1, 3, key=b"\xff", value=b"", recorded=NOW_MS + 10 * DAY_MS, reason="future_timestamp"),
    quarantined(1, 4, part=2, recorded=-5, reason="negative_timestamp"),
    quarantined(1, 5, part=-1, timestamp=77, reason="too_large"),
]


class WithDeadLetters(Sending):
    """The stream of `Sending` with a topic of dead letters."""

    def __init__(self, folder: Path, servers: str, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        super().__init__(folder, servers, monkeypatch)
        self.dead = f"dead-{uuid4().hex[:8]}"
        self.create(**settings)
        file = self.batches.file
        file.write_text(f"{file.read_text()}\nquarantine: {{topic: {self.dead}}}\n")
        planned = self.batches.planned
        monkeypatch.setattr(
            self.batches,
            "planned",
            lambda seq: replace(planned(seq), timestamps=self.sink.timestamp_bounds()),
        )

    @property
    def sink(self) -> OpenDeadLetters:
        *_, sink = self.batches.app.sinks(self.batches.stream, self.batches.pipeline)
        assert isinstance(sink, OpenDeadLetters)
        return sink

    def create(self, **settings: str) -> None:
        self._admin("create_topics", [NewTopic(self.dead, 2, 1, topic_configs=settings)])

    def delete(self) -> None:
        self._admin("delete_topics", [self.dead])

    def put(self, seq: int, rows: list[dict[str, Any]]) -> None:
        """A committed batch with these rows in quarantine, in two files."""
        self.batch(seq)
        for part in (rows[:2], rows[2:]):
            if part:
                table = pa.Table.from_pylist([row | {"seq": seq} for row in part], QUARANTINE)
                self.batches.add_file(seq, "quarantine", "", table)

    def letters(self) -> list[Any]:
        """Return what a read_committed consumer reads, by position and batch."""
        records = committed_records(self.servers, self.dead)
        return sorted(
            records, key=lambda record: (letter_header(record, "batch"), letter_header(record, "position"))
        )


def letter_header(record: Any, name: str) -> str | None:
    value = dict(record.headers).get(f"tidegate-quarantine-{name}")
    return None if value is None else value.decode()


def positions(records: list[Any]) -> list[tuple[str | None, str | None]]:
    return [(letter_header(record, "batch"), letter_header(record, "position")) for record in records]


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> WithDeadLetters:
    return WithDeadLetters(tmp_path, broker.bootstrap_servers, monkeypatch)


def test_dead_letter_holds_the_whole_record_and_reason(sending: WithDeadLetters) -> None:
    sending.put(1, ROWS)
    assert sending.batches.publish(1) == {f"kafka:{sending.topic}": 0, f"dead-letters:{sending.dead}": 5}
    letters = sending.letters()
    assert positions(letters) == [("visitors/1/1", f"events/0/{number}") for number in range(1, 6)]
    assert [(letter.key, letter.value) for letter in letters] == [(row["key"], row["value"]) for row in ROWS]
    for letter, row in zip(letters, ROWS, strict=True):
        assert letter.headers[: len(row["headers"] or ())] == (row["headers"] or [])
    assert [letter_header(letter, "reason") for letter in letters] == [row["reason"] for row in ROWS]
    assert [letter_header(letter, "part") for letter in letters] == [None, None, None, "2", "emission"]
    times = [letter.timestamp for letter in letters]
    assert times[:2] == [NOW_MS - 1, 2000]
    assert NOW_MS < times[2] < NOW_MS + DAY_MS, "as far ahead as the topic takes"
    assert times[3:] == [1, 77], "0 goes out as 1"
    assert [letter_header(letter, "timestamp") for letter in letters[2:4]] == [
        str(NOW_MS + 10 * DAY_MS),
        "-5",
    ]


@pytest.mark.parametrize("fault", sampled(FAULTS, FAULTS[4:5] + FAULTS[-2:-1]))
def test_killed_letter_publisher_is_finished_by_the_next(
    sending: WithDeadLetters, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.put(1, ROWS)
    fired = tmp_path / "fired"
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with pytest.raises(Exception, match=r".") as caught:
        sending.batches.publish(1)
    assert isinstance(caught.value.__cause__ or caught.value, FailpointRaised | ReplyLost)
    assert fired.read_text().split() == [fault]
    sending.batches.publish(1)
    assert positions(sending.letters()) == [("visitors/1/1", f"events/0/{row['offset']}") for row in ROWS]


def test_lost_letter_progress_is_found_in_the_topic(sending: WithDeadLetters) -> None:
    sending.put(1, ROWS)
    sending.batches.publish(1)
    sending.lose_progress()
    sending.put(2, ROWS[:1])
    result = " ".join(sending.recover().output.split())
    assert f"dead-letters:{sending.dead}: it has batches up to 1; sent again: 2." in result
    assert len(sending.letters()) == 6
    check_progress(sending.batches.app, sending.batches.stream)


def test_batch_decided_without_topic_has_no_letters(sending: WithDeadLetters) -> None:
    text = sending.batches.file.read_text()
    sending.batches.file.write_text(text.replace(f"quarantine: {{topic: {sending.dead}}}", ""))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sending.batches, "planned", lambda seq: Committed.planned(sending.batches, seq))
        sending.put(1, ROWS)
    sending.batches.file.write_text(text)
    sending.batches.publish(1)
    sending.put(2, ROWS[:1])
    sending.batches.publish(2)
    assert positions(sending.letters()) == [("visitors/1/2", "events/0/1")]


def test_unfit_letter_topic_is_found_before_a_batch(
    sending: WithDeadLetters,
) -> None:
    assert inspect.sink_warnings(sending.batches.app, sending.batches.pipeline) == []
    sending.delete()
    for ask in (sending.sink.timestamp_bounds, sending.sink.check_target):
        with pytest.raises(TopicMissing, match=sending.dead):
            ask()
    sending.create(**{"cleanup.policy": "compact"})
    for ask in (sending.sink.timestamp_bounds, sending.sink.check_target):
        with pytest.raises(SinkRefused, match="is compacted") as caught:
            ask()
        assert "cleanup.policy=delete" in caught.value.fix


def test_recreated_letter_topic_halts_and_another_continues(sending: WithDeadLetters) -> None:
    sending.put(1, ROWS[:1])
    sending.batches.publish(1)
    sending.delete()
    sending.create()
    with pytest.raises(TopicRecreated, match="--choose send-again"):
        sending.sink.timestamp_bounds()
    file = sending.batches.file
    file.write_text(file.read_text().replace(sending.dead, f"{sending.dead}-2"))
    sending.dead += "-2"
    sending.create()
    sending.put(2, ROWS[:1])
    sending.batches.publish(2)
    assert positions(sending.letters()) == [("visitors/1/2", "events/0/1")]


def test_plan_keeps_the_timestamps_the_topic_takes(sending: WithDeadLetters) -> None:
    sending.put(1, ROWS[:1])
    plan = sending.batches.app.ledger.plan(sending.batches.stream, 1)
    assert isinstance(plan, Plan)
    earliest, latest = plan.timestamps[sending.dead]
    assert earliest is None
    assert latest is not None
    assert latest > NOW_MS
