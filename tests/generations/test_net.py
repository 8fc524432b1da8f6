"""Net differences: what consumers have to hear to hold what the new generation has, each once."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.examples import share_of
from tests.generations.two_generations import OLD, Beside, filled
from tests.model.files import made
from tidegate import failpoints, inspect
from tidegate.errors import Halted, SettingsInvalid, TidegateError
from tidegate.generations import compare_generations, drop_generation, open_generation
from tidegate.generations.compare import behind_common_beginning
from tidegate.generations.net import _require_payloads
from tidegate.generations.outputs import Feed
from tidegate.ledger import Stream
from tidegate.ledger.records import ReusedBatch

NET = [("visitors/2", 4, "a", 20), ("visitors/2", 4, "b", 10), ("visitors/2", 4, "c", 20)]
DELETED = ("visitors/2", 4, "gone", None)


@pytest.fixture
def beside(filled_generations: Beside, tmp_path: Path) -> Beside:
    return filled_generations.copied(tmp_path / "home")


def sent(beside: Beside) -> list[tuple[str, int, str, int]]:
    """Return the emissions of the new generation by key: the order within a batch goes by hashes."""
    return sorted(row for row in beside.sent() if row[0] == "visitors/2")


def test_net_promotion_sends_differences_then_the_stream(beside: Beside) -> None:
    before = beside.sent()
    beside.promote(beside.new, is_net=True)
    assert beside.sent()[: len(before)] == before
    assert sent(beside) == [*NET, DELETED]
    beside.decide(beside.new, 5, [("a", 30)])
    assert sent(beside)[-1] == ("visitors/2", 5, "a", 30)
    table = DeltaTable(f"{beside.old.folder}/lake/firsts").to_pyarrow_table().to_pylist()
    net = {(row["key"], row["n"], row["reason"]) for row in table if row["seq"] == 4}
    assert net == {
        ("a", 20, "promoted"),
        ("b", 10, "promoted"),
        ("c", 20, "promoted"),
        ("gone", None, "promoted"),
    }


def test_net_batch_reads_nothing_and_keeps_state(beside: Beside) -> None:
    ledger, stream = beside.new.app.ledger, beside.new.stream
    before = ledger.head(stream)
    beside.promote(beside.new, is_net=True)
    head, plan = ledger.head(stream), ledger.plan(stream, 4)
    assert (head.seq, head.offsets, head.topic_ids) == (4, before.offsets, before.topic_ids)
    assert ledger.state_manifests(stream, 3) == ledger.state_manifests(stream)[:-1]
    assert plan is not None
    assert plan.span == 0
    assert ledger.publications(stream, 4) == {"sql:seconds": 4, "table:firsts": 4}
    emissions = inspect.read_emissions(beside.new.app, stream, 4).to_pylist()
    assert [row["reason"] for row in emissions] == ["promoted"] * 4


def test_net_promotion_and_rollback_change_iceberg_rows(tmp_path: Path) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    sink = "  - {kind: iceberg, table: shop.seconds, mode: upsert}"
    beside = filled(tmp_path, sink, iceberg=json.dumps(properties))

    def rows() -> list[tuple[str, int]]:
        table = SqlCatalog("default", **properties).load_table("shop.seconds")
        return sorted((row["key"], row["m"]) for row in table.scan().to_arrow().to_pylist())

    before = [("a", 2), ("b", 1), ("gone", 1), ("same", 5)]
    assert rows() == before
    beside.promote(beside.new, is_net=True)
    assert rows() == [("a", 20), ("b", 10), ("c", 20), ("same", 5)]
    beside.rollback(is_net=True)
    assert rows() == before


def test_net_goes_to_sinks_with_and_without_key(tmp_path: Path) -> None:
    beside = filled(tmp_path, "  - {kind: sql, table: seconds}\n  - {kind: sql, table: keys, with_key: true}")
    beside.promote(beside.new, is_net=True)
    rows = beside.old.query("SELECT stream, batch, key, m FROM keys ORDER BY key")
    assert sent(beside) == [*NET, DELETED]
    assert [row for row in rows if row[0] == "visitors/2"] == [*NET, DELETED]


def test_where_nothing_differs_the_switch_is_all(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    for seq, rows in ((1, [("a", 1), ("b", 1)]), (2, [("a", 2)])):
        beside.decide(beside.new, seq, rows)
    beside.promote(beside.new, is_net=True)
    assert (beside.in_charge, sent(beside)) == (2, [])
    beside.decide(beside.new, 4, [("a", 3)])
    assert sent(beside) == [("visitors/2", 4, "a", 3)]


def test_net_rollback_takes_changes_back(beside: Beside) -> None:
    beside.promote(beside.new, is_net=True)
    beside.decide(beside.old, 4, [("b", 7)])
    beside.rollback(is_net=True)
    back = [row[1:] for row in beside.sent() if row[:2] == ("visitors/1", 5)]
    assert sorted(back) == [(5, "a", 2), (5, "b", 7), (5, "c", None), (5, "gone", 1)]


def test_generation_does_not_repeat_its_earlier_emissions(beside: Beside) -> None:
    beside.promote(beside.new, is_net=True)
    beside.rollback(is_net=True)
    beside.decide(beside.new, 5, [("a", 21)])
    beside.promote(beside.new)  # goes on where it stopped
    assert [row for row in beside.sent() if row[:2] == ("visitors/2", 5)] == [("visitors/2", 5, "a", 21)]


def test_after_net_differences_nobody_needs_the_generation_before(beside: Beside) -> None:
    beside.promote(beside.new, is_net=True)
    drop_generation(beside.old.app, beside.old.stream, "drop")
    third = beside._beside(3)
    open_generation(beside.old.app, third.pipeline)
    for seq in range(1, 5):
        beside.decide(third, seq, [("a", 20)] if seq == 1 else [])
    beside.promote(third, is_net=True)
    rows = [row[2:] for row in beside.sent() if row[0] == "visitors/3"]
    assert sorted(rows) == [("b", None), ("c", None), ("same", None)]


def test_emissions_of_a_dropped_generation_are_unknown(beside: Beside) -> None:
    beside.promote(beside.new)
    drop_generation(beside.old.app, beside.old.stream, "drop")
    third = beside._beside(3)
    open_generation(beside.old.app, third.pipeline)
    for seq in range(1, 4):
        beside.decide(third, seq, [("a", 20)])
    with pytest.raises(Halted, match="was dropped"):
        beside.promote(third, is_net=True)
    beside.promote(third)
    assert beside.in_charge == 3


def with_events(folder: Path) -> Beside:
    """Return two generations whose second stage emits events; the new one is empty."""
    beside = Beside(folder, "  - {kind: sql, table: seconds}")
    for generation in (beside.old, beside.new):
        text = generation.file.read_text()
        collecting = "reduce: collect, emit: {on: threshold, count: 2}}"
        generation.file.write_text(text.replace("reduce: latest, emit: {on: change}}", collecting))
    return beside


def test_events_are_facts_that_nothing_takes_back(tmp_path: Path) -> None:
    beside = with_events(tmp_path)
    beside.fill()
    with pytest.raises(SettingsInvalid, match=r"nothing takes back: 3 of them .* such as one of the key a"):
        beside.promote(beside.new, is_net=True)
    assert beside.in_charge == 1


def test_net_promotion_adds_events_that_consumers_lack(tmp_path: Path) -> None:
    beside = with_events(tmp_path)
    for seq, rows in ((1, [("a", 1), ("b", 1), ("b", 7)]), (2, [("a", 2), ("b", 6)])):
        beside.decide(beside.new, seq, rows)
    (sink,) = compare_generations(beside.old.app, beside.old.stream, beside.new.stream).sinks
    assert (sink.entries.added["key"].to_pylist(), sink.counts) == (
        ["b", "b"],
        {"same": 3, "changed": 0, "added": 2, "removed": 0},
    )
    beside.promote(beside.new, is_net=True)
    assert [row for row in beside.sent() if row[0] == "visitors/2"] == [
        ("visitors/2", 3, "b", 7),
        ("visitors/2", 3, "b", 6),
    ]


def test_events_that_a_sink_inherits_count_once(tmp_path: Path) -> None:
    """A generation that an edit has changed in part is put in charge, and taken back."""
    beside = with_events(tmp_path)
    beside.new.reused = ReusedBatch(1, ("first", "second"), ("sql:seconds",))
    batches = [("a", 1), ("b", 1)], [("a", 2)]
    for seq, rows in enumerate(batches, 1):
        beside.decide(beside.new, seq, rows)
    beside.promote(beside.new)
    beside.rollback()
    before = beside.sent()
    assert before == OLD
    third = beside._beside(3)
    open_generation(beside.old.app, third.pipeline)
    for seq, rows in enumerate(batches, 1):
        beside.decide(third, seq, rows)
    beside.promote(third, is_net=True)
    assert (beside.in_charge, beside.sent()) == (3, before)


def test_events_before_the_origin_are_not_compared() -> None:
    def feed(generation: int, last: int, first: int = 1) -> Feed:
        return Feed(Stream("p", generation), "s", False, range(first, last + 1))

    restated, running = [feed(1, 3), feed(2, 4)], [feed(1, 9)]
    assert behind_common_beginning(running, restated) == ([feed(1, 9, first=4)], [feed(2, 4)])
    assert behind_common_beginning(restated, restated) == ([], [])
    assert behind_common_beginning([feed(1, 9)], [feed(2, 9)]) == ([feed(1, 9)], [feed(2, 9)])


def test_a_table_of_each_generation_has_no_differences(tmp_path: Path) -> None:
    beside = filled(tmp_path, "  - {kind: table}")
    with pytest.raises(SettingsInvalid, match="another one for each generation"):
        beside.promote(beside.new, is_net=True)


def test_a_batch_that_is_planned_goes_first(beside: Beside) -> None:
    beside.new.compute(4, {})
    beside.new.lease.release()
    with pytest.raises(Halted, match="Batch 4 of visitors/2 is planned and not decided"):
        beside.promote(beside.new, is_net=True)


@pytest.mark.heavy
def test_interrupted_net_promotion_sends_each_difference_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = filled(tmp_path / "filled")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    places = first.copied(tmp_path / "undisturbed").met_by_a_promotion(is_net=True)
    assert {"promote.write", "manifest.write", "ledger.promote"} <= set(places)
    for number, (name, action) in enumerate(share_of(itertools.product(places, ("raise", "lose")))):
        beside = first.copied(tmp_path / f"{number}")
        failpoints._hits.clear()
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{name}={action}")
        with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
            beside.promote(beside.new, "promoter", is_net=True)
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
        is_decided = beside.in_charge == 2
        assert beside.old.app.ledger.head(beside.new.stream).seq == (4 if is_decided else 3), (name, action)
        for stream in (beside.old.stream, beside.new.stream):
            beside.old.app.ledger.acquire(stream, "promoter").release()
        beside.promote(beside.new, "promoter", is_net=True)
        assert (beside.in_charge, sent(beside)) == (2, [*NET, DELETED]), (name, action)


def test_net_promotion_refuses_schemas_and_envelopes() -> None:
    for format_ in ("avro", "debezium"):
        pipeline = made(sinks=[{"kind": "kafka", "topic": "out", "format": format_}])
        with pytest.raises(SettingsInvalid, match=f"out has messages in {format_}.*without --net"):
            _require_payloads(pipeline, pipeline.stages[0], pa.table({}))
