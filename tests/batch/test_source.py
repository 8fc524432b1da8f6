"""What befalls the topics that a stream reads, on a real broker: what the plan does, what doctor says."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from kafka.admin import NewPartitions, NewTopic

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tests.batch.committed import Committed
from tests.waits import give_up_soon
from tidegate.batch import Outcome, Trigger, plan_batch, stalled_transactions, warnings
from tidegate.cli import cli
from tidegate.errors import (
    BackwardsRefused,
    BrokerUnavailable,
    LogTruncated,
    OffsetsLost,
    TopicMissing,
    TopicRecreated,
)
from tidegate.ledger import Attempt
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
HOUR_MS = 3_600_000
Ranges = list[tuple[int, int, int]]


class Source:
    """A stream that reads a topic of its own; its batches are decided without being computed."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.servers, self.topic = servers, f"events-{uuid4().hex[:8]}"
        self.admin("create_topics", [NewTopic(self.topic, 1, 1)])
        self.batches = Committed(folder, "  - {kind: table}", kafka=servers)
        self.write("topics: [events]", f"topics: [{self.topic}]")
        self.batches.lease.release()
        self.runs = 0

    def write(self, old: str, new: str) -> None:
        self.batches.file.write_text(self.batches.file.read_text().replace(old, new))

    def admin(self, call: str, *arguments: object) -> None:
        client = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            getattr(client, call)(*arguments)
        finally:
            client.close()

    def send(self, *timestamps_ms: int, partition: int = 0) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for at in timestamps_ms:
            producer.send(self.topic, b"{}", partition=partition, timestamp_ms=at)
        producer.flush()
        producer.close()

    def plan(self, clock_ms: int = 0, **trigger: int | bool) -> Outcome:
        self.runs += 1
        requested = Trigger(f"run-{self.runs}", clock_ms, **trigger)  # type: ignore[arg-type]
        outcome = plan_batch(self.batches.app, self.batches.pipeline, requested)
        self.batches.app.ledger.acquire(self.batches.stream, requested.run_id).release()
        return outcome

    def decide(self, clock_ms: int = 0, **trigger: int | bool) -> Ranges:
        """Plan a batch, and commit it with nothing in it. Returns what it would have read."""
        plan = self.plan(clock_ms, **trigger).plan
        assert plan is not None
        lease = self.batches.app.ledger.acquire(self.batches.stream, "test")
        written = self.batches.written(plan.seq, self.batches.attempt_name(plan.seq), {})
        manifest = self.batches.app.write_manifest(self.batches.stream, written)
        attempt = Attempt(self.batches.stream, plan.seq, manifest, {"": {"read": 0}})
        lease.add_attempt(attempt)
        lease.commit(plan, attempt)
        lease.release()
        return [
            (offset_range.partition, offset_range.start, offset_range.end) for offset_range in plan.ranges
        ]

    def doctor(self, *options: str) -> tuple[int, str]:
        arguments = ["doctor", "visitors", *options, "--json"]
        result = CliRunner().invoke(cli, arguments, env=self.batches.environment)
        return result.exit_code, result.output

    def recover(self, choice: str) -> tuple[int, str]:
        arguments = ["recover", "visitors", "--choose", choice, "--yes"]
        result = CliRunner().invoke(cli, arguments, env=self.batches.environment)
        return result.exit_code, result.output


def own_home(home: Path, folder: Path) -> Path:
    """Return the home of a test's own broker."""
    own = folder / "home"
    own.mkdir()
    (own / "jars").symlink_to(home / "jars")
    return own


@pytest.fixture
def source(tmp_path: Path, broker: KafkaBroker) -> Source:
    return Source(tmp_path, broker.bootstrap_servers)


def test_added_partitions_are_read_from_their_start(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    source.send(1, 2)
    assert source.decide() == [(0, 0, 2)]
    source.admin("create_partitions", {source.topic: NewPartitions(3)})
    source.send(3, partition=2)
    with caplog.at_level(logging.INFO, "tidegate"):
        assert source.decide() == [(0, 2, 2), (1, 0, 0), (2, 0, 1)]
    assert f"{source.topic}[2] is new; it is read from offset 0 on" in caplog.text
    source.send(4, partition=1)
    assert source.decide() == [(0, 2, 2), (1, 0, 1), (2, 1, 1)]


def test_open_transaction_is_reported_with_its_producer(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source.send(1)
    producer = KafkaProducer(bootstrap_servers=source.servers, transactional_id=f"upstream-{source.topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(source.topic, b"{}", partition=0).get(10)
    source.decide()
    assert "can be read only up to" not in caplog.text, "it is open for a moment only"
    monkeypatch.setattr(warnings, "STALLED_MS", -1)
    source.plan()
    message = f"{source.topic}[0] can be read only up to offset 1: the producer upstream-{source.topic} (id "
    assert message in caplog.text
    assert f"abort --topic {source.topic} --partition 0 --start-offset 1" in caplog.text
    code, shown = source.doctor()
    assert (code, message in shown) == (0, True)
    shown = CliRunner().invoke(cli, ["plan", "visitors"], env=source.batches.environment).output
    assert message in " ".join(shown.split())
    producer.commit_transaction()
    producer.close()
    deadline = time.monotonic() + 300  # the broker writes a commit's markers after it has answered
    while left := stalled_transactions(source.batches.app, source.batches.pipeline):
        assert time.monotonic() < deadline, left
    assert source.decide() == [(0, 1, 3)]


def test_open_transaction_without_producer_names_its_offset(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka.errors import ClusterAuthorizationFailedError

    def refused(*_: object, **__: object) -> None:
        raise ClusterAuthorizationFailedError

    producer = KafkaProducer(bootstrap_servers=source.servers, transactional_id=f"upstream-{source.topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(source.topic, b"{}", partition=0).get(10)
    try:
        for call in ("list_transactions", "describe_producers"):
            monkeypatch.setattr(KafkaAdminClient, call, refused)
            (message,) = stalled_transactions(source.batches.app, source.batches.pipeline)
            assert f"{source.topic}[0] can be read only up to offset 0" in message
        assert f"describe-producers --topic {source.topic} --partition 0" in message
    finally:
        producer.abort_transaction()
        producer.close()


def test_recreated_topic_halts_and_doctor_names_a_remedy(source: Source) -> None:
    source.send(1)
    source.decide()
    source.admin("delete_topics", [source.topic])
    source.admin("create_topics", [NewTopic(source.topic, 1, 1)])
    source.send(1, 2, 3)
    with pytest.raises(TopicRecreated):
        source.plan()
    code, shown = source.doctor()
    assert (code, "Raise `generation` of visitors" in shown) == (2, True)


def test_retention_gap_halts_and_doctor_names_the_range(source: Source) -> None:
    source.send(1)
    source.decide()
    source.send(2, 3, 4)
    source.admin("delete_records", {TopicPartition(source.topic, 0): 3})
    with pytest.raises(OffsetsLost):
        source.plan()
    code, shown = source.doctor()
    assert code == 2
    assert f"{source.topic}[0] offsets 1 to 2" in shown
    assert "tidegate recover visitors --choose accept-gap" in shown
    assert source.recover("accept-gap")[0] == 0
    assert source.decide() == [(0, 3, 4)]


def test_doctor_finds_records_lost_before_first_batch(source: Source) -> None:
    source.send(1, 2, 3, 4)
    source.plan()
    source.admin("delete_records", {TopicPartition(source.topic, 0): 3})
    code, shown = source.doctor()
    assert (code, f"{source.topic}[0] offsets 0 to 2" in shown) == (2, True)
    code, shown = source.recover("accept-gap")
    assert (code, "Batch 1, which was to read them, is forgotten" in " ".join(shown.split())) == (0, True)
    assert source.decide() == [(0, 3, 4)]


def test_doctor_finds_a_topic_recreated_during_planning(source: Source) -> None:
    source.send(1)
    source.plan()
    source.admin("delete_topics", [source.topic])
    source.admin("create_topics", [NewTopic(source.topic, 1, 1)])
    source.send(1, 2)
    code, shown = source.doctor()
    assert (code, "TopicRecreated" in shown) == (2, True)
    assert source.recover("drop-plan")[0] == 0
    assert source.decide() == [(0, 0, 2)]


def test_log_truncated_below_the_head_halts(home: Path, tmp_path: Path) -> None:
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        source = Source(tmp_path, broker.bootstrap_servers)
        source.send(1, 2, 3)
        source.decide()
        broker.stop()
        for segment in (tmp_path / "home" / "kafka" / "data" / f"{source.topic}-0").glob("0*"):
            segment.unlink()
        broker.start()
        for _ in range(2):
            with pytest.raises(LogTruncated, match=r"ends at offset 0, but it was read up to 3"):
                source.plan()
        code, shown = source.doctor()
        assert (code, "raise `generation` of visitors" in shown) == (2, True)
        assert source.batches.app.ledger.head(source.batches.stream).offsets == {(source.topic, 0): 3}


def test_pipeline_can_wait_for_its_topic(source: Source) -> None:
    source.admin("delete_topics", [source.topic])
    code, shown = source.doctor()
    assert (code, "not started" in shown, f"--topic {source.topic}" in shown) == (0, True, True)
    source.admin("create_topics", [NewTopic(source.topic, 1, 1)])
    source.decide()
    source.admin("delete_topics", [source.topic])
    with pytest.raises(TopicMissing):
        source.plan()
    code, shown = source.doctor()
    assert (code, "TopicMissing" in shown) == (2, True)


def test_doctor_finds_a_missing_output_topic(source: Source) -> None:
    source.decide()
    source.write("{kind: table}", f"{{kind: kafka, topic: {source.topic}-out}}")
    code, shown = source.doctor()
    assert (code, f"kafka-topics.sh --create --topic {source.topic}-out" in shown) == (2, True)


def test_doctor_finds_an_output_topic_for_smaller_records(
    source: Source,
) -> None:
    out = f"{source.topic}-out"
    source.admin("create_topics", [NewTopic(out, 1, 1, topic_configs={"max.message.bytes": "100000"})])
    source.write("{kind: table}", f"{{kind: kafka, topic: {out}}}")
    code, shown = source.doctor()
    assert (code, f"{out} takes records of up to 100000 bytes" in shown) == (0, True)
    assert f"kafka-configs.sh --alter --topic {out} --add-config max.message.bytes=" in shown


def test_doctor_finds_a_threshold_beyond_its_topic(source: Source) -> None:
    out = f"{source.topic}-out"
    source.admin("create_topics", [NewTopic(out, 1, 1)])
    source.write("{kind: table}", f"{{kind: kafka, topic: {out}}}")
    source.write(
        "reduce: latest, emit: {on: change}", "reduce: collect, emit: {on: threshold, max_bytes: 5_000_000}"
    )
    code, shown = source.doctor()
    assert (code, "second gathers values of up to 5000000 bytes (`max_bytes`)" in shown) == (0, True)
    assert "Write `max_bytes: " in shown


def test_backfill_reads_each_interval_once_in_order(
    source: Source,
) -> None:
    source.send(HOUR_MS - 1, 2 * HOUR_MS - 1)
    for hour in (1, 2):
        end = hour * HOUR_MS
        assert source.decide(end, interval_end_ms=end, backfill=True) == [(0, hour - 1, hour)]
    again = source.plan(HOUR_MS, interval_end_ms=HOUR_MS, backfill=True)
    assert (again.plan, "batches up to 2 cover" in again.note) == (None, True)


def test_backwards_backfill_over_unread_records_is_refused(source: Source) -> None:
    source.send(HOUR_MS - 2)
    source.decide(2 * HOUR_MS, interval_end_ms=2 * HOUR_MS, backfill=True)
    source.send(HOUR_MS - 1)
    with pytest.raises(BackwardsRefused, match="Nothing is lost"):
        source.plan(HOUR_MS, interval_end_ms=HOUR_MS, backfill=True)
    assert source.batches.app.ledger.open_plan(source.batches.stream) is None
    # a scheduled run goes on from the head, also after the clock was wrong
    assert source.decide(HOUR_MS, interval_end_ms=HOUR_MS) == [(0, 1, 2)]


def test_next_backfill_run_continues_a_cut_interval(source: Source) -> None:
    source.write("  format: json", "  format: json\n  max_records: 1")
    source.send(HOUR_MS - 3, HOUR_MS - 2, HOUR_MS - 1)
    for run, hour in enumerate((2, 1, 3)):
        end = hour * HOUR_MS
        assert source.decide(end, interval_end_ms=end, backfill=True) == [(0, run, run + 1)]
    clocks = source.batches.app.ledger.head(source.batches.stream).clocks
    assert clocks == {(source.topic, 0): 3 * HOUR_MS}


def test_drain_applies_no_clock_to_a_cut_interval(source: Source) -> None:
    source.write("  format: json", "  format: json\n  max_records: 1")
    source.send(HOUR_MS - 2, HOUR_MS - 1)
    source.decide(HOUR_MS, interval_end_ms=HOUR_MS)
    assert source.decide(HOUR_MS + 1, drain=True) == [(0, 1, 1)]
    assert source.batches.app.ledger.head(source.batches.stream).clocks == {(source.topic, 0): -1}
    source.decide(HOUR_MS + 2, interval_end_ms=HOUR_MS)
    assert source.batches.app.ledger.head(source.batches.stream).clocks == {(source.topic, 0): HOUR_MS + 2}


def test_broker_lost_in_plan_is_transient(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        source = Source(tmp_path, broker.bootstrap_servers)
        source.send(1)
        broker.kill()
        with monkeypatch.context() as patched:
            give_up_soon(patched)
            with pytest.raises(BrokerUnavailable):
                source.plan()
        assert source.batches.app.ledger.open_plan(source.batches.stream) is None
        broker.start()
        assert source.decide() == [(0, 0, 1)]
