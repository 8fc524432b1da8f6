"""Explanations of committed batches, on real Kafka and Spark: the same decisions again, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.world import World, key_of
from tidegate.inspect.explain import Explanation, explain
from tidegate.ledger import OffsetRange
from tidegate.spark.explain import TraceEvent

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def explained(world: World, key: str, **more: Any) -> list[Explanation]:
    return explain(world.app, world.stream, key, world.open_session, **more)


def fates(events: tuple[TraceEvent, ...]) -> list[tuple[str, str]]:
    return [(event.what, event.fate) for event in events]


def test_explanation_starts_from_the_state_before_batch(
    world: World,
) -> None:
    world.stock(10, 5)
    world.run()
    world.stock(0, 0, product=2)
    world.stock(0)
    world.run()
    files = sorted(Path(world.app.settings.lake).rglob("*"))
    first, second = (explained(world, key_of(), seq=seq)[0].events for seq in (1, 2))
    assert fates(first) == [("record", "new"), ("emission", "new"), ("record", "suppressed")]
    assert first[0].previous == []
    assert first[2].previous == [{"emitted": {"isAvailable": True}}]
    assert fates(second) == [("record", "changed"), ("emission", "changed")]
    assert (second[0].source, second[0].value) == ((world.source, 0, 4), {"isAvailable": False})
    assert second[0].previous == [{"emitted": {"isAvailable": True}}]
    assert sorted(Path(world.app.settings.lake).rglob("*")) == files


def test_offsets_find_their_batches_and_records(world: World) -> None:
    for quantity in (10, 0, 3):
        world.stock(quantity)
        world.run()
    explanations = explained(world, key_of(), offsets=OffsetRange(world.source, 0, 1, 3))
    assert [explanation.plan.seq for explanation in explanations] == [2, 3]
    assert [event.source[2] for explanation in explanations for event in explanation.events] == [1, 1, 2, 2]


def test_quarantined_record_is_found_by_its_key(world: World) -> None:
    world.stock(10)
    world.send({"value": b"{oops", "key": key_of().encode()}, {"value": b"{oops", "key": b"other"})
    world.run()
    (explanation,) = explained(world, key_of())
    assert ("quarantined", "malformed") in [
        (what, fate.partition(":")[0]) for what, fate in fates(explanation.events)
    ]
    assert [event.value for event in explanation.events if event.what == "quarantined"] == ["{oops"]


def test_unmet_key_names_the_batches_that_changed_it(world: World) -> None:
    world.stock(10)
    world.run()
    world.stock(10, product=2)
    world.run()
    (explanation,) = explained(world, key_of())
    assert (explanation.plan.seq, explanation.events, explanation.changed) == (2, (), (1,))


def test_buffered_value_is_explained_with_its_timer(world: World) -> None:
    limit = "emit: {on: time_limit, after: 30s}"
    world.write_pipeline(**{"emit: {on: change, equal: exact}": limit})
    at = 1_000_000
    world.stock(10, 0, timestamp_ms=at)
    world.run(clock_ms=at + 1)
    world.stock(7, product=2, timestamp_ms=at + 40_000)
    world.run(clock_ms=at + 40_001)
    first, second = (explained(world, key_of(), seq=seq)[0].events for seq in (1, 2))
    assert fates(first) == [("record", "held"), ("record", "held")]
    assert first[1].previous == [{"held": 1, "due": at + 30_000}]
    assert fates(second) == [("emission", "time_limit")]
    assert (second[0].value, second[0].at) == ({"isAvailable": False}, at + 30_000)


def test_dropped_repetition_names_the_dropping_step(world: World) -> None:
    world.write_pipeline(source_extra="deduplicate: {columns: [quantity], keep: 1h}")
    world.stock(10, 10, 0)
    world.run()
    (explanation,) = explained(world, key_of())
    events = [(event.stage, event.what, event.fate) for event in explanation.events if event.what == "record"]
    assert [event for event in events if event[0] == "availability"] == [
        ("availability", "record", "new"),
        ("availability", "record", "changed"),
    ]
    dropped = [event for event in explanation.events if event.stage == "deduplicate" and event.source[2] == 1]
    assert [(event.fate, event.value["quantity"]) for event in dropped] == [("repeated", 10)]
