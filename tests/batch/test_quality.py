"""Checks of every stage and of the state, through a batch on real Kafka and Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.world import World, key_of
from tidegate.errors import QualityFailed


def write_suite(world: World, name: str, *expectations: tuple[str, dict[str, Any], str | None]) -> None:
    folder = world.app.settings.expectations
    folder.mkdir(exist_ok=True)
    written = [
        {"type": type_, "kwargs": kwargs} | ({} if severity is None else {"severity": severity})
        for type_, kwargs, severity in expectations
    ]
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "meta": {}, "expectations": written}))


def write_checkpoint(world: World, name: str, suite: str, asset: str, target: str) -> None:
    """Write a checkpoint as Great Expectations' API does, beside the folder of the suites."""
    data = {"datasource": {"name": world.stream.pipeline}, "asset": {"name": asset}}
    definition = {
        "name": name,
        "suite": {"name": suite},
        "data": data | {"batch_definition": {"name": target}},
    }
    checkpoint = {"name": name, "validation_definitions": [{"name": name}], "actions": []}
    for kind, content in (("validation_definitions", definition), ("checkpoints", checkpoint)):
        folder = world.app.settings.expectations.parent / kind
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(content))


def results(world: World, seq: int) -> Sequence[tuple[str, str, str, bool]]:
    stored = world.app.ledger.quality(world.stream, seq)
    return [(result.target, result.type, result.severity, result.passed) for result in stored]


def test_stages_deletions_and_state_can_be_checked(world: World) -> None:
    rows = "expect_table_row_count_to_equal"
    write_suite(world, "inner", (rows, {"value": 2}, None))
    write_suite(
        world,
        "held",
        ("expect_column_values_to_be_in_set", {"column": "emitted.isAvailable", "value_set": [False]}, None),
    )
    write_suite(world, "last", (rows, {"value": 1}, "info"), ("expect_counts_to_add_up", {}, "critical"))
    write_checkpoint(world, "state", "held", "tally", "state")
    emit = "    emit: {on: change, equal: exact}\n"
    second = f"{emit}  - {{name: tally, select: {{isAvailable: isAvailable}}, emit: {{on: update}}}}\n"
    checks = (
        "quality:\n  - {suite: inner, stage: availability, on_failure: warn}\n"
        "  - {checkpoint: state, on_failure: warn}\n  - {suite: last, of: emissions}"
    )
    world.write_pipeline(extra=checks, **{emit: second})
    world.stock(1)
    world.run()
    assert results(world, 1) == [
        ("the values of availability", rows, "warning", False),
        ("the state of tally", "expect_column_values_to_be_in_set", "warning", False),
        ("the emissions of tally", rows, "info", True),
        ("the emissions of tally", "expect_counts_to_add_up", "critical", True),
    ]
    assert world.app.ledger.metrics(world.stream, 1)["", "quality.passed"] == 0.0
    assert world.published() == {key_of(): [True]}


def test_empty_batch_can_break_a_minimum_row_count(world: World) -> None:
    least = {"min_value": {"$PARAMETER": "min_emitted"}}
    write_suite(world, "steady", ("expect_table_row_count_to_be_between", least, None))
    world.write_pipeline(extra="quality: {suite: steady, on_failure: stop}")
    world.stock(1)
    world.run()
    world.stock(2)  # no change
    with pytest.raises(QualityFailed, match=r"expect_table_row_count_to_be_between.*observed 0"):
        world.run()
    assert world.app.ledger.head(world.stream).seq == 1
