"""Checkpoints that Great Expectations' API writes are taken by the gate, and files of ours by its API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import made
from tests.quality.suite_for_tests import rows_of
from tidegate.model.planned import suite_text, with_checkpoints
from tidegate.model.quality import QualityCheck
from tidegate.quality.audit import Audit
from tidegate.quality.expectations import gx
from tidegate.quality.gate import check
from tidegate.quality.suite import parse_suite

ROWS = pa.table({"key": ["a", "b", "c"], "region": ["north", None, "south"], "total": [1, -2, 3]})
DOCS = Path(__file__).resolve().parents[2] / "docs" / "quality.md"


def page_program(root: Path) -> str:
    """Return the program of docs/quality.md that writes a checkpoint, in another folder."""
    blocks = DOCS.read_text().split("```python\n")[1:]
    (program,) = (block.split("```")[0] for block in blocks if "Checkpoint(" in block)
    return program.replace('"include"', repr(str(root)))


@pytest.fixture
def context(tmp_path: Path) -> Any:
    """Return the context of the page: a checkpoint `orders` of the pipeline `orders`."""
    names: dict[str, Any] = {"gx": gx}
    exec(compile(page_program(tmp_path), "quality.md", "exec"), names)
    return names["context"]


def checks_of(root: Path, checkpoint: str = "orders") -> tuple[QualityCheck, ...]:
    pipeline = made({"name": "revenue"}, pipeline="orders", quality={"checkpoint": checkpoint})
    return with_checkpoints(pipeline, root / "gx" / "expectations").checks


def ours(root: Path, rows: pa.Table = ROWS) -> list[list[tuple[str, bool, int | None]]]:
    """Each check's results, sorted: type, whether it is met, and how many rows do not meet it."""
    verdicts = []
    for declared in checks_of(root):
        suite = parse_suite(suite_text(root / "gx" / "expectations", declared.suite), declared.suite)
        verdicts.append(check(Audit(declared.suite, suite, rows_of(root, rows))))
    return [
        sorted(
            (expectation.type, expectation.passed, expectation.unexpected)
            for expectation in verdict.expectations
        )
        for verdict in verdicts
    ]


def theirs(context: Any, rows: pa.Table = ROWS) -> list[list[tuple[str, bool, int | None]]]:
    """Return the results of the library's own run of the checkpoint, as its files are now."""
    context.variables.progress_bars = {"globally": False}
    result = context.checkpoints.get("orders").run(batch_parameters={"dataframe": rows.to_pandas()})
    return [
        sorted(
            (result.expectation_config.type, result.success, result.result.get("unexpected_count"))
            for result in validated.results
        )
        for validated in result.run_results.values()
    ]


def test_api_checkpoint_has_the_same_verdict(context: Any, tmp_path: Path) -> None:
    expected = theirs(context)
    assert [met for results in expected for _, met, _ in results] == [False, True]
    assert ours(tmp_path) == expected


def test_hand_edited_files_have_the_same_verdict(context: Any, tmp_path: Path) -> None:
    folder = tmp_path / "gx"
    suite = json.loads((folder / "expectations" / "regions.json").read_text())
    suite["expectations"] += [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "min_value": 0}},
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "region", "value_set": ["north"]}},
    ]
    (folder / "expectations" / "regions.json").write_text(json.dumps(suite))
    file = folder / "checkpoints" / "orders.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"result_format": "BASIC"}))
    again = gx.get_context(mode="file", project_root_dir=tmp_path)
    results = theirs(again)
    assert results == ours(tmp_path)
    assert [unexpected for _, _, unexpected in results[0]] == [1, 1, 1, None]


def test_an_action_that_its_api_saves_is_refused(context: Any, tmp_path: Path) -> None:
    from great_expectations.checkpoint import SlackNotificationAction

    from tidegate.errors import SettingsInvalid

    action = SlackNotificationAction(name="alert", slack_webhook="${HOOK}")
    definitions = context.checkpoints.get("orders").validation_definitions
    context.checkpoints.add(gx.Checkpoint(name="loud", validation_definitions=definitions, actions=[action]))
    with pytest.raises(SettingsInvalid, match=r"does not run its action `slack`.*on_quality"):
        checks_of(tmp_path, "loud")
