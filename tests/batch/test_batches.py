"""Whole batches on real Kafka and real Spark: what is read, kept, sent, refused and resumed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka import KafkaProducer
from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World, key_of, stock_event
from tidegate import inspect
from tidegate.batch import Trigger, commit_batch, compute_batch, plan_batch, publish_batch, validate_batch
from tidegate.errors import (
    Halted,
    LeaseHeld,
    OffsetsLost,
    PipelineChanged,
    QualityFailed,
    RecordFailed,
    RecordTooLarge,
    SchemaChanged,
    SettingsInvalid,
    StartOverRefused,
    TopicMissing,
    TopicRecreated,
    TriggerInvalid,
)
from tidegate.kafka.topic_facts import AFTER
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_quantities_give_true_then_false_across_batches(world: World) -> None:
    world.stock(10)
    world.run()
    world.stock(5)
    world.run()
    world.stock(0)
    world.run()
    assert world.published() == {key_of(): [True, False]}
    assert [world.counts(seq)["idempotent-update-skip"] for seq in (1, 2, 3)] == [0, 1, 0]


def test_nulls_tombstones_and_malformed_records_in_one_batch(world: World) -> None:
    world.stock(3)
    world.send({"value": b"{no json", "key": b"x"}, {"value": None, "key": key_of().encode()})
    world.send({"value": None, "key": None} | {"key": b"not a key object"})
    world.stock(5)
    world.send({"value": {"storeId": None, "id": 1, "quantity": 1}, "key": None})
    world.run()
    assert world.published() == {key_of(): [True, None, None]} or world.published()[key_of()][:2] == [
        True,
        None,
    ]
    rows = stored_quarantine(world.app, world.stream)
    assert [(row["offset"], row["reason"].partition(":")[0]) for row in rows] == [
        (1, "malformed"),
        (3, "tombstone_without_key"),
        (5, "null_key_column"),
    ]
    assert rows[0]["value"] == b"{no json"
    assert world.published() == {key_of(): [True, None, True]}
    counts = world.counts(1)
    assert counts["read"] == counts["used"] + counts["quarantined"] == 6


def test_empty_and_undeclared_columns_are_reported(world: World) -> None:
    world.send(*({"value": {"storeId": "1", "id": 2, "quantty": 3}, "key": b"x"} for _ in range(3)))
    world.run()
    report = inspect.batch_report(world.app.ledger, world.stream, 1)
    assert report is not None
    assert sum(report.fates.values()) == report.came_in == 3
    assert report.columns_without_value == ("quantity",)
    assert (report.fields, report.sampled) == ({"quantty": 3}, 3)


def test_far_future_record_is_quarantined_and_delays_nothing(
    world: World,
) -> None:
    world.configure(world.source, {AFTER: str(2**63 - 1)})
    now_ms = time.time_ns() // 1_000_000
    world.stock(1, timestamp_ms=now_ms + 2 * 86_400_000)
    world.stock(0)
    world.run(clock_ms=now_ms, interval_end_ms=now_ms)
    assert world.published() == {key_of(): [False]}
    assert [row["reason"] for row in stored_quarantine(world.app, world.stream)] == ["future_timestamp"]


def test_record_of_a_clock_ahead_delays_nothing(world: World) -> None:
    now_ms = time.time_ns() // 1_000_000
    world.stock(1, timestamp_ms=now_ms + 30 * 60_000)
    world.stock(0, timestamp_ms=now_ms)
    world.run(clock_ms=now_ms, interval_end_ms=now_ms + 1, now_ms=now_ms)
    assert world.published() == {key_of(): [True, False]}


def test_a_clock_of_the_future_plans_nothing(world: World) -> None:
    now_ms = time.time_ns() // 1_000_000
    world.stock(1)
    with pytest.raises(TriggerInvalid, match="later than now"):
        world.run(clock_ms=now_ms + 86_400_000, now_ms=now_ms)
    assert world.app.ledger.head(world.stream).seq == 0
    assert world.app.ledger.open_plan(world.stream) is None


def test_batch_reads_up_to_its_interval_end(world: World) -> None:
    world.stock(1, timestamp_ms=1000)
    world.stock(0, timestamp_ms=2000)
    world.run(interval_end_ms=2000)
    assert world.published() == {key_of(): [True]}
    world.run(interval_end_ms=3000)
    assert world.published() == {key_of(): [True, False]}


def test_backfilled_interval_leaves_late_records_to_theirs(world: World) -> None:
    day = 86_400_000
    world.stock(1, timestamp_ms=1000)
    world.stock(0, timestamp_ms=10 * day)
    for end in (day, 11 * day):
        world.run(clock_ms=end, interval_end_ms=end, now_ms=NOW_MS)
    assert world.published() == {key_of(): [True, False]}
    assert [world.counts(seq).get("quarantined", 0) for seq in (1, 2)] == [0, 0]


def test_max_records_cuts_do_not_change_the_output(world: World) -> None:
    world.write_pipeline(source_extra="max_records: 3")
    world.stock(1, 2, 0, 0, 5, 0, 0, 3)
    for _ in range(3):
        world.run()
    assert world.published() == {key_of(): [True, False, True, False, True]}
    assert [world.counts(seq)["read"] for seq in (1, 2, 3)] == [3, 3, 2]


def test_only_committed_records_are_read_across_markers(world: World) -> None:
    producer = KafkaProducer(bootstrap_servers=world.servers, transactional_id=f"tx-{world.name}")
    producer.init_transactions()
    for quantity, commit in ((1, True), (0, False)):
        producer.begin_transaction()
        event = stock_event(quantity)
        producer.send(world.source, json.dumps(event["value"]).encode(), partition=0, timestamp_ms=NOW_MS)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    producer.close()
    world.run()
    assert world.published() == {key_of(): [True]}
    assert world.counts(1)["read"] == 1
    assert world.app.ledger.head(world.stream).offsets[world.source, 0] == 4


def test_range_of_markers_completes_and_advances(world: World) -> None:
    world.stock(1)
    world.run()
    producer = KafkaProducer(bootstrap_servers=world.servers, transactional_id=f"tx-{world.name}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(world.source, b"x", partition=0)
    producer.flush()
    producer.abort_transaction()
    producer.close()
    world.run()
    assert world.counts(2)["read"] == 0
    assert world.app.ledger.head(world.stream).offsets[world.source, 0] == 3


def test_an_open_transaction_ends_the_batch_before_it(world: World) -> None:
    world.stock(1)
    producer = KafkaProducer(bootstrap_servers=world.servers, transactional_id=f"tx-{world.name}")
    producer.init_transactions()
    producer.begin_transaction()
    event = stock_event(0)
    producer.send(world.source, json.dumps(event["value"]).encode(), partition=0)
    producer.flush()
    try:
        world.run()
        assert world.app.ledger.head(world.stream).offsets[world.source, 0] == 1
    finally:
        producer.abort_transaction()
        producer.close()


def test_run_without_new_records_plans_nothing(world: World) -> None:
    world.stock(1)
    world.run()
    outcome = world.run("later")
    assert outcome.plan is None
    assert "nothing new" in outcome.note
    assert world.run("later").note == outcome.note


def test_running_a_finished_run_again_sends_nothing(world: World) -> None:
    world.stock(1, 0)
    world.run("r")
    world.stock(1)
    world.run("r")
    assert world.published() == {key_of(): [True, False]}


def test_steps_of_a_finished_batch_are_no_ops(world: World) -> None:
    world.stock(1, 0)
    plan = world.run("r").plan
    assert plan is not None
    attempt = world.app.ledger.attempt(plan.stream, plan.seq)
    assert compute_batch(world.app, plan, "r", world.open_session) == attempt
    assert "passed before" in validate_batch(world.app, plan, "r")
    assert "already" in commit_batch(world.app, plan, "r")
    publish_batch(world.app, plan, "r")
    assert world.published() == {key_of(): [True, False]}


def test_publishing_a_table_batch_again_adds_nothing(world: World) -> None:
    from tests.sinks.table.appending import append

    rows = pa.table({"key": ["k"], "n": [1]})
    path = str(world.folder / "sink")
    for seq in (1, 1, 2, 2):
        append(path, "app", seq, rows.to_reader(), 0)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_next_run_publishes_an_unpublished_batch(world: World) -> None:
    world.stock(1)
    trigger = Trigger("first", NOW_MS)
    plan = plan_batch(world.app, world.pipeline, trigger).plan
    assert plan is not None
    compute_batch(world.app, plan, "first", world.open_session)
    validate_batch(world.app, plan, "first")
    commit_batch(world.app, plan, "first")
    world.app.ledger.acquire(plan.stream, "first").release()
    world.stock(0)
    world.run("second")
    assert world.published() == {key_of(): [True, False]}


def test_next_run_adopts_a_planned_batch_unchanged(world: World) -> None:
    world.stock(1)
    plan = plan_batch(world.app, world.pipeline, Trigger("first", NOW_MS)).plan
    assert plan is not None
    world.app.ledger.acquire(plan.stream, "first").release()
    world.stock(0)
    assert world.run("second").plan == plan
    assert world.published() == {key_of(): [True]}
    world.run("third")
    assert world.published() == {key_of(): [True, False]}


def test_changed_file_waits_for_the_planned_batch(world: World) -> None:
    world.stock(1, 7)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    world.write_pipeline(**{"quantity > 0": "quantity > 5"})
    assert world.run("r").plan == plan
    assert world.published() == {key_of(): [True]}
    world.stock(3)
    world.run()
    assert world.published() == {key_of(): [True, False]}


def test_a_second_run_waits_for_the_lease(world: World) -> None:
    plan_batch(world.app, world.pipeline, Trigger("first", NOW_MS))
    with pytest.raises(LeaseHeld, match="first"):
        world.run("second")


def test_a_zombie_of_an_earlier_try_cannot_commit(world: World) -> None:
    world.stock(1)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    zombie = world.app.ledger.acquire(plan.stream, "r")
    world.run("r")
    with pytest.raises(Exception, match="taken over"):
        zombie.commit(plan, compute_batch(world.app, plan, "r", world.open_session))
    assert world.published() == {key_of(): [True]}


def test_another_generation_starts_over_beside_the_first(world: World) -> None:
    world.stock(1)
    world.run()
    world.write_pipeline(generation=2)
    with pytest.raises(StartOverRefused, match=r"availability/1 has sent to .*\[0\] 0-0"):
        world.run()
    world.write_pipeline(generation=2, extra="start_over: true")
    world.run()
    assert world.published() == {key_of(): [True, True]}
    assert [str(stream) for stream in world.app.ledger.streams()] == ["availability/1", "availability/2"]


def test_state_is_readable_now_and_as_of_batch(world: World) -> None:
    world.stock(1)
    world.stock(4, product=2)
    world.run()
    world.stock(0)
    world.send({"value": None, "key": key_of(product=2).encode()})
    world.run()

    def state(as_of: int | None = None) -> dict[str, bool]:
        rows = inspect.read_state(world.app, world.stream, as_of).to_pylist()
        return {row["key"]: row["value"]["isAvailable"] for row in rows}

    assert state() == {key_of(): False}
    assert state(as_of=1) == {key_of(): True, key_of(product=2): True}


def test_emissions_carry_the_source_chain(world: World) -> None:
    header = ("tidegate-source", b"orders/3/7")
    world.stock(1, headers=[("tidegate-source", b"ignored/0/0"), header])
    world.run()
    records = list(committed_records(world.servers, world.sink))
    assert [list(record.headers) for record in records] == [
        [("tidegate-source", f"orders/3/7;{world.source}/0/0".encode())]
    ]
    assert records[0].timestamp == NOW_MS - 1000


def test_a_table_sink_has_each_batch_once(world: World) -> None:
    table = world.folder / "published"
    world.write_pipeline(**{"sinks:\n": f"sinks:\n  - {{kind: table, path: {table}, with_key: true}}\n"})
    world.stock(1, timestamp_ms=1)
    world.stock(0, timestamp_ms=2)
    world.run()
    world.stock(1, timestamp_ms=3)
    world.run()
    rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("timestamp").to_pylist()
    assert [(row["storeId"], row["id"], row["isAvailable"], row["seq"]) for row in rows] == [
        ("s1", 1, True, 1),
        ("s1", 1, False, 1),
        ("s1", 1, True, 2),
    ]


def test_a_failing_suite_stops_before_anything_is_visible(world: World) -> None:
    always = {"column": "isAvailable", "value_set": [True]}
    expectation = {"type": "expect_column_values_to_be_in_set", "kwargs": always}
    suite: dict[str, Any] = {"name": "strict", "meta": {}, "expectations": [expectation]}
    folder = world.app.settings.expectations
    folder.mkdir()
    (folder / "strict.json").write_text(json.dumps(suite))
    world.write_pipeline(extra="quality: {suite: strict, on_failure: stop}")
    world.stock(1, 0)
    with pytest.raises(QualityFailed, match=r"in_set\(isAvailable\): 1 unexpected \(50.*\(see .*\.html\)"):
        world.run("r")
    assert world.published() == {}
    assert world.app.ledger.head(world.stream).seq == 0
    (result,) = world.app.ledger.quality(world.stream, 1)
    assert (world.folder / "data_docs" / str(result.page)).is_file()
    assert (result.severity, result.passed, result.failing) == (
        "critical",
        False,
        ({"key": key_of(), "isAvailable": "false"},),
    )
    suite["expectations"][0]["kwargs"]["value_set"] = [True, False]
    (folder / "strict.json").write_text(json.dumps(suite))
    world.run("r")
    assert world.published() == {key_of(): [True, False]}
    tries = [(result.try_number, result.passed) for result in world.app.ledger.quality(world.stream, 1)]
    assert tries == [(1, False), (2, True)]


def test_retry_uses_the_planned_suite_unless_it_stopped(world: World) -> None:
    expectation = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}
    suite: dict[str, Any] = {"name": "strict", "meta": {}, "expectations": [expectation]}
    folder = world.app.settings.expectations
    folder.mkdir()
    world.write_pipeline(extra="quality: {suite: strict, on_failure: stop}")
    world.stock(1)
    with pytest.raises(SettingsInvalid, match=r"The quality suite .*strict.json does not exist"):
        world.run("r")
    assert world.app.ledger.open_plan(world.stream) is None
    (folder / "strict.json").write_text(json.dumps(suite))
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    suite["expectations"] = [{"type": "expect_column_to_exist", "kwargs": {"column": "no"}}]
    (folder / "strict.json").write_text(json.dumps(suite))
    world.run("r")
    assert world.published() == {key_of(): [True]}


def test_dropped_plan_after_failed_gate_uses_corrected_file(world: World) -> None:
    world.stock(3)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    lease = world.app.ledger.acquire(plan.stream, "r")
    lease.drop_plan()
    lease.release()
    world.write_pipeline(**{"quantity > 0": "quantity > 5"})
    world.run("again")
    assert world.published() == {key_of(): [False]}


def test_a_missing_topic_halts_with_its_name(world: World) -> None:
    world.write_pipeline(**{world.source: "no-such-topic"})
    with pytest.raises(TopicMissing, match="no-such-topic"):
        world.run()


def test_missing_output_topic_halts_until_it_exists(world: World) -> None:
    world.stock(1)
    world.delete(world.sink)
    with pytest.raises(TopicMissing, match=world.sink):
        world.run("r")
    world.create(world.sink)
    world.run("r")
    assert world.published() == {key_of(): [True]}


def test_a_recreated_source_topic_halts_and_touches_nothing(world: World) -> None:
    world.stock(1)
    world.run()
    world.delete(world.source)
    world.create(world.source)
    world.stock(0, 0, 0)
    with pytest.raises(TopicRecreated):
        world.run()
    assert world.published() == {key_of(): [True]}


def test_a_recreated_output_topic_halts(world: World) -> None:
    world.stock(1)
    world.run()
    world.delete(world.sink)
    world.create(world.sink)
    world.stock(0)
    with pytest.raises(TopicRecreated, match="output topic"):
        world.run()
    assert world.published() == {}


def test_retention_gap_halts_until_it_is_accepted(world: World) -> None:
    from click.testing import CliRunner

    from tidegate.cli import cli

    world.stock(1)
    world.run()
    world.stock(0, 0, 1, 0)
    world.delete_records({(world.source, 0): 3})
    with pytest.raises(OffsetsLost, match="offsets 1 to 2"):
        world.run()
    result = CliRunner().invoke(
        cli, ["recover", "availability", "--choose", "accept-gap", "--yes"], env=world.environment
    )
    assert f"Accepted as lost: {world.source}[0] offsets 1 to 2." in result.output
    world.run("after")
    assert world.published() == {key_of(): [True, False]}
    assert world.counts(2)["read"] == 2


def test_changed_column_type_halts_but_new_column_continues(world: World) -> None:
    world.stock(1)
    world.run()
    world.write_pipeline(**{"quantity > 0": "cast(quantity as string)"})
    with pytest.raises(PipelineChanged, match=r"isAvailable` was boolean and is string"):
        plan_batch(world.app, world.pipeline, Trigger("refused", NOW_MS))
    world.write_pipeline(**{"quantity > 0": "sha2(storeId, 256)"})  # of a type that only Spark knows
    world.stock(2)
    with pytest.raises(SchemaChanged, match="generation"):
        world.run("r")
    world.app.ledger.acquire(world.stream, "r").drop_plan()
    world.app.ledger.acquire(world.stream, "r").release()
    world.write_pipeline(**{'{isAvailable: "quantity > 0"}': '{isAvailable: "quantity > 0", n: "quantity"}'})
    world.run()
    rows = inspect.read_state(world.app, world.stream).to_pylist()
    assert [row["value"] for row in rows] == [{"isAvailable": True, "n": 2}]


@pytest.mark.parametrize(
    ("expression", "remedy"),
    [
        pytest.param("(10 / quantity) > 0", "nullif", id="where records are read"),
        pytest.param("hex(quantity) = '' or (10 / quantity) > 0", "try_divide", id="in Spark"),
    ],
)
def test_failing_expression_names_a_remedy_and_loses_nothing(
    world: World, expression: str, remedy: str
) -> None:
    world.write_pipeline(**{"quantity > 0": expression})
    world.stock(1, 0)
    with pytest.raises(RecordFailed, match=rf"0\] offset 1\).*{remedy}"):
        world.run("r")
    world.app.ledger.acquire(world.stream, "r").drop_plan()
    world.app.ledger.acquire(world.stream, "r").release()
    world.write_pipeline(**{"quantity > 0": "coalesce(try_divide(10, quantity) > 0, false)"})
    world.run()
    assert world.published() == {key_of(): [True, False]}


def test_step_out_of_order_names_the_missing_one(world: World) -> None:
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    with pytest.raises(Halted, match="not computed"):
        commit_batch(world.app, plan, "r")


def test_oversized_emission_is_found_before_the_commit(world: World) -> None:
    world.write_pipeline(**{"quantity > 0": "lpad(storeId, 600000, 'é')"})
    world.stock(1)
    with pytest.raises(RecordTooLarge, match=r"1200\d\d\d bytes.*too_large: quarantine"):
        world.run()
    assert world.app.ledger.head(world.stream).seq == 0


def test_oversized_emissions_are_quarantined_where_declared(
    world: World,
) -> None:
    table = world.folder / "published"
    sinks = f"with_key: true, too_large: quarantine}}\n  - {{kind: table, path: {table}}}"
    world.write_pipeline(**{"quantity > 0": "repeat('é', quantity)", "with_key: true}": sinks})
    world.stock(1, 600_000, 600_000, 2)
    world.stock(3, product=2)
    world.send({"value": b"{no json", "key": b"x"})
    world.run()
    assert world.published() == {key_of(): ["é", "éé"], key_of(product=2): ["ééé"]}
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 3
    rows = stored_quarantine(world.app, world.stream)
    assert [(row["offset"], row["key"], row["reason"].partition(":")[0]) for row in rows] == [
        (1, key_of().encode(), "too_large"),
        (5, b"x", "malformed"),
    ]
    assert json.loads(rows[0]["value"]) == {"isAvailable": "é" * 600_000}
    counts = world.counts(1)
    assert (counts["emitted"], counts["emitted-too-large"], counts["idempotent-update-skip"]) == (4, 1, 1)
    assert counts["read"] == counts["used"] + counts["quarantined"] == 6


def test_quarantined_oversized_emission_counts_as_emitted(world: World) -> None:
    declared = {"quantity > 0": "repeat('é', quantity)", "with_key: true}": "too_large: quarantine}"}
    world.write_pipeline(extra="quality: {suite: any}", **declared)
    world.app.settings.expectations.mkdir()
    (world.app.settings.expectations / "any.json").write_text(
        '{"name": "any", "meta": {}, "expectations": []}'
    )
    world.stock(600_000)
    world.run()
    world.stock(600_000, 1)
    world.run()
    assert [world.counts(seq)["emitted-too-large"] for seq in (1, 2)] == [1, 0]
    assert world.counts(2)["idempotent-update-skip"] == 1
    assert world.published() == {key_of(): ["é"]}


def test_unwritable_lake_fails_typed_and_recovers(world: World, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("a file where the folder should be")
    world.stock(1)
    with pytest.raises(Exception, match="TIDEGATE_LAKE"):
        world.run("r")
    lake.unlink()
    world.run("r")
    assert world.published() == {key_of(): [True]}
