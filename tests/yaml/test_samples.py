"""The sample pipelines, their cases and their quality suites belong together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.case_files import cases_in
from tidegate import kernel
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import load_pipeline, load_pipelines

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PIPELINES = INCLUDE / "pipelines"
SAMPLES = ["availability", "quiet_users", "rate_limited", "screw_fastening", "visitor_batches"]
CASES = sorted((PIPELINES / "cases").rglob("*.yaml"))


def sample(name: str) -> Pipeline:
    return load_pipeline(PIPELINES / f"{name}.yaml")


def test_every_sample_pipeline_is_without_mistakes() -> None:
    pipelines, errors = load_pipelines(PIPELINES)
    assert errors == []
    assert sorted(pipelines) == SAMPLES
    assert [pipeline.pipeline for _, pipeline in sorted(pipelines.items())] == SAMPLES


def test_availability_is_the_pipeline_of_the_contract() -> None:
    pipeline = sample("availability")
    assert pipeline.key_of(pipeline.stages[0]) == ("storeId", "id")
    assert pipeline.stages[0].select == {"isAvailable": "quantity > 0"}
    assert isinstance(pipeline.stages[0].emit, kernel.Change)
    assert [sink.name for sink in pipeline.sinks] == ["kafka:availability"]
    assert pipeline.sinks[0].with_key


@pytest.mark.parametrize(
    ("name", "emit", "sinks"),
    [
        ("visitor_batches", {"on": "threshold", "count": 100, "after_ms": 60_000}, ["sql:visitor_batches"]),
        ("quiet_users", {"on": "window_close"}, ["kafka:quiet-users"]),
        ("rate_limited", {"on": "time_limit", "after_ms": 30_000}, ["kafka:vehicle-positions"]),
        ("screw_fastening", {"on": "update"}, ["kafka:screw-counts", "kafka:robot-advice"]),
    ],
)
def test_a_sample_is_the_pipeline_of_the_contract(name: str, emit: dict[str, Any], sinks: list[str]) -> None:
    pipeline = sample(name)
    written = pipeline.stages[0].emit
    assert {field: getattr(written, field) for field in emit} == emit
    assert [sink.name for sink in pipeline.sinks] == sinks


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_has_a_schedule_and_cases(name: str) -> None:
    assert sample(name).schedule is not None
    of_it = [case for path in CASES if path.parent.name == name for case in cases_in(path)]
    assert of_it
    assert {case.pipeline.pipeline for case in of_it} == {name}


@pytest.mark.parametrize("path", CASES, ids=[f"{path.parent.name}/{path.stem}" for path in CASES])
def test_sample_case_file_has_no_mistakes(path: Path) -> None:
    assert cases_in(path)


def test_full_buffer_case_differs_by_its_buffer_only() -> None:
    ours = sample("rate_limited").stages[0]
    (case,) = cases_in(PIPELINES / "cases" / "rate_limited" / "full.yaml")
    theirs = case.pipeline.stages[0]
    bound, other = asdict(ours.emit), asdict(theirs.emit)
    assert (bound.pop("buffer")["max_records"], other.pop("buffer")["max_records"]) == (1000, 2)
    assert (ours.select, ours.reduce, bound) == (theirs.select, theirs.reduce, other)


def test_every_sample_with_a_suite_has_its_file() -> None:
    for pipeline in load_pipelines(PIPELINES)[0].values():
        for check in pipeline.checks:
            assert (INCLUDE / "expectations" / f"{check.suite}.json").is_file()


GOOD: dict[str, dict[str, Any]] = {
    "availability": {
        "key": '{"storeId":"s1","id":17}',
        "timestamp": 1000,
        "storeId": "s1",
        "id": 17,
        "isAvailable": True,
    },
    "quiet_users": {
        "key": "ann",
        "timestamp": 1000,
        "window_start": 0,
        "window_end": 3_600_000,
        "userId": "ann",
        "n": 2,
    },
    "rate_limited": {"key": "t1", "timestamp": 1000, "vehicleId": "t1", "lat": 50.1, "lon": 8.0},
    "screw_fastening": {
        "key": "r1",
        "timestamp": 1000,
        "robotId": "r1",
        "fastened": 6,
        "failed": 3,
        "advice": "stop",
    },
}
Failures = Callable[[str, dict[str, Any]], list[tuple[str, str]]]


@pytest.fixture(scope="module")
def failures() -> Failures:
    """A suite's name and a row in, the expectations that it does not meet out."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    import pandas as pd

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("outbox").add_dataframe_asset("outbox")
    definition = asset.add_batch_definition_whole_dataframe("batch")

    def failed(name: str, row: dict[str, Any]) -> list[tuple[str, str]]:
        stored = json.loads((INCLUDE / "expectations" / f"{name}.json").read_text())
        suite = gx.ExpectationSuite(**{name: stored[name] for name in ("name", "expectations", "meta")})
        batch = definition.get_batch({"dataframe": pd.DataFrame([row])})
        unmet = [result.expectation_config for result in batch.validate(suite).results if not result.success]
        return [(result.type, result.kwargs.get("column", result.kwargs.get("column_A"))) for result in unmet]

    return failed


@pytest.mark.parametrize("name", GOOD)
def test_sample_suite_accepts_the_pipeline_output(failures: Failures, name: str) -> None:
    pipeline = sample(name)
    emitted = {*pipeline.stages[-1].emitted, *pipeline.key_of(pipeline.stages[-1])}
    assert emitted <= GOOD[name].keys()
    assert failures(name, GOOD[name]) == []


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("availability", "key", None),
        ("availability", "timestamp", None),
        ("availability", "storeId", "no such store!"),
        ("availability", "id", 0),
        ("availability", "id", 2_000_000_000),
        ("quiet_users", "n", 3),
        ("quiet_users", "window_start", None),
        ("rate_limited", "lat", 91.0),
        ("rate_limited", "lon", None),
        ("screw_fastening", "fastened", 2),
        ("screw_fastening", "advice", "wait"),
    ],
)
def test_a_suite_stops_a_bad_row(failures: Failures, name: str, column: str, value: Any) -> None:
    assert [target for _, target in failures(name, {**GOOD[name], column: value})] == [column]
