"""`tidegate recover --choose lower-clock`: what a stream does after its clock was far ahead of now."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.recovery.commands import recover
from tests.world import World, key_of, read_published
from tidegate.batch import Trigger, plan_batch
from tidegate.inspect import stream_condition
from tidegate.kafka.topic_facts import AFTER
from tidegate.ledger.stream_condition import ConditionKind

pytestmark = [pytest.mark.spark, pytest.mark.broker]
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = time.time_ns() // 1_000_000
START_MS = NOW_MS // HOUR_MS * HOUR_MS - HOUR_MS
"""The window from here on is over already."""
WINDOW = "window: {tumbling: 1h}\n    emit: {on: window_close}"


def write_stage(world: World, emit: str, **more: str) -> None:
    world.write_pipeline(**{"emit: {on: change, equal: exact}": emit, **more})


def run_ahead(world: World) -> None:
    """A batch with a right clock, then one whose clock is a month ahead."""
    world.stock(10, timestamp_ms=START_MS)
    world.run(clock_ms=START_MS + MINUTE_MS)
    world.stock(0, product=2, timestamp_ms=START_MS + 2 * MINUTE_MS)
    world.run(clock_ms=NOW_MS + 30 * DAY_MS, now_ms=NOW_MS, any_clock=True)


def values(world: World) -> dict[str, list[Any]]:
    return {
        key: [value["isAvailable"] for value in published]
        for key, published in read_published(world.servers, world.sink).items()
    }


def lower(world: World) -> str:
    result = recover(world.environment, "availability", "--choose", "lower-clock", "--yes", "--by", "ada")
    assert result.exit_code == 0, result.output
    return result.output


def clocks(world: World) -> set[int]:
    return set(world.app.ledger.head(world.stream).clocks.values())


def test_lowered_clock_makes_no_record_late(world: World) -> None:
    write_stage(world, WINDOW)
    run_ahead(world)
    assert values(world) == {key_of(): [True], key_of(product=2): [False]}
    condition = stream_condition(world.app, world.stream)
    assert condition.condition is ConditionKind.CLOCK_AHEAD
    assert "--choose lower-clock" in condition.causes[0].text
    shown = recover(world.environment, "availability")
    assert shown.exit_code == 4
    assert "lower-clock: The clock of availability/1 is" in shown.output
    assert "A window that was closed opens again with its next record" in shown.output
    lower(world)
    assert clocks(world) == {START_MS + MINUTE_MS}
    assert stream_condition(world.app, world.stream).condition is not ConditionKind.CLOCK_AHEAD
    world.stock(5, product=3, timestamp_ms=START_MS + 3 * MINUTE_MS)
    world.run(clock_ms=NOW_MS)
    assert world.counts(4)["late-record-drop"] == world.counts(4)["expired-window-record-drop"] == 0
    assert values(world)[key_of(product=3)] == [True]
    assert clocks(world) == {NOW_MS}
    (use,) = world.app.ledger.recoveries(world.stream)
    assert (use.remedy, use.decided_by) == ("lower-clock", "ada")


def test_lowered_clock_releases_waiting_values(world: World) -> None:
    write_stage(world, "emit: {on: threshold, count: 100, after: 10m}")
    run_ahead(world)
    world.stock(1, product=3, timestamp_ms=START_MS + 3 * MINUTE_MS)
    world.run(clock_ms=NOW_MS + 30 * DAY_MS + MINUTE_MS, now_ms=NOW_MS, any_clock=True)
    sent = values(world)
    assert key_of(product=3) not in sent
    lower(world)
    world.run(clock_ms=START_MS + 10 * MINUTE_MS)
    assert values(world) == sent
    world.run(clock_ms=START_MS + 13 * MINUTE_MS)
    assert values(world) == {**sent, key_of(product=3): [True]}


def test_heartbeats_come_by_the_right_clock(world: World) -> None:
    world.configure(world.sink, {AFTER: str(2**63 - 1)})
    write_stage(world, "emit: {on: change, heartbeat: 20d, clock: run}")
    run_ahead(world)
    sent = values(world)
    assert sent == {key_of(): [True, True], key_of(product=2): [False, False]}
    lower(world)
    world.run(clock_ms=START_MS + 20 * DAY_MS)
    assert values(world) == sent
    world.run(clock_ms=START_MS + 2 * MINUTE_MS + 20 * DAY_MS)
    assert {key: len(published) - len(sent[key]) for key, published in values(world).items()} == {
        key_of(): 1,
        key_of(product=2): 1,
    }


def test_planned_batch_with_clock_ahead_is_dropped(world: World) -> None:
    write_stage(world, WINDOW)
    world.stock(10, timestamp_ms=START_MS)
    world.run(clock_ms=START_MS + MINUTE_MS)
    world.stock(0, timestamp_ms=START_MS + 2 * MINUTE_MS)
    ahead = Trigger("ahead", clock_ms=NOW_MS + 30 * DAY_MS, now_ms=NOW_MS, any_clock=True)
    assert plan_batch(world.app, world.pipeline, ahead).plan is not None
    world.app.ledger.acquire(world.stream, "ahead").release()
    assert "Batch 2 is forgotten; the next run plans it anew." in lower(world)
    assert world.app.ledger.head(world.stream).seq == 1
    assert world.app.ledger.open_plan(world.stream) is None


def test_first_batch_with_clock_ahead_leaves_none(world: World) -> None:
    write_stage(world, WINDOW)
    world.stock(10, timestamp_ms=START_MS)
    world.run(clock_ms=NOW_MS + 30 * DAY_MS, now_ms=NOW_MS, any_clock=True)
    for action in ("raise", "lose"):  # before the ledger has it, and after
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("tidegate.failpoints._hits", Counter())
            patched.setenv("TIDEGATE_FAILPOINTS", f"ledger.decide={action}@1")
            failed = recover(world.environment, "availability", "--choose", "lower-clock", "--yes")
        assert failed.exit_code != 0, failed.output
        assert clocks(world) == ({-1} if action == "lose" else {NOW_MS + 30 * DAY_MS})
    assert "needs no remedy lower-clock" in lower(world)
    world.stock(5, product=3, timestamp_ms=START_MS + 3 * MINUTE_MS)
    world.run(clock_ms=NOW_MS)
    assert values(world)[key_of(product=3)] == [True]
