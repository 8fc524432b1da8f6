"""Two generations of a pipeline on real Kafka and real Spark: one is tried beside the other, and promoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.world import NOW_MS, World, key_of
from tidegate.batch import Outcome, Trigger, check_progress, run_batch
from tidegate.cli import cli
from tidegate.generations import compare_generations, promote, rollback
from tidegate.ledger import Stream
from tidegate.yaml.load import load_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PLENTY, FEW, NONE = key_of(product=1), key_of(product=2), key_of(product=3)


def new(world: World, *options: str, **edits: str) -> Path:
    """Another generation, with the file's text edited."""
    arguments = ["generation", "new", "availability", *options]
    result = CliRunner().invoke(cli, arguments, env=world.environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    path = world.folder / "pipelines" / "availability_g2.yaml"
    text = path.read_text()
    for before, after in edits.items():
        text = text.replace(before, after)
    path.write_text(text)
    return path


def run(world: World, path: Path, **trigger: Any) -> Outcome:
    world.runs += 1
    requested = Trigger(f"run-{world.runs}", **({"clock_ms": NOW_MS} | trigger))
    return run_batch(world.app, load_pipeline(path), requested, world.open_session)


def fill(world: World) -> None:
    """Three products, in two batches."""
    world.stock(10, product=1)
    world.stock(3, product=2)
    world.run()
    world.stock(0, product=3)
    world.run()


def test_change_is_compared_promoted_and_rolled_back_net(world: World) -> None:
    fill(world)
    before = {PLENTY: [True], FEW: [True], NONE: [False]}
    path = new(world, **{"quantity > 0": "quantity > 5"})
    run(world, path)
    assert world.published() == before
    old, stream = world.stream, Stream("availability", 2)
    (sink,) = compare_generations(world.app, old, stream).sinks
    assert sink.entries.changed.column("key").to_pylist() == [FEW]
    assert (sink.entries.same, sink.entries.total) == (2, 1)
    promote(world.app, stream, "promote", is_net=True)
    assert world.published() == before | {FEW: [True, False]}
    world.stock(7, product=2)
    world.run()
    run(world, path)
    assert world.published() == before | {FEW: [True, False, True]}
    world.stock(2, product=1)
    world.run()
    run(world, path)
    assert world.published() == before | {PLENTY: [True, False], FEW: [True, False, True]}
    rollback(world.app, old.pipeline, "rollback", is_net=True)
    assert world.published() == before | {PLENTY: [True, False, True], FEW: [True, False, True]}


@pytest.mark.long
def test_promotion_sends_from_start_and_rollback_continues(
    world: World,
) -> None:
    fill(world)
    path = new(world, **{"quantity > 0": "quantity > 5"})
    run(world, path)
    promote(world.app, Stream("availability", 2), "promote")
    assert world.published() == {PLENTY: [True, True], FEW: [True, False], NONE: [False, False]}
    world.stock(0, product=2)
    world.run()
    rollback(world.app, world.stream.pipeline, "rollback")
    assert world.published()[FEW] == [True, False, False]
    check_progress(world.app, world.stream)
    check_progress(world.app, Stream("availability", 2))


@pytest.mark.long
def test_generation_with_an_origin_continues_like_the_other(world: World) -> None:
    world.stock(10, product=1)
    world.stock(3, product=2)
    world.run()
    path = new(world, "--from-batch", "1", "--yes")
    world.stock(0, product=2)
    world.stock(5, product=1)
    world.stock(0, product=3)
    world.run()
    outcome = run(world, path)
    assert outcome.plan is not None
    assert (outcome.plan.seq, outcome.plan.span) == (2, 3)
    (sink,) = compare_generations(world.app, world.stream, Stream("availability", 2)).sinks
    assert (sink.entries.same, sink.entries.total) == (3, 0)
    published = world.published()
    promote(world.app, Stream("availability", 2), "promote", is_net=True)
    assert world.published() == published
