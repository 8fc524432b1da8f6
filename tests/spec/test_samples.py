"""The sample pipeline, its cases and its quality suite belong together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.spec import ChangeEmit, load_cases, load_pipeline, load_pipelines

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PIPELINES = INCLUDE / "pipelines"
CASES = sorted((PIPELINES / "cases" / "availability").glob("*.yaml"))


def test_every_sample_pipeline_is_without_mistakes() -> None:
    pipelines, errors = load_pipelines(PIPELINES)
    assert errors == []
    assert pipelines["availability"].pipeline == "availability"


def test_availability_is_the_pipeline_of_the_contract() -> None:
    pipeline = load_pipeline(PIPELINES / "availability.yaml")
    assert pipeline.key_columns == ("storeId", "id")
    assert pipeline.stages[0].select == {"isAvailable": "quantity > 0"}
    assert isinstance(pipeline.stages[0].emit, ChangeEmit)
    assert [sink.name for sink in pipeline.sinks] == ["kafka:availability"]
    assert pipeline.sinks[0].with_key


def test_availability_has_cases() -> None:
    assert CASES


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_case_file_of_availability_is_without_mistakes(path: Path) -> None:
    assert load_cases(path)


def test_every_sample_with_a_suite_has_its_file() -> None:
    for pipeline in load_pipelines(PIPELINES)[0].values():
        if pipeline.quality:
            assert (INCLUDE / "expectations" / f"{pipeline.quality.suite}.json").is_file()


GOOD_ROW = {
    "key": '{"storeId":"s1","id":17}',
    "timestamp": 1000,
    "storeId": "s1",
    "id": 17,
    "isAvailable": True,
}


@pytest.fixture(scope="module")
def suite() -> Any:
    """The availability suite as a function: a row in, the expectations that it does not meet out."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    import pandas as pd

    stored = json.loads((INCLUDE / "expectations" / "availability.json").read_text())
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    loaded = gx.ExpectationSuite(**{name: stored[name] for name in ("name", "expectations", "meta")})
    asset = context.data_sources.add_pandas("outbox").add_dataframe_asset("outbox")
    definition = asset.add_batch_definition_whole_dataframe("batch")

    def failed(row: dict[str, Any]) -> list[tuple[str, str]]:
        batch = definition.get_batch({"dataframe": pd.DataFrame([row])})
        results = [each for each in batch.validate(loaded).results if not each.success]
        return [(each.expectation_config.type, each.expectation_config.kwargs["column"]) for each in results]

    return failed


def test_the_suite_is_content_with_what_the_pipeline_emits(suite: Any) -> None:
    assert suite(GOOD_ROW) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("key", None),
        ("timestamp", None),
        ("storeId", "no such store!"),
        ("id", 0),
        ("id", 2_000_000_000),
    ],
)
def test_the_suite_stops_a_bad_row(suite: Any, column: str, value: Any) -> None:
    assert [of for _, of in suite({**GOOD_ROW, column: value})] == [column]
