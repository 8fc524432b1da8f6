"""Metrics that a rule computes on Arrow columns are those that Great Expectations computes row by row."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given

from tests.examples import examples
from tests.quality.test_parts import Rows
from tests.quality.test_row_expectations import SCHEMA, WRITTEN, tables
from tidegate.quality.audit import AuditedRows
from tidegate.quality.facts import BUILTIN_TYPES
from tidegate.quality.measure import Frame, Measurement
from tidegate.quality.rules import RowRule
from tidegate.quality.splitting import SAMPLES, Parts
from tidegate.quality.suite import ExpectationSpec, Severity

OF_TABLE = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 3}}


def measurements(table: pa.Table) -> list[Measurement]:
    parts = Parts(cast(AuditedRows, Rows(table)))
    specs = (
        ExpectationSpec(number, written["type"], written["kwargs"] | {"mostly": 0.5}, Severity.CRITICAL)
        for number, written in enumerate(WRITTEN, start=1)
    )
    counting = ExpectationSpec(0, OF_TABLE["type"], OF_TABLE["kwargs"], Severity.CRITICAL)
    return [Measurement(spec, {}, [], parts) for spec in (counting, *specs)]


def assert_same_metrics(table: pa.Table) -> None:
    by_library = measurements(table)
    Frame(table.to_pandas()).measure(by_library)
    for measurement in by_library:
        rule, names = measurement.rule, measurement.requested_metrics
        assert measurement.error is None
        if rule is None:
            assert "pair" in measurement.spec.type
            continue
        counted = rule.metrics(names, table, with_samples=False)
        expected = {
            name: [] if name.endswith(SAMPLES) else value for name, value in measurement._partial.items()
        }
        assert counted == expected, measurement.spec
        is_met = counted == measurement._partial
        assert rule.metrics(names, table, with_samples=True) == (counted if is_met else None)


@examples(10)
@given(tables())
@pytest.mark.heavy
def test_metrics_of_rules_equal_those_of_the_library(table: pa.Table) -> None:
    assert_same_metrics(table)


@pytest.mark.parametrize("rows", [0, 1])
def test_rows_without_values_have_the_same_metrics(rows: int) -> None:
    assert_same_metrics(pa.Table.from_pylist([dict.fromkeys(SCHEMA.names)] * rows, SCHEMA))


@pytest.mark.parametrize(
    ("type_", "kwargs", "stored"),
    [
        ("expect_column_values_to_be_between", {"column": "c", "min_value": 0.1}, pa.float32()),
        ("expect_column_values_to_be_in_set", {"column": "c", "value_set": []}, pa.list_(pa.int64())),
        ("expect_column_values_to_be_between", {"column": "other", "min_value": 0}, pa.int64()),
        ("expect_column_values_to_be_unique", {"column": "c"}, pa.int64()),
        ("expect_column_pair_values_to_be_equal", {"column_A": "c", "column_B": "c"}, pa.int64()),
    ],
)
def test_inexact_or_unknown_expectation_has_no_rule(
    type_: str, kwargs: dict[str, Any], stored: pa.DataType
) -> None:
    assert RowRule.from_suite(type_, kwargs, pa.schema([("c", stored)])) is None


@pytest.mark.parametrize("type_", BUILTIN_TYPES)
def test_promise_of_the_pipeline_has_no_rule(type_: str) -> None:
    assert RowRule.from_suite(type_, {}, pa.schema([("c", pa.int64())])) is None


def test_integers_beyond_doubles_are_left_to_the_library() -> None:
    schema = pa.schema([("c", pa.int64())])
    rule = RowRule.from_suite("expect_column_values_to_be_between", {"column": "c", "min_value": 0}, schema)
    assert rule is not None
    names = ["column_values.between.unexpected_count"]
    for largest, metrics in ((2**53, {names[0]: 0}), (2**53 + 1, None)):
        assert rule.metrics(names, pa.table({"c": [1, largest]}), with_samples=False) == metrics
