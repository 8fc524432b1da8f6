"""Batches that a mistake has spoiled are computed again, and only what differs is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from tests.clickhouse import ask
from tests.generations.two_generations import Beside
from tests.world import NOW_MS, World, key_of
from tidegate.app import App
from tidegate.batch import RepeatedBatch, Trigger, run_batch
from tidegate.cli import cli
from tidegate.errors import Halted, SettingsInvalid
from tidegate.generations import compare_generations, plan_restatement, promote, repeat
from tidegate.generations.restate import _require_next
from tidegate.ledger import Head, LedgerReader, Stream
from tidegate.yaml.load import load_pipeline

PLENTY, FEW, NONE = key_of(product=1), key_of(product=2), key_of(product=3)


def command(world: World, *arguments: str) -> Result:
    called = ["generation", "restate", "availability", *arguments]
    return CliRunner().invoke(cli, called, env=world.environment, catch_exceptions=False)


@pytest.mark.spark
@pytest.mark.broker
def test_only_difference_of_spoiled_batch_is_sent(world: World) -> None:
    def batch(quantities: dict[int, int], minutes: int) -> None:
        for product, quantity in quantities.items():
            world.stock(quantity, product=product)
        world.run(f"run-{minutes}", clock_ms=NOW_MS + minutes * 60_000)

    batch({1: 10, 2: 0}, 1)
    world.write_pipeline(**{"quantity > 0": "quantity > 100"})  # the mistake
    batch({1: 7, 2: 5, 3: 5}, 2)
    world.write_pipeline()
    batch({3: 0}, 3)
    assert world.published() == {PLENTY: [True, False], FEW: [False], NONE: [False]}
    before = world.published()

    shown = command(world, "--from-batch", "2", "--to-batch", "2", "--json")
    rows = json.loads(shown.output)
    assert [(row["batch"], row["lookups"]) for row in rows] == [(2, "as they are now"), (3, "as they were")]
    assert not list((world.folder / "pipelines").glob("*_g2.yaml")), "without --yes nothing is done"

    origin, new = world.stream, Stream("availability", 2)
    path = world.folder / "pipelines" / "availability_g2.yaml"
    shown = command(world, "--from-batch", "2", "--to-batch", "2", "--yes")
    assert "Generation 2 of availability has computed 2 batches again" in shown.output
    # again: everything is done
    shown = command(world, "--from-batch", "2", "--to-batch", "2", "--generation", "2", "--yes")
    assert (shown.exit_code, world.app.ledger.head(new).seq) == (0, 3)
    plans = [world.app.ledger.plan(new, seq) for seq in (2, 3)]
    originals = [world.app.ledger.plan(origin, seq) for seq in (2, 3)]
    assert [(plan.ranges, plan.clock_ms) for plan in plans if plan] == [
        (plan.ranges, plan.clock_ms) for plan in originals if plan
    ]
    assert world.published() == before, "what it decides is withheld"
    (sink,) = compare_generations(world.app, origin, new).sinks
    assert sorted(sink.entries.changed.column("key").to_pylist()) == [PLENTY, FEW]
    world.delete_records({(world.source, 0): 3})
    with pytest.raises(Halted, match=r"retention has deleted records of batch 2: .*\[0\] offsets 2 to 2"):
        command(world, "--from-batch", "2", "--to-batch", "2")
    promote(world.app, new, "promote", is_net=True)
    assert world.published() == {PLENTY: [True, False, True], FEW: [False, True], NONE: [False]}
    world.stock(4, product=3)
    run_batch(world.app, load_pipeline(path), Trigger("later", NOW_MS + 300_000), world.open_session)
    assert world.published()[NONE] == [False, True]


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.sample(1)
def test_restated_batch_corrects_an_iceberg_table(world: World, tmp_path: Path, mode: str) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}

    def rows() -> list[tuple[int, str, bool]]:
        table = SqlCatalog("default", **properties).load_table("shop.stock").scan().to_arrow()
        return [(row["seq"], row["key"], row["isAvailable"]) for row in table.to_pylist()]

    variables = {"TIDEGATE_ICEBERG": json.dumps(properties)}
    sink = f"{{kind: iceberg, table: shop.stock, mode: {mode}}}"
    spoiled_and_corrected(world, variables, sink, mode, rows)


def spoiled_and_corrected(
    world: World, variables: dict[str, str], table: str, mode: str, rows: Callable[[], list[Any]]
) -> None:
    """Restate a spoiled batch of a pipeline with a sink `table`, whose rows `rows` returns."""
    environment = world.environment | variables
    world.app = App.from_environment(environment)
    sink = {f"{{kind: kafka, topic: {world.sink}, with_key: true}}": table}
    for number, (quantity, mistake) in enumerate([(10, {}), (7, {"quantity > 0": "quantity > 100"})], 1):
        world.write_pipeline(**mistake, **sink)
        world.stock(quantity)
        world.stock(0, product=2)
        world.run(f"run-{number}", clock_ms=NOW_MS + number * 60_000)
    world.write_pipeline(**sink)
    spoiled = [(1, PLENTY, True), (1, FEW, False), (2, PLENTY, False)]
    assert sorted(rows()) == (spoiled if mode == "append" else spoiled[1:])
    called = ["generation", "restate", "availability", "--from-batch", "2", "--to-batch", "2", "--yes"]
    shown = CliRunner().invoke(cli, called, env=environment, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert sorted(rows()) == (spoiled if mode == "append" else spoiled[1:]), "what it decides is withheld"
    promote(world.app, Stream("availability", 2), "promote", is_net=True)
    corrected = [(1, FEW, False), (3, PLENTY, True)]
    assert sorted(rows()) == ([*spoiled, corrected[-1]] if mode == "append" else corrected)


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.sample(1)
def test_restated_batch_corrects_a_clickhouse_table(world: World, clickhouse_url: str, mode: str) -> None:
    spoiled_and_corrected(
        world,
        {"TIDEGATE_CLICKHOUSE": clickhouse_url},
        f"{{kind: clickhouse, table: stock, mode: {mode}}}",
        mode,
        lambda: ask(clickhouse_url, "SELECT seq, key, isAvailable FROM stock FINAL"),
    )


@pytest.fixture
def beside(generation_ahead: Beside, tmp_path: Path) -> Beside:
    return generation_ahead.copied(tmp_path / "home")


@pytest.mark.parametrize(("first", "last"), [(1, 2), (3, 2), (3, 4), (4, 4)])
def test_range_without_batches_is_refused(beside: Beside, first: int, last: int) -> None:
    with pytest.raises(SettingsInvalid, match="Name batches from 2 to 3"):
        plan_restatement(beside.old.app, beside.old.pipeline, beside.old.stream, first, last)


def test_lookups_are_corrected_in_the_range_only(beside: Beside) -> None:
    restatement = plan_restatement(beside.old.app, beside.old.pipeline, beside.old.stream, 2, 2)
    assert [plan.seq for plan in restatement.plans] == [2, 3]
    pin_then, pin_now = {"version": 1, "id": "t"}, {"version": 9, "id": "t"}
    planned = replace(restatement.plans[0], stream=beside.new.stream, lookups={"t": pin_now, "new": pin_now})
    for run, pin in zip(restatement.runs, (pin_now, pin_then), strict=True):
        plan = run.batch.plan
        repeats = RepeatedBatch(replace(plan, lookups={"t": pin_then}), run.batch.keeps_lookups)
        again = repeats.planned(Head(beside.new.stream), planned)
        assert (again.lookups, again.clock_ms) == ({"t": pin, "new": pin_now}, plan.clock_ms)


def test_other_range_does_not_go_on(beside: Beside) -> None:
    first, other = (
        [*plan_restatement(beside.old.app, beside.old.pipeline, beside.old.stream, 2, last).runs]
        for last in (2, 3)
    )
    assert first[0] == other[0]
    done = replace(first[1].batch.plan, run_id=first[1].run_id)
    ledger = SimpleNamespace(plan=lambda *_: done)
    _require_next(cast("LedgerReader", ledger), beside.new.stream, first[1])
    with pytest.raises(Halted, match=r"of the run restate_as_it_was__1.3, and not of restate__1.3. Name the"):
        _require_next(cast("LedgerReader", ledger), beside.new.stream, other[1])


def test_batch_behind_a_gap_is_not_repeated(beside: Beside) -> None:
    plan = plan_restatement(beside.old.app, beside.old.pipeline, beside.old.stream, 3, 3).plans[0]
    (part,) = plan.ranges
    head = Head(beside.new.stream, 1, {(part.topic, part.partition): part.start - 1})
    with pytest.raises(Halted, match="does not begin where visitors/2 is"):
        RepeatedBatch(plan, True).planned(head, plan)


def test_batch_of_net_differences_is_not_repeated(beside: Beside) -> None:
    beside.fill([("a", 30)])
    beside.promote(beside.new, is_net=True)
    with pytest.raises(Halted, match="sent net differences, which cannot be repeated"):
        plan_restatement(beside.old.app, beside.new.pipeline, beside.new.stream, 2, 3)


def test_generation_with_batches_of_its_own_is_refused(beside: Beside) -> None:
    beside.fill()
    restatement = plan_restatement(beside.old.app, beside.old.pipeline, beside.old.stream, 2, 3)
    with pytest.raises(Halted, match="did not begin with the state before batch 2"):
        repeat(beside.old.app, beside.new.pipeline, restatement, lambda _: pytest.fail("no Spark is needed"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_restating_without_correction_changes_nothing(world: World) -> None:
    """Timers of `clock: run` fire by the clocks of the batches, which also make records late."""
    window = 'window: {tumbling: 1m, grace: 10s}\n    reduce: {n: "count(*)"}\n    emit: {on: window_close}'
    text = 'select: {isAvailable: "quantity > 0"}\n    reduce: latest\n    emit: {on: change, equal: exact}'
    world.write_pipeline(**{text: window})
    for number in range(5):
        for product in (1, 2):
            late = {"timestamp_ms": NOW_MS + (number * 40 - 35 * (number % 2)) * 1000}
            world.send({"value": {"storeId": "s", "id": product, "quantity": number}, **late})
        world.run(clock_ms=NOW_MS + number * 45_000)
    shown = command(world, "--from-batch", "3", "--to-batch", "4", "--yes")
    assert "has computed 3 batches" in shown.output
    (sink,) = compare_generations(world.app, world.stream, Stream("availability", 2)).sinks
    assert (sink.entries.total, sink.entries.same > 2) == (0, True)
    promote(world.app, Stream("availability", 2), "promote", is_net=True)
    head = world.app.ledger.head(Stream("availability", 2))
    attempt = world.app.ledger.attempt(Stream("availability", 2), head.seq)
    assert attempt is not None
    assert attempt.stage_counts("availability").get("emitted", 0) == 0
