"""`quality`: one check or a list, each over a stage's emissions or state, or what a sink gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.model.files import COUNT, edited, good, made, problems, refused
from tests.model.test_compiled import assert_same
from tidegate.errors import PipelineInvalid, SettingsInvalid
from tidegate.kernel import RowExpectation
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.planned import with_suites
from tidegate.model.quality import QualityCheck

STOP = ("quality:\n  suite: availability\n  on_failure: stop\n", "")
TWO = {"sinks": [{"kind": "kafka", "topic": "out", "stage": "s0"}, {"kind": "table"}]}


def checked(*checks: dict[str, Any]) -> Any:
    return made({}, COUNT, quality=[*checks], **TWO)


def test_single_check_is_a_list_of_one() -> None:
    assert good().quality == (QualityCheck(suite="availability", on_failure="stop"),)


@pytest.mark.parametrize("nothing", ["", "quality: null\n", "quality: []\n"])
def test_without_a_check_there_is_none(nothing: str) -> None:
    assert good((STOP[0], nothing)).quality == ()


def test_check_defaults_to_the_last_stage() -> None:
    pipeline = checked({"suite": "a"}, {"suite": "b", "stage": "s0"}, {"suite": "c", "sink": "kafka:out"})
    assert [pipeline.checked_stage(check).name for check in pipeline.quality] == ["s1", "s0", "s0"]
    assert [pipeline.checked_sink(check) for check in pipeline.quality] == [None, None, pipeline.sinks[0]]


def test_checked_stage_writes_emissions_without_a_sink() -> None:
    inner, state = {"suite": "a", "stage": "s0"}, {"suite": "a", "stage": "s0", "of": "state"}
    sinks = [{"kind": "table"}]
    assert made({}, COUNT, sinks=sinks).published_stages == ("s1",)
    assert made({}, COUNT, sinks=sinks, quality=inner).published_stages == ("s0", "s1")
    assert made({}, COUNT, sinks=sinks, quality=state).published_stages == ("s1",)


def test_planned_check_keeps_its_suite() -> None:
    pipeline = checked({"suite": "a"}, {"suite": "b", "stage": "s0", "of": "state", "on_failure": "warn"})
    planned = tuple(check.planned('{"name": "a"}') for check in pipeline.quality)
    assert_same(pipeline)
    assert_same(pipeline.model_copy(update={"quality": planned}))
    assert [check.suite_text for check in planned] == ['{"name": "a"}'] * 2
    assert planned[0] != pipeline.quality[0]


@pytest.mark.parametrize(
    ("check", "field", "message"),
    [
        ({"stage": "s2"}, "quality.0.stage", "there is no stage `s2`"),
        ({"sink": "kafka:in"}, "quality.0.sink", "there is no sink `kafka:in`"),
        ({"stage": "s0", "sink": "table"}, "quality.0.sink", "`stage` and `sink` are given at once"),
        ({"sink": "table", "of": "state"}, "quality.0.of", "a sink has no state"),
        ({"of": "rows"}, "quality.0.of", "'rows' is not known"),
        ({"suit": "b"}, "quality.0.suit", "unknown field `suit`"),
    ],
)
def test_check_of_an_impossible_target_is_refused(check: dict[str, Any], field: str, message: str) -> None:
    (mistake,) = refused({}, COUNT, quality=[{"suite": "a", **check}], **TWO)
    assert (mistake[0], message in mistake[1]) == (field, True), mistake
    assert mistake[2]


def test_a_suite_is_evaluated_once_on_the_same() -> None:
    (mistake,) = refused(quality=[{"suite": "a"}, {"suite": "a"}, {"suite": "a", "of": "state"}])
    assert mistake[:2] == ("quality", "the suite `a` is evaluated twice on the same rows")


def test_list_mistake_has_the_line_of_its_check() -> None:
    text = edited((STOP[0], "quality:\n  - suite: availability\n  - suite: b\n    of: levels\n"))
    (mistake,) = problems(text)
    assert mistake[:2] == (35, "quality.1.of")


@pytest.mark.parametrize("target", [{"sink": "kafka:out"}, {"of": "state"}, {"of": "emissions"}])
def test_only_stage_checks_quarantine_rows(target: dict[str, Any]) -> None:
    (problem,) = problems_of({"suite": "a", "on_failure": "quarantine", **target})
    assert "`quarantine` is for the values that a stage emits" in problem.message


def problems_of(check: dict[str, Any]) -> Any:
    with pytest.raises(PipelineInvalid) as caught:
        checked(check)
    return caught.value.problems


def test_stage_keeps_its_planned_row_expectations() -> None:
    null = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "price"}}
    text = json.dumps({"name": "a", "expectations": [null, {"type": "expect_table_row_count_to_equal"}]})
    written = checked(
        {"suite": "a", "stage": "s0", "on_failure": "quarantine"},
        {"suite": "b", "on_failure": "quarantine"},
        {"suite": "a", "on_failure": "warn"},
    )
    assert kernel_stage(written, written.stages[0]).expectations == ()
    pipeline = with_suites(written, {"a": text}.get)
    expected = (RowExpectation("expect_column_values_to_not_be_null", ("price",)),)
    assert [kernel_stage(pipeline, stage).expectations for stage in pipeline.stages] == [expected, ()]
    assert_same(pipeline)
    with pytest.raises(SettingsInvalid, match="suite b is not one of Great Expectations"):
        with_suites(written, {"b": "[]"}.get)


def test_modules_have_to_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    check = {"suite": "a", "modules": ["shop.expectations"]}
    (mistake,) = refused(quality=check)
    assert mistake[:2] == ("quality.modules.0", "the module `shop.expectations` may not be called")
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    assert made(quality=check).quality[0].modules == ("shop.expectations",)
    (mistake,) = refused(quality={"suite": "a", "modules": ["../x"]})
    assert "does not name a module" in mistake[1]
