"""`tidegate explain`: what a user learns of a key, and of what they asked for wrongly."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner

from tests.world import World, key_of
from tidegate.cli import cli
from tidegate.errors import OffsetsLost, SettingsInvalid

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def invoke(world: World, *arguments: str) -> Any:
    """Run the command in this process, whose Spark session it shares."""
    return CliRunner().invoke(cli, list(arguments), env=world.environment)


def test_a_table_for_people_and_json_for_programs(world: World) -> None:
    world.stock(10, 5, 0)
    world.run()
    shown = invoke(world, "explain", "availability", key_of()).output
    assert sum(line.startswith("went out  ") for line in shown.splitlines()) == 2
    assert [shown.count(word) for word in ("came in", "suppressed", "not emitted:")] == [3, 1, 1]
    result = invoke(world, "explain", "availability", key_of(), "--json")
    (batch,) = json.loads(result.stdout)
    assert (batch["batch"], batch["key"], batch["changed_in"]) == (1, key_of(), [1])
    assert [(event["what"], event["fate"]) for event in batch["events"]] == [
        ("record", "new"),
        ("emission", "new"),
        ("record", "suppressed"),
        ("record", "changed"),
        ("emission", "changed"),
    ]
    assert batch["events"][2]["source"] == f"{world.source}/0/1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("k", "--offsets", "stock/0"), "TOPIC/PARTITION/START-END"),
        (("k", "--offsets", "stock/0/5-5"), "END is excluded"),
        (("k", "--offsets", "stock/0/5", "--batch", "1"), "Give only one of them"),
        (("k",), "no committed batch"),
    ],
)
def test_impossible_question_is_refused_with_a_remedy(
    world: World, arguments: tuple[str, ...], message: str
) -> None:
    error = invoke(world, "explain", "availability", *arguments).exception
    assert isinstance(error, SettingsInvalid)
    assert message in str(error)


def test_missing_batch_key_offset_or_stage_are_distinguished(world: World) -> None:
    world.stock(10, 5)
    world.run()

    def refusal(*arguments: str) -> str:
        error = invoke(world, "explain", "availability", *arguments).exception
        assert isinstance(error, SettingsInvalid)
        return str(error)

    assert "Batch 2 of availability/1 is not committed. Name one from 1 to 1." in refusal("k", "--batch", "2")
    assert "has read up to 1" in refusal("k", "--offsets", f"{world.source}/0/2-9")
    assert "never read elsewhere[0]" in refusal("k", "--offsets", "elsewhere/0/0")
    assert "It has: availability." in refusal("k", "--stage", "nope")
    assert key_of() in refusal("nobody")


def test_records_deleted_in_kafka_are_named(world: World) -> None:
    world.stock(10, 5)
    world.run()
    world.delete_records({(world.source, 0): 1})
    error = invoke(world, "explain", "availability", key_of()).exception
    assert isinstance(error, OffsetsLost)
    assert "tidegate emissions availability --batch 1" in str(error)


def test_simulate_tells_what_became_of_each_record(world: World) -> None:
    given = world.folder / "input.jsonl"
    events = [{"value": {"storeId": "s1", "id": 1, "quantity": q}, "timestamp": q} for q in (10, 5)]
    events.append({"value": {"storeId": "s1", "id": 1, "quantity": "few"}, "timestamp": 11})
    given.write_text("\n".join(map(json.dumps, events)))
    pipeline = world.folder / "pipelines" / "availability.yaml"
    result = invoke(world, "simulate", str(pipeline), "--input", str(given), "--explain")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line.get("fate"), line.get("reason")) for line in lines] == [
        ("new", None),
        ("suppressed", None),
        ("quarantined: malformed: Expected `int | null`, got `str` - at `$.quantity`", None),
        (None, "new"),
    ]
    assert lines[1]["known"] == [{"emitted": {"isAvailable": True}}]
    plain = invoke(world, "simulate", str(pipeline), "--input", str(given))
    assert [json.loads(line) for line in plain.stdout.splitlines()] == lines[3:]


def test_plan_estimates_state_before_it_can_measure(world: World) -> None:
    world.stock(10, 0, 3)
    world.run()
    world.stock(10, 5, product=2)

    def estimated() -> dict[str, Any]:
        result = invoke(world, "plan", "availability", "--estimate", "--json")
        (stage,) = json.loads(result.stdout)["state"]
        return dict(stage)

    first = estimated()
    assert (first["stage"], first["rows"], first["stored_rows"]) == ("availability", 1, 1)
    assert (first["measured"], first["rows_at_most"]) == (False, 3)
    assert first["bytes_at_most"] == first["bytes"] + math.ceil(2 * first["bytes_per_row"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.inspect.read.MEASURED_ROWS", 1)
        assert estimated()["bytes_per_row"] == first["bytes"] / 1
    assert "a default" in invoke(world, "plan", "availability", "--estimate").output
