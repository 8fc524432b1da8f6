"""A run whose interval takes several batches, on a real broker: how far it goes, and what a retry finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import NewPartitions

from kafka import KafkaProducer
from tests.batch.test_source import Source
from tidegate.batch import (
    Trigger,
    batches_of_run,
    describe_next_batch,
    has_more_batches,
    plan_batch,
    publish_batch,
)
from tidegate.errors import TriggerInvalid
from tidegate.ledger import Attempt, Plan
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker

NOW = Trigger("run", clock_ms=1000)


class Killed(Exception):
    """A process ends here."""


class Reader:
    """A reader that takes batches through all steps but computing; it is killed after a number of steps."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.app, self.stream = source.batches.app, source.batches.stream
        self.steps_left = 10**6

    def run(self, trigger: Trigger = NOW, first: int = 1) -> None:
        for batch in batches_of_run(self.app, self.stream, trigger, first):
            plan = plan_batch(self.app, self.source.batches.pipeline, batch).plan
            self._step()
            if plan is None:
                return
            self.commit(plan, batch.run_id)
            self._step()
            publish_batch(self.app, plan, batch.run_id)
            self._step()

    def commit(self, plan: Plan, run_id: str) -> None:
        if self.app.ledger.head(self.stream).seq >= plan.seq:
            return
        lease = self.app.ledger.acquire(self.stream, run_id)
        written = self.source.batches.written(plan.seq, self.source.batches.attempt_name(plan.seq), {})
        manifest = self.app.write_manifest(self.stream, written)
        attempt = Attempt(self.stream, plan.seq, manifest, {"": {"read": 0}})
        lease.add_attempt(attempt)
        lease.commit(plan, attempt)

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Killed

    @property
    def batches(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return all committed batches: the run's id, and the range of each partition."""
        seqs = [seq for seq, _ in self.app.ledger.committed(self.stream)]
        plans = [self.app.ledger.plan(self.stream, seq) for seq in seqs]
        return [
            (plan.run_id, [(offset_range.start, offset_range.end) for offset_range in plan.ranges])
            for plan in plans
            if plan
        ]


@pytest.fixture
def reader(tmp_path: Path, broker: KafkaBroker) -> Reader:
    """Return a reader of seven records in a topic, of which a batch reads three."""
    source = Source(tmp_path, broker.bootstrap_servers)
    source.write("  key: [customerId]", "  key: [customerId]\n  max_records: 3")
    source.send(*range(1, 8))
    return Reader(source)


SEVEN = [("run", [(0, 3)]), ("run#2", [(3, 6)]), ("run#3", [(6, 7)])]


def test_run_continues_until_its_interval_is_covered(reader: Reader) -> None:
    reader.run()
    assert reader.batches == SEVEN
    reader.run(replace(NOW, run_id="next"))
    assert len(reader.batches) == len(SEVEN)


def test_records_during_a_run_are_left_to_next(reader: Reader) -> None:
    reader.steps_left = 3
    with pytest.raises(Killed):
        reader.run()
    reader.source.send(8, 9)
    reader.steps_left = 100
    reader.run()
    assert reader.batches == SEVEN
    reader.run(replace(NOW, run_id="next"))
    assert reader.batches[len(SEVEN) :] == [("next", [(7, 9)])]


def test_run_killed_after_any_step_has_same_batches(
    reader: Reader,
) -> None:
    kills = 0
    while True:
        reader.steps_left = kills
        try:
            reader.run()
        except Killed:
            kills += 1
        else:
            break
    assert kills >= 3
    assert reader.batches == SEVEN
    reader.steps_left = 100
    reader.run()  # cleared when all is done
    assert reader.batches == SEVEN


def test_the_first_batch_may_be_other_tasks_work(reader: Reader) -> None:
    reader.run(first=2)
    assert reader.batches == [], "there is nothing to go on from"
    plan = plan_batch(reader.app, reader.source.batches.pipeline, NOW).plan
    assert plan is not None
    reader.commit(plan, NOW.run_id)
    publish_batch(reader.app, plan, NOW.run_id)
    assert has_more_batches(reader.app, reader.stream, NOW)
    reader.run(first=2)
    assert reader.batches == SEVEN
    assert has_more_batches(reader.app, reader.stream, NOW), "who clears it verifies them all"


def test_a_run_of_one_batch_has_no_more(reader: Reader) -> None:
    reader.run()
    last = replace(NOW, run_id="last")
    reader.source.send(8)
    reader.run(last)
    assert reader.batches[-1] == ("last", [(7, 8)])
    assert not has_more_batches(reader.app, reader.stream, last)
    idle = replace(NOW, run_id="idle")
    reader.run(idle)
    assert not has_more_batches(reader.app, reader.stream, idle)


def test_run_that_finishes_another_plan_reads_its_interval(reader: Reader) -> None:
    died = replace(NOW, run_id="died")
    assert plan_batch(reader.app, reader.source.batches.pipeline, died).plan is not None
    reader.app.ledger.acquire(reader.stream, "died").release()
    reader.run()
    assert reader.batches == [("died", [(0, 3)]), ("run#2", [(3, 6)]), ("run#3", [(6, 7)])]


def test_interval_ending_at_an_instant_is_covered(reader: Reader) -> None:
    reader.run(replace(NOW, interval_end_ms=6))
    assert reader.batches == [("run", [(0, 3)]), ("run#2", [(3, 5)])]


def test_run_reads_up_to_its_record_limit(reader: Reader) -> None:
    few = replace(NOW, max_records=4)
    reader.run(few)
    assert reader.batches == [("run", [(0, 3)]), ("run#2", [(3, 4)])]
    reader.run(few)
    assert len(reader.batches) == 2
    reader.run(replace(NOW, run_id="next"))
    assert reader.batches[2:] == [("next", [(4, 7)])]


def test_run_reads_to_given_offsets_without_a_clock(
    reader: Reader,
) -> None:
    topic = reader.source.topic
    reader.source.admin("create_partitions", {topic: NewPartitions(2)})
    reader.source.send(1, 2, partition=1)
    reader.run(replace(NOW, until_offsets={(topic, 0): 5}))
    assert reader.batches == [("run", [(0, 3), (0, 0)]), ("run#2", [(3, 5), (0, 0)])]
    assert set(reader.app.ledger.head(reader.stream).clocks.values()) == {-1}
    reader.run(replace(NOW, run_id="next"))
    assert [end for _, end in reader.batches[-1][1]] == [7, 2]
    assert set(reader.app.ledger.head(reader.stream).clocks.values()) == {NOW.clock_ms}


def test_offsets_of_a_missing_partition_are_refused(reader: Reader) -> None:
    with pytest.raises(TriggerInvalid, match=rf"stock\[7\].*It reads {reader.source.topic}\[0\]"):
        reader.run(replace(NOW, until_offsets={("stock", 7): 5}))
    assert reader.app.ledger.run(reader.stream, NOW.run_id) is None


def test_run_does_not_wait_for_an_open_transaction(reader: Reader) -> None:
    producer = KafkaProducer(
        bootstrap_servers=reader.source.servers, transactional_id=f"upstream-{reader.source.topic}"
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(reader.source.topic, b"{}", partition=0).get(10)
    try:
        reader.run()
        assert reader.batches == SEVEN
    finally:
        producer.commit_transaction()
        producer.close()


def test_drain_that_finishes_another_plan_still_drains(reader: Reader) -> None:
    reader.run()
    reader.source.send(8)
    died = replace(NOW, run_id="died")
    assert plan_batch(reader.app, reader.source.batches.pipeline, died).plan is not None
    reader.app.ledger.acquire(reader.stream, "died").release()
    reader.run(replace(NOW, run_id="drain", drain=True))
    assert reader.batches[len(SEVEN) :] == [("died", [(7, 8)]), ("drain#2", [(8, 8)])]


def test_run_of_long_ago_is_done(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.run(replace(NOW, max_records=3))
    reader.run(replace(NOW, run_id="next"))
    monkeypatch.setattr(type(reader.app.ledger), "plan", _without_old_plans(type(reader.app.ledger).plan))
    committed = reader.batches
    assert not has_more_batches(reader.app, reader.stream, NOW)
    reader.run()
    assert reader.batches == committed


def _without_old_plans(plan: Any) -> Any:
    """The ledger's `plan`, as it is when the first batch's is no longer kept."""
    return lambda ledger, stream, seq: None if seq == 1 else plan(ledger, stream, seq)


def test_dry_run_shows_the_plan_and_writes_nothing(reader: Reader) -> None:
    def dry_run() -> str:
        return "\n".join(describe_next_batch(reader.app, reader.source.batches.pipeline, NOW))

    topic = reader.source.topic
    assert dry_run() == (
        "batch 1 of visitors/1 would be:\n"
        "  clock 1970-01-01T00:00:01+00:00, 3 offsets\n"
        f"  {topic}[0]: 0 to 2, not to the interval's end: its clock waits there"
    )
    assert reader.app.ledger.open_plan(reader.stream) is None
    plan_batch(reader.app, reader.source.batches.pipeline, NOW)
    assert dry_run().startswith("batch 1 of visitors/1 is planned already, by run, and goes first:\n")
