"""The results of Kafka Streams itself, in a topic as Kafka Streams writes it, are equal to the shadow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conformance.test_cases import KAFKA_STREAMS
from tests.sampling import sampled
from tests.world import World
from tidegate.cli import cli

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CASES = [
    path.stem
    for path in sorted(KAFKA_STREAMS.glob("*.json"))
    if "emissions" in json.loads(path.read_text())["expect"]
]


def windowed_key(key: str, window: list[int] | None, is_session: bool) -> bytes:
    """The key as `TimeWindowedSerializer` or `SessionWindowedSerializer` writes it."""
    bounds = [] if window is None else window[::-1] if is_session else window[:1]
    return key.encode() + b"".join(bound.to_bytes(8, "big") for bound in bounds)


def shadow(world: World, case: dict[str, Any], drops: int = 0) -> tuple[int, dict[str, Any]]:
    """Compare a case's pipeline with its expected emissions, without the first `drops` of each key."""
    pipeline, topic = case["pipeline"], f"streams-{world.name}"
    pipeline["source"]["topics"] = [world.source]
    document = pipeline | {"sinks": [{"kind": "kafka", "topic": world.sink}]}
    (world.folder / "pipelines" / "case.yaml").write_text(json.dumps(document))
    world.send(
        *(
            {"key": record["key"].encode(), "value": record["value"], "timestamp_ms": record["timestamp"]}
            for record in case["input"]
        )
    )
    world.create(topic)
    is_session = "session" in (pipeline["stages"][0].get("window") or {})
    world.send(
        *(
            {
                "topic": topic,
                "key": windowed_key(key, emission.get("window"), is_session),
                "value": emission["value"],
                "timestamp_ms": emission["timestamp"],
            }
            for key, emissions in case["expect"]["emissions"].items()
            for emission in emissions[drops:]
        )
    )
    windowed = ["--windowed-keys"] if pipeline["stages"][0].get("window") else []
    command = ["shadow", "case", "--against", topic, "--no-explain", "--json", *windowed]
    result = CliRunner().invoke(cli, command, env=world.environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    "name", sampled(CASES, {"tumbling-final-001", "session-update-001", "time-limit-emit-early-001"})
)
def test_output_of_kafka_streams_equals_its_shadow(world: World, name: str) -> None:
    case = json.loads((KAFKA_STREAMS / f"{name}.json").read_text())
    code, report = shadow(world, case)
    emissions = sum(map(len, case["expect"]["emissions"].values()))
    counts = {name: number for name, number in report["counts"].items() if number}
    assert (code, counts) == (0, {"equal": emissions})


def test_clock_of_runs_is_the_time_of_records(world: World) -> None:
    case = json.loads((KAFKA_STREAMS / "tumbling-time-limit-001.json").read_text())
    case["pipeline"]["stages"][0]["emit"]["clock"] = "run"
    code, report = shadow(world, case)
    assert (code, report["counts"]["equal"]) == (0, report["tidegate"])


def test_suppressed_results_of_kafka_streams_are_missing(world: World) -> None:
    case = json.loads((KAFKA_STREAMS / "hopping-update-001.json").read_text())
    code, report = shadow(world, case, drops=2)
    emissions = sum(map(len, case["expect"]["emissions"].values()))
    dropped = 2 * len(case["expect"]["emissions"])
    assert code == 4
    assert report["counts"]["equal"] == emissions - dropped
    assert report["counts"]["missing"] + report["counts"]["not_yet_comparable"] == dropped
