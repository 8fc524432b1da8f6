"""The most used expectations on the library's own example data: the gate says what the library says of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

from tests.quality.suite_for_tests import audit_of
from tidegate.quality.expectations import gx
from tidegate.quality.gate import check
from tidegate.quality.verdict import ExpectationResult

DATA = Path(__file__).parent / "data"


class Case(NamedTuple):
    """An expectation, once so that it is met and once so that it is not: arguments that both have, and those
    that differ."""

    type: str
    common: dict[str, Any]
    met: dict[str, Any]
    broken: dict[str, Any]


def between(low: float, high: float) -> dict[str, Any]:
    return {"min_value": low, "max_value": high}


TITANIC = (
    Case("expect_column_values_to_not_be_null", {"column": "Age"}, {"mostly": 0.57}, {"mostly": 0.58}),
    Case("expect_column_values_to_be_null", {"column": "Age"}, {"mostly": 0.42}, {"mostly": 0.43}),
    Case("expect_column_values_to_be_unique", {"column": "Name"}, {"mostly": 0.99}, {}),
    Case("expect_column_values_to_be_between", {"column": "Age"}, between(0, 71), between(1, 70)),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "PClass"},
        {"value_set": ["1st", "2nd", "3rd"], "mostly": 0.99},
        {"value_set": ["1st", "2nd", "3rd"]},
    ),
    Case(
        "expect_column_values_to_not_be_in_set",
        {"column": "Sex"},
        {"value_set": ["unknown"]},
        {"value_set": ["male"]},
    ),
    Case(
        "expect_column_values_to_match_regex",
        {"column": "Name"},
        {"regex": "[A-Z]"},
        {"regex": "^[A-Z].*, M"},
    ),
    Case("expect_column_values_to_not_match_regex", {"column": "Name"}, {"regex": "[_#]"}, {"regex": r"\("}),
    Case("expect_column_value_lengths_to_be_between", {"column": "Name"}, between(2, 62), between(9, 40)),
    Case("expect_column_values_to_be_of_type", {"column": "Survived"}, {"type_": "int64"}, {"type_": "str"}),
    Case("expect_column_max_to_be_between", {"column": "Age"}, between(71, 71), between(0, 70.5)),
    Case("expect_column_min_to_be_between", {"column": "Age"}, between(0.17, 0.17), between(0.2, 1)),
    Case("expect_column_mean_to_be_between", {"column": "Age"}, between(30.39, 30.4), between(30.4, 31)),
    Case("expect_column_sum_to_be_between", {"column": "Survived"}, between(450, 450), between(451, 500)),
    Case("expect_column_median_to_be_between", {"column": "Age"}, between(28, 28), between(29, 30)),
    Case("expect_column_stdev_to_be_between", {"column": "Age"}, between(14.2, 14.3), between(14.3, 15)),
    Case(
        "expect_column_unique_value_count_to_be_between",
        {"column": "Name"},
        between(1310, 1310),
        between(0, 9),
    ),
    Case(
        "expect_column_distinct_values_to_be_in_set",
        {"column": "Sex"},
        {"value_set": ["male", "female"]},
        {"value_set": ["male"]},
    ),
    Case("expect_table_row_count_to_be_between", {}, between(1313, 1313), between(0, 1312)),
    Case("expect_column_to_exist", {}, {"column": "SexCode"}, {"column": "Cabin"}),
)
TAXI = (
    Case("expect_column_values_to_not_be_null", {"column": "vendor_id"}, {"mostly": 0.95}, {}),
    Case("expect_column_values_to_be_between", {"column": "fare_amount"}, between(3.5, 96), between(4, 90)),
    Case(
        "expect_column_values_to_be_in_set",
        {"column": "payment_type"},
        {"value_set": [1, 2, 3]},
        {"value_set": [1]},
    ),
    Case(
        "expect_column_max_to_be_between",
        {"column": "pickup_datetime"},
        {"min_value": "2020-12-01"},
        {"max_value": "2020"},
    ),
    Case("expect_column_mean_to_be_between", {"column": "tip_amount"}, between(1.91, 1.92), between(2, 3)),
    Case(
        "expect_column_sum_to_be_between", {"column": "total_amount"}, between(6558, 6559), between(0, 6558)
    ),
    Case(
        "expect_column_proportion_of_unique_values_to_be_between",
        {"column": "trip_distance"},
        between(0.5, 0.8),
        between(0.9, 1),
    ),
    Case(
        "expect_column_quantile_values_to_be_between",
        {"column": "passenger_count"},
        {"quantile_ranges": {"quantiles": [0.5, 0.9], "value_ranges": [[1, 1], [2, 4]]}},
        {"quantile_ranges": {"quantiles": [0.5, 0.9], "value_ranges": [[2, 3], [2, 4]]}},
    ),
    Case(
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_B": "fare_amount"},
        {"column_A": "total_amount"},
        {"column_A": "trip_distance"},
    ),
    Case(
        "expect_compound_columns_to_be_unique",
        {},
        {"column_list": ["pickup_datetime", "vendor_id"]},
        {"column_list": ["rate_code_id", "mta_tax"]},
    ),
    Case(
        "expect_table_columns_to_match_set",
        {},
        {"column_set": ["vendor_id"], "exact_match": False},
        {"column_set": ["vendor_id"]},
    ),
)
"""What the passengers have no columns for, and money and times."""


def test_the_twenty_most_used_are_there() -> None:
    assert len({case.type for case in TITANIC}) == 20


class Finding(NamedTuple):
    """The result of an expectation."""

    type: str
    passed: bool
    rows: int | None
    unexpected: int | None
    observed: Any


def expected(cases: Sequence[Case]) -> list[tuple[str, dict[str, Any]]]:
    """Each expectation as it is met, then as it is not."""
    return [(case.type, case.common | other) for case in cases for other in (case.met, case.broken)]


def directly(frame: pd.DataFrame, cases: Sequence[Case]) -> list[Finding]:
    """Return the findings of the library alone, from the table that pandas has read."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": frame})
    implementation = gx.expectations.registry.get_expectation_impl
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [batch.validate(implementation(type_)(**kwargs)) for type_, kwargs in expected(cases)]
    return [
        Finding(
            result.expectation_config.type,
            result.success,
            result.result.get("element_count"),
            result.result.get("unexpected_count"),
            _observed(result.result),
        )
        for result in results
    ]


def _observed(raw: dict[str, Any]) -> Any:
    """Return the observed value; for a comparison of sets, the surplus values."""
    if (
        raw.get("observed_value") is None
        and "element_count" not in raw
        and raw.get("partial_unexpected_list")
    ):
        return f"not in the set: {json.dumps(raw['partial_unexpected_list'])}"
    return raw.get("observed_value")


def by_the_gate(result: ExpectationResult) -> Finding:
    return Finding(result.type, result.passed, result.rows, result.unexpected, result.observed)


def is_shown(observed: str, value: Any) -> bool:
    """Whether a text says what the library has observed; lists are cut."""
    plain = value.item() if hasattr(value, "item") else value
    if plain is None or isinstance(plain, str):
        return observed == (plain or "")
    text = json.dumps(plain, default=str)
    return observed == text or (len(text) > len(observed) and text.startswith(observed[:-1]))


@pytest.fixture(
    scope="module",
    params=[("titanic", TITANIC), ("yellow_tripdata", TAXI)],
    ids=lambda parameter: parameter[0],
)
def example(request: pytest.FixtureRequest) -> tuple[pd.DataFrame, Sequence[Case], list[Finding]]:
    """A table, expectations, and what the library finds."""
    name, cases = request.param
    frame = pd.read_csv(DATA / f"{name}.csv")
    return frame, cases, directly(frame, cases)


@pytest.mark.heavy
@pytest.mark.parametrize("part_rows", [100_000, 100], ids=["whole", "in parts"])
def test_the_gate_finds_what_the_library_finds(
    example: tuple[pd.DataFrame, Sequence[Case], list[Finding]], part_rows: int, tmp_path: Path
) -> None:
    frame, cases, library = example
    audit = audit_of(tmp_path, pa.Table.from_pandas(frame), *expected(cases), place=None)
    findings = [by_the_gate(result) for result in check(audit, part_rows).expectations]
    assert [finding.passed for finding in findings] == [True, False] * len(cases), findings
    for ours, theirs in zip(findings, library, strict=True):
        assert ours[:4] == theirs[:4]
        assert is_shown(ours.observed, theirs.observed), (ours, theirs.observed)
