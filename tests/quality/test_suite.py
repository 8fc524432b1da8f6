"""Suite files: read without Great Expectations, written and read by its own API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import SettingsInvalid
from tidegate.model.planned import suite_text
from tidegate.quality.suite import CORE_TYPES, Severity, parse_suite

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "n"}}


def text_of(*expectations: Any) -> str:
    return json.dumps({"name": "s", "expectations": [*expectations]})


def parsed(*expectations: Any, **options: Any) -> Any:
    return parse_suite(text_of(*expectations), "s.json", **options)


def test_expectation_defaults_to_the_checks_severity() -> None:
    written = [NOT_NULL, NOT_NULL | {"severity": "info"}, NOT_NULL | {"severity": None}]
    assert [spec.severity for spec in parsed(*written).expectations] == ["critical", "info", "critical"]
    severities = [spec.severity for spec in parsed(*written, default=Severity.WARNING).expectations]
    assert severities == ["warning", "info", "warning"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "it is not JSON"),
        ("[]", "not an object with a list of `expectations`"),
        ('{"expectations": []}', "its `name` is missing"),
        ('{"name": "s", "expectations": [1]}', "expectation 1, is not a suite .* it has no `type`"),
        (
            json.dumps({"name": "s", "expectations": [NOT_NULL | {"severity": "bad"}]}),
            "not one of critical, warning",
        ),
        (
            json.dumps({"name": "s", "expectations": [{"type": "expect_column_to_exit"}]}),
            "did you mean|Did you mean",
        ),
        (json.dumps({"name": "s", "expectations": [NOT_NULL | {"kwargs": 1}]}), "`kwargs` are not an object"),
    ],
)
def test_invalid_suite_is_reported_with_its_place(text: str, says: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"s.json.*({says})"):
        parse_suite(text, "s.json")


def test_missing_suite_suggests_similar_names(tmp_path: Path) -> None:
    (tmp_path / "levels.json").write_text("{}")
    with pytest.raises(SettingsInvalid, match=r"level\.json does not exist.*levels"):
        suite_text(tmp_path, "level")


def test_any_type_may_be_of_a_module() -> None:
    assert (
        parsed({"type": "expect_something"}, additional_types=None).expectations[0].type == "expect_something"
    )


def test_the_core_types_are_those_of_great_expectations() -> None:
    from tidegate.quality.expectations import gx

    of_core = {
        type_
        for type_ in gx.expectations.registry.list_registered_expectation_implementations()
        if gx.expectations.registry.get_expectation_impl(type_).__module__.startswith("great_expectations")
    }
    assert of_core == CORE_TYPES


@pytest.fixture
def context(tmp_path: Path) -> Any:
    """A context in files, whose suites are where tidegate looks for them."""
    from tidegate.quality.expectations import gx

    return gx.get_context(mode="file", project_root_dir=tmp_path)


def test_a_suite_that_its_api_saves_is_taken(context: Any, tmp_path: Path) -> None:
    from tidegate.quality.expectations import gx

    expectations = gx.expectations
    suite = context.suites.add(gx.ExpectationSuite("levels"))
    suite.add_expectation(expectations.ExpectColumnValuesToNotBeNull(column="n", severity="warning"))
    suite.add_expectation(
        expectations.ExpectTableRowCountToBeBetween(min_value={"$PARAMETER": "previous_emitted"})
    )
    folder = tmp_path / "gx" / "expectations"
    first, second = parse_suite(suite_text(folder, "levels"), "levels.json").expectations
    assert (first.type, first.columns, first.severity) == (NOT_NULL["type"], ("n",), Severity.WARNING)
    assert second.parameters == {"previous_emitted"}


def test_our_suite_is_read_by_the_api(context: Any, tmp_path: Path) -> None:
    suite = {"name": "ours", "expectations": [NOT_NULL | {"severity": "info"}], "meta": {}}
    (tmp_path / "gx" / "expectations" / "ours.json").write_text(json.dumps(suite))
    (expectation,) = context.suites.get("ours").expectations
    assert (expectation.expectation_type, expectation.column, expectation.severity.value) == (
        "expect_column_values_to_not_be_null",
        "n",
        "info",
    )


def conditioned(condition: Any, **options: Any) -> dict[str, Any]:
    return {**NOT_NULL, "kwargs": {"column": "n", "row_condition": condition, **options}}


COMPARISON = {"type": "comparison", "column": {"name": "n"}, "operator": ">", "parameter": 1}


@pytest.mark.parametrize(
    "expectation",
    [
        conditioned("@pd.io.common.os.system('id') == 0", condition_parser="pandas"),
        conditioned("n > 1", condition_parser="python"),
        conditioned("n > 1", condition_parser="spark"),
        conditioned("n > 1"),
        conditioned('col("n` + @pd.x + `n") > 1', condition_parser="great_expectations"),
        conditioned({"type": "pass_through", "pass_through_filter": "@pd.x"}),
        conditioned({"type": "other"}),
        conditioned({**COMPARISON, "column": {"name": "n` == @pd.x #"}}),
        conditioned({**COMPARISON, "parameter": {"of": 1}}),
        conditioned({"type": "and", "conditions": [COMPARISON, {"type": "pass_through"}]}),
        conditioned({"type": "or", "conditions": "@pd.x"}),
        conditioned(["@pd.x"]),
    ],
)
def test_a_condition_run_as_code_is_refused(expectation: Any) -> None:
    with pytest.raises(SettingsInvalid, match=r"expectation 1, .* would be run as code"):
        parsed(expectation)


@pytest.mark.parametrize(
    "expectation",
    [
        conditioned(None),
        conditioned('col("n").notnull()', condition_parser="great_expectations"),
        conditioned(COMPARISON),
        conditioned({**COMPARISON, "operator": "IN", "parameter": [1, "a"]}),
        conditioned({"type": "nullity", "column": {"name": "n"}, "is_null": False}),
        conditioned({"type": "and", "conditions": [COMPARISON, COMPARISON]}),
    ],
)
def test_a_condition_of_comparisons_is_taken(expectation: Any) -> None:
    assert parsed(expectation).expectations[0].kwargs == expectation["kwargs"]


def test_a_json_schema_that_fetches_is_refused() -> None:
    type_ = "expect_column_values_to_match_json_schema"
    schema = {"properties": {"a": {"$ref": "file:///etc/passwd"}}}
    with pytest.raises(SettingsInvalid, match="refers to another document"):
        parsed({"type": type_, "kwargs": {"column": "n", "json_schema": schema}})
    schema = {"$defs": {"a": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}
    assert parsed({"type": type_, "kwargs": {"column": "n", "json_schema": schema}})
