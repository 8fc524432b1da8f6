"""`expected` of a stage: which stages can wait for the keys of a table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.model.kernel_stages import kernel_stage

QUIET: dict[str, Any] = {"select": {"price": "price"}, "emit": {"on": "quiet", "after": "1m"}}
KEYS = {"table": "devices/current", "key": ["id"]}


def test_stage_expects_the_keys_of_a_table() -> None:
    pipeline = made({**QUIET, "expected": KEYS})
    (expected,) = pipeline.tables
    assert (expected.table, expected.state) == ("devices/current", ("devices", "current"))
    assert kernel_stage(pipeline, pipeline.stages[0]).expects
    assert not made(QUIET).tables


@pytest.mark.parametrize(
    ("stages", "part"),
    [
        ([{"expected": KEYS}], "goes with `on: quiet` and `reduce: latest`"),
        ([{**QUIET, "reduce": "collect", "expected": KEYS}], "goes with `on: quiet` and `reduce: latest`"),
        ([{}, {**QUIET, "expected": KEYS}], "needs the times of the source"),
        ([{**QUIET, "ttl": "1h", "expected": KEYS}], "again and again"),
        ([{**QUIET, "expected": {**KEYS, "key": ["a", "b"]}}], "names 2 columns for it"),
        ([{**QUIET, "expected": {**KEYS, "table": "devices"}}], "that is not a table"),
        ([{**QUIET, "expected": {**KEYS, "table": "p/s0"}}], "the state of this pipeline itself"),
        ([{**QUIET, "expected": {"table": "devices/current"}}], "`key` is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_of_expected_keys_are_named(stages: list[dict[str, Any]], part: str) -> None:
    mistakes = refused(*stages)
    assert any(part in message and fix for _, message, fix in mistakes), mistakes
