"""Batches of real Kafka and Spark keep what the built-in expectations promise: none of them cries wolf."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.world import NOW_MS, World
from tidegate.batch.suites import stage_facts
from tidegate.ledger.planned import planned_pipeline
from tidegate.quality.facts import BUILTIN_TYPES, FINALS, NEIGHBOURS, needs_of, provide_facts

pytestmark = [pytest.mark.spark, pytest.mark.broker]

T = NOW_MS - 10_000_000
CHANGES: dict[str, dict[str, Any]] = {
    "exact": {"emit": {"on": "change"}},
    "hash": {"emit": {"on": "change", "state": "hash", "heartbeat": "40ms"}},
    "within": {"emit": {"on": "change", "equal": {"within": {"x": 1}}}},
    "window": {"window": {"tumbling": "1s"}, "reduce": {"x": "last(x)"}, "emit": {"on": "change"}},
    "ttl": {"emit": {"on": "change"}, "ttl": "20ms"},
}
FURTHER_STAGES: dict[str, dict[str, Any]] = {
    "closed": {"window": {"tumbling": "20ms"}, "reduce": {"x": "sum(x)"}, "emit": {"on": "window_close"}},
}


def write(world: World, stage: dict[str, Any], **source: Any) -> None:
    value = {} if "reduce" in stage else {"select": {"x": "x"}}
    world.write({"columns": "x bigint, id string", **source}, {"name": "out", **value, **stage})


def events(chance: random.Random, start: int, count: int) -> list[dict[str, Any]]:
    """Values, deletions, what cannot be read, and what comes twice, of few keys in two partitions."""
    made = []
    for at in range(start, start + count):
        key = chance.choice("abcdef")
        value: Any = {"x": chance.randrange(4), "id": f"{chance.randrange(count)}"}
        value = chance.choice((value, value, value, value, None, b"{oops"))
        late = chance.choice((0, 0, 0, 60))
        made.append(
            {"key": key.encode(), "value": value, "timestamp_ms": T + at - late, "partition": ord(key) % 2}
        )
    return made


def observed(world: World, stage: str) -> dict[tuple[int, str], Any]:
    """Return the results of each built-in expectation that fits the stage, by batch and type."""
    import tidegate.quality.builtin as builtin

    results = {}
    for seq in range(1, world.app.ledger.head(world.stream).seq + 1):
        plan, attempt = world.app.ledger.plan(world.stream, seq), world.app.ledger.attempt(world.stream, seq)
        assert plan is not None
        assert attempt is not None
        pipeline = planned_pipeline(plan)
        needs = needs_of({"type": type_} for type_ in BUILTIN_TYPES)
        facts = stage_facts(world.app, plan, attempt, pipeline, pipeline.stages[-1], needs)
        on = pipeline.stages[-1].emit.on
        for type_ in BUILTIN_TYPES:
            if (type_ == NEIGHBOURS and on != "change") or (type_ == FINALS and on != "window_close"):
                continue
            name = "".join(part.capitalize() for part in type_.split("_"))
            options = {"max_share": 1} if type_.endswith("at_most") else {}
            with provide_facts(facts):
                results[seq, type_] = getattr(builtin, name)(**options)._validate({})
    return results


def broken_promises(world: World, stage: dict[str, Any], **source: Any) -> list[Any]:
    """Three batches of random events; which promise they did not keep."""
    write(world, stage, **source)
    chance = random.Random(f"{stage}{source}")
    for batch in range(3):
        world.send(*events(chance, batch * 100, 100))
        world.run(max_records=70) if batch == 1 else world.run()
    results = observed(world, "out")
    assert len(results) >= 3 * 6
    emitted = sum(
        result["result"]["element_count"] for (_, type_), result in results.items() if "keys" in type_
    )
    assert emitted > 10
    return [(place, result) for place, result in results.items() if not result["success"]]


def test_promised_changes_differ_and_counts_add_up(world: World) -> None:
    assert broken_promises(world, CHANGES["exact"]) == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*(CHANGES.keys() - {"exact"}), *FURTHER_STAGES])
@pytest.mark.parametrize("source", [{}, {"deduplicate": {"columns": ["id"], "keep": "1h"}}], ids=["", "once"])
def test_whatever_the_stage_and_its_repetitions(world: World, name: str, source: dict[str, Any]) -> None:
    assert broken_promises(world, {**CHANGES, **FURTHER_STAGES}[name], **source) == []


@pytest.mark.long
def test_what_is_exploded_is_counted_element_by_element(world: World) -> None:
    write(world, CHANGES["exact"], columns="x array<bigint>", explode="x")
    for numbers in ([1, 1, 2], [], [2, 3]):
        world.send({"key": b"k", "value": {"x": numbers}, "timestamp_ms": T})
    world.run()
    assert [result for result in observed(world, "out").values() if not result["success"]] == []
