"""A verdict on parts equals the verdict of Great Expectations on the whole."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest

from tidegate.quality.audit import AuditedRows
from tidegate.quality.expectations import gx
from tidegate.quality.gate import Evaluation, evaluate
from tidegate.quality.splitting import Split
from tidegate.quality.suite import ExpectationSpec, Severity, Suite, parse_suite

START = datetime(2026, 1, 31, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("price", pa.float64()),
        ("cents", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)


def row(dice: random.Random) -> dict[str, Any]:
    hours, day = dice.choice([None, 0, 1, 2]), dice.choice([None, 1, 2, 3])
    return {
        "key": dice.choice("abcdefgh"),
        "n": dice.choice([None, -3, -1, 0, 1, 2, 3]),
        "m": dice.randint(-3, 3),
        "price": dice.choice([None, 0.0, -0.0, 0.1, 0.2, 0.30000000000000004, math.nan, 1e300]),
        "cents": dice.choice([None, Decimal("0.10"), Decimal("0.20"), Decimal("-7.05")]),
        "name": dice.choice([None, "", "x", "xy", "2026-01-31", '{"a": 1}']),
        "ok": dice.choice([None, True, False]),
        "at": None if hours is None else START + timedelta(hours=hours),
        "day": None if day is None else date(2026, 1, day),
    }


def table(seed: int) -> pa.Table:
    """Up to 14 rows; every second table is without nulls."""
    dice = random.Random(seed)
    rows = [row(dice) for _ in range(dice.choice([0, 1, 5, 9, 14]) if seed > 1 else 14)]
    if seed % 2:
        rows = [row for row in rows if None not in row.values()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class Rows:
    """Rows in memory, which are read three at a time."""

    def __init__(self, table: pa.Table) -> None:
        self.whole, self.schema, self.most_rows = table, table.schema, table.num_rows

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        table = self.table(names)
        for first in range(0, table.num_rows, 3):
            yield table.slice(first, 3)

    def table(self, names: Sequence[str] | None = None) -> pa.Table:
        return self.whole if names is None else self.whole.select(list(names))


def kwargs(**values: Any) -> dict[str, Any]:
    return values


MOST_USED = [
    ("expect_column_values_to_not_be_null", kwargs(column="n", mostly=0.8)),
    ("expect_column_values_to_be_null", kwargs(column="ok", mostly=0.3)),
    ("expect_column_values_to_be_unique", kwargs(column="key")),
    ("expect_column_values_to_be_unique", kwargs(column="price", mostly=0.5)),
    ("expect_column_values_to_be_between", kwargs(column="n", min_value=-2, max_value=2, mostly=0.7)),
    ("expect_column_values_to_be_between", kwargs(column="cents", min_value=0, max_value=1)),
    ("expect_column_values_to_be_in_set", kwargs(column="ok", value_set=[True])),
    ("expect_column_values_to_be_in_set", kwargs(column="n", value_set=[-1, 0, 1, 2, 3])),
    ("expect_column_values_to_not_be_in_set", kwargs(column="name", value_set=["xy"])),
    ("expect_column_values_to_match_regex", kwargs(column="name", regex="^x?", mostly=0.9)),
    ("expect_column_values_to_not_match_regex", kwargs(column="name", regex="y")),
    ("expect_column_value_lengths_to_be_between", kwargs(column="name", min_value=0, max_value=2)),
    ("expect_column_values_to_be_of_type", kwargs(column="n", type_="float64")),
    ("expect_column_values_to_be_in_type_list", kwargs(column="ok", type_list=["bool", "bool_"])),
    ("expect_column_values_to_match_strftime_format", kwargs(column="name", strftime_format="%Y-%m-%d")),
    ("expect_column_values_to_be_json_parseable", kwargs(column="name", mostly=0.5)),
    ("expect_column_values_to_be_increasing", kwargs(column="m")),
    ("expect_column_value_z_scores_to_be_less_than", kwargs(column="m", threshold=1, double_sided=True)),
    ("expect_column_distinct_values_to_be_in_set", kwargs(column="key", value_set=list("abcdefg"))),
    ("expect_column_distinct_values_to_contain_set", kwargs(column="day", value_set=["2026-01-01"])),
    ("expect_column_distinct_values_to_equal_set", kwargs(column="m", value_set=[-1, 0, 1])),
    ("expect_column_unique_value_count_to_be_between", kwargs(column="key", min_value=2, max_value=5)),
    (
        "expect_column_proportion_of_unique_values_to_be_between",
        kwargs(column="name", min_value=0.2, max_value=0.6),
    ),
    ("expect_column_proportion_of_non_null_values_to_be_between", kwargs(column="at", min_value=0.7)),
    ("expect_column_most_common_value_to_be_in_set", kwargs(column="m", value_set=[0, 1])),
    ("expect_column_max_to_be_between", kwargs(column="price", max_value=1)),
    ("expect_column_min_to_be_between", kwargs(column="cents", min_value=0)),
    ("expect_column_sum_to_be_between", kwargs(column="price", min_value=0.3, max_value=1.2)),
    ("expect_column_sum_to_be_between", kwargs(column="cents", min_value=0.3, max_value=1.2)),
    ("expect_column_mean_to_be_between", kwargs(column="n", min_value=-0.5, max_value=0.5)),
    ("expect_column_median_to_be_between", kwargs(column="m", min_value=0, max_value=1)),
    ("expect_column_stdev_to_be_between", kwargs(column="m", min_value=1, max_value=2)),
    ("expect_table_row_count_to_be_between", kwargs(min_value=3, max_value=12)),
    ("expect_table_row_count_to_equal", kwargs(value=7)),
    ("expect_table_columns_to_match_set", kwargs(column_set=SCHEMA.names)),
    ("expect_table_column_count_to_equal", kwargs(value=8)),
    ("expect_column_to_exist", kwargs(column="no")),
    ("expect_column_values_to_be_between", kwargs(column="no", min_value=0)),
    ("expect_column_values_to_be_unique", kwargs(column="no")),
    (
        "expect_column_pair_values_a_to_be_greater_than_b",
        kwargs(column_A="m", column_B="n", or_equal=True, ignore_row_if="either_value_is_missing"),
    ),
    ("expect_column_pair_values_to_be_equal", kwargs(column_A="m", column_B="n")),
    ("expect_compound_columns_to_be_unique", kwargs(column_list=["key", "m"])),
    ("expect_multicolumn_sum_to_equal", kwargs(column_list=["m", "m"], sum_total=0)),
    (
        "expect_column_values_to_be_between",
        kwargs(
            column="m",
            min_value=0,
            row_condition='col("ok").notnull()',
            condition_parser="great_expectations",
        ),
    ),
]
SUITE = Suite(
    "most_used",
    tuple(
        ExpectationSpec(number, type_, written, Severity.CRITICAL)
        for number, (type_, written) in enumerate(MOST_USED, start=1)
    ),
)
NO_VERDICT = "could not be evaluated"
"""Of decimals with a null Great Expectations has no sum, and tidegate has."""
COUNTS = ("element_count", "unexpected_count", "missing_count", "unexpected_percent", "observed_value")


@pytest.fixture(scope="module")
def directly() -> Any:
    """Great Expectations alone, on a table as a whole."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    definition = asset.add_batch_definition_whole_dataframe("rows")

    def validate(frame: pd.DataFrame) -> list[Any]:
        batch = definition.get_batch({"dataframe": frame})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            implementation = gx.expectations.registry.get_expectation_impl
            return [batch.validate(implementation(type_)(**written)) for type_, written in MOST_USED]

    return validate


def outcome(result: Any) -> Any:
    """Return the result of an expectation in a form that does not depend on how it was evaluated."""
    if result.exception_info and result.exception_info.get("raised_exception", True):
        return NO_VERDICT
    counts = {name: result.result.get(name) for name in COUNTS}
    return result.success, {
        name: None if pd.isna(value) else value
        for name, value in counts.items()
        if not isinstance(value, list)
    }


def in_parts(rows: pa.Table, part_rows: int) -> list[Evaluation]:
    return evaluate(SUITE, cast(AuditedRows, Rows(rows)), {}, part_rows)


@pytest.mark.sample(1)
@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_verdict_on_parts_is_that_on_whole(directly: Any, seed: int) -> None:
    rows = table(seed)
    expected = [outcome(result) for result in directly(rows.to_pandas())]
    for part_rows in (rows.num_rows, 4):
        actual = [
            (in_part.measurement.spec.type, in_part.error, outcome(in_part.result))
            for in_part in in_parts(rows, part_rows)
        ]
        differences = [
            (type_, error, here, whole)
            for (type_, error, here), whole in zip(actual, expected, strict=True)
            if here != whole and not (type_ == "expect_column_sum_to_be_between" and whole == NO_VERDICT)
        ]
        assert differences == [], part_rows


def test_expectation_uses_the_smallest_parts_it_allows() -> None:
    rows = [dict.fromkeys(SCHEMA.names) | {"key": "a", "m": number} for number in range(9)]
    evaluated = in_parts(pa.Table.from_pylist(rows, schema=SCHEMA), 4)
    whole = {
        expectation.measurement.spec.type
        for expectation in evaluated
        if expectation.measurement.split is Split.WHOLE
    }
    assert whole == {
        "expect_column_values_to_be_increasing",
        "expect_column_value_z_scores_to_be_less_than",
        "expect_column_sum_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_stdev_to_be_between",
    }


def test_missing_days_are_found_in_parts_by_value() -> None:
    days = pa.table({"key": [str(n) for n in range(12)], "day": pa.array([date(2026, 1, 1)] * 12)})
    expected = {"column": "day", "value_set": ["2026-01-01", "2026-01-03"]}
    contains = {"type": "expect_column_distinct_values_to_contain_set", "kwargs": expected}
    suite = parse_suite(json.dumps({"name": "s", "expectations": [contains]}), "s")
    for most in (12, 4):
        (evaluation,) = evaluate(suite, cast(Any, Rows(days)), {}, most)
        assert (evaluation.result.success, evaluation.result.result["missing_count"]) == (False, 1)
