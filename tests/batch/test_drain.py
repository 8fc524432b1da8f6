"""Batches without anything new to read: drained ones, and those that only the clock calls for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.batch.committed import Committed
from tests.manifests import manifest_ref
from tests.world import NOW_MS, World
from tidegate.batch import Outcome, Trigger, plan_batch
from tidegate.ledger import Attempt, OffsetRange
from tidegate_dev.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = "  - {kind: table}"


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    return Committed(tmp_path, SINKS, "sqlite://")


def drained(committed: Committed) -> Outcome:
    trigger = Trigger("test", clock_ms=9000, drain=True)
    return plan_batch(committed.app, committed.pipeline, trigger)


def test_drain_reads_nothing_and_moves_no_offset(committed: Committed) -> None:
    committed.commit(1, {})
    committed.lease.accept_gap([OffsetRange("events", 3, 0, 7)])
    plan = drained(committed).plan
    assert plan is not None
    assert (plan.drain, plan.span, plan.seq) == (True, 0, 2)
    assert plan.ranges == (OffsetRange("events", 0, 1, 1), OffsetRange("events", 3, 7, 7))
    assert committed.app.ledger.plan(committed.stream, 2) == plan


def test_nothing_can_be_drained_before_the_first_batch(committed: Committed) -> None:
    outcome = drained(committed)
    assert outcome.plan is None
    assert "nothing was read yet" in outcome.note
    assert committed.app.ledger.open_plan(committed.stream) is None


def test_a_planned_batch_goes_before_a_drain(committed: Committed) -> None:
    waiting = committed.compute(1, {})
    assert drained(committed).plan == waiting


def test_age_is_the_newest_record_behind_the_clock(committed: Committed) -> None:
    committed.commit(1, {})
    drained(committed)
    metrics = committed.app.ledger.metrics(committed.stream, 2)
    assert metrics["", "age_seconds"] == 8.5
    assert ("", "lag") not in metrics


HOLDING = """\
pipeline: availability
source: {{topics: [{source}], format: json, columns: "id bigint", key: [id]}}
stages: [{{name: held, reduce: collect, emit: {{on: threshold, after: 60s, clock: {clock}}}}}]
sinks: [{{kind: kafka, topic: {sink}}}]
"""


@pytest.mark.broker
@pytest.mark.parametrize(
    ("clock", "suppressed", "runs"), [("run", 3, True), ("run", 0, False), ("stream", 3, False)]
)
def test_clock_starts_a_batch_only_if_it_emits(
    broker: KafkaBroker, tmp_path: Path, clock: str, suppressed: int, runs: bool
) -> None:
    def no_spark(_: int) -> SparkSession:
        raise AssertionError("planning needs no Spark")

    world = World(broker.bootstrap_servers, tmp_path, no_spark)
    text = HOLDING.format(source=world.source, sink=world.sink, clock=clock)
    (tmp_path / "pipelines" / "availability.yaml").write_text(text)
    world.send({"value": {"id": 1}})
    first = plan_batch(world.app, world.pipeline, Trigger("first", NOW_MS)).plan
    assert first is not None
    leased = world.app.ledger.acquire(first.stream, "first")
    attempt = Attempt(
        first.stream, 1, manifest_ref("a1"), {"held": {"suppression-buffer-records": suppressed}}
    )
    leased.add_attempt(attempt)
    leased.commit(first, attempt)
    leased.add_publication(1, f"kafka:{world.sink}", 0)
    leased.release()
    second = plan_batch(world.app, world.pipeline, Trigger("second", NOW_MS + 60_000)).plan
    assert (second is not None) is runs
    if second is not None:
        assert (second.span, second.drain) == (0, False)
        return
    world.send({"value": {"id": 2}})
    third = plan_batch(world.app, world.pipeline, Trigger("third", NOW_MS + 60_001)).plan
    assert third is not None
    assert set(third.clocks.values()) == {NOW_MS + 60_000}, "the second one's, although that had no batch"


@pytest.mark.broker
def test_lag_at_plan_counts_all_waiting_records(broker: KafkaBroker, tmp_path: Path) -> None:
    world = World(broker.bootstrap_servers, tmp_path, lambda _: None)  # type: ignore[arg-type,return-value]
    world.write_pipeline(source_extra="max_records: 2")
    world.stock(1, 2, 3, 4, 5)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    metrics = world.app.ledger.metrics(plan.stream, 1)
    assert (plan.span, metrics["", "lag"]) == (2, 5)
    assert ("", "age_seconds") not in metrics
