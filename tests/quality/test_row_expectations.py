"""Each expectation about single rows refuses just the rows that Great Expectations itself does not expect."""

from __future__ import annotations

import importlib
import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate import kernel
from tidegate.expressions.arrow import type_of
from tidegate.kernel.counts import Counts
from tidegate.kernel.gate import NULL_TESTS, TESTS, refusal, without_refused
from tidegate.model.row_expectations import suite_rows, with_column_types

UTC = timezone.utc
NOON = datetime(2024, 5, 17, 12, tzinfo=UTC)
INSTANTS = [NOON, NOON + timedelta(microseconds=1), NOON - timedelta(days=400)]
DAYS = [date(2024, 1, 31), date(1970, 1, 1)]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc\n",
    "a\nb",
    "\n",
    "ß",
    "é",
    "é",
    "日本",
    "😀",
    " a ",
    "1",
    "1.0",
    "nan",
    "None",
]
NUMBERS = [0.0, -0.0, 1.0, 1.5, 2.0, 0.1, -3.0, 1e300, math.nan, math.inf, -math.inf]
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "x": (pa.float64(), st.sampled_from(NUMBERS) | st.floats()),
    "y": (pa.float64(), st.sampled_from(NUMBERS)),
    "i": (pa.int64(), st.sampled_from([0, 1, 2, 3, -4]) | st.integers(-(2**52), 2**52)),
    "n": (pa.int32(), st.sampled_from([0, 1, 2, 3, -4])),
    "d": (pa.decimal128(20, 3), st.sampled_from([*map(Decimal, ("0.100", "1.000", "1.500", "-2.000", "3"))])),
    "s": (pa.string(), st.sampled_from(TEXTS) | st.text(max_size=4)),
    "t": (pa.string(), st.sampled_from(TEXTS)),
    "b": (pa.bool_(), st.booleans()),
    "at": (
        pa.timestamp("us", "UTC"),
        st.sampled_from(INSTANTS),
    ),
    "until": (pa.timestamp("us", "UTC"), st.sampled_from([NOON, NOON + timedelta(days=1)])),
    "day": (pa.date32(), st.sampled_from(DAYS)),
    "xs": (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2)),
}
TYPES = {name: type_of(type_) for name, (type_, _) in COLUMNS.items()}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in COLUMNS.items()])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows with nulls among the values; where none has one, pandas keeps a column in another type."""
    rows = draw(st.integers(1, 25))
    columns = {}
    for name, (type_, values) in COLUMNS.items():
        nullable = draw(st.booleans())
        drawn = st.lists(st.none() | values if nullable else values, min_size=rows, max_size=rows)
        columns[name] = pa.array(draw(drawn), type_, from_pandas=False)
    return pa.table(columns, SCHEMA)


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_column_{kind}", "kwargs": kwargs}


def between(column: str, **kwargs: Any) -> dict[str, Any]:
    return expectation("values_to_be_between", column=column, **kwargs)


IF_EITHER, STRICT = {"ignore_row_if": "either_value_is_missing"}, {"strict_max": True}
PATTERNS = ["^a", "b$", r"^\w+$", ".", "(?i)A", r"\d", "^$", "a|日", r"\s", "[^a]"]
WRITTEN = [
    *(expectation(f"values_to_{not_}be_null", column=column) for column in COLUMNS for not_ in ("", "not_")),
    *(
        between(column, **bounds)
        for column in ("x", "i", "n", "d")
        for bounds in (
            {"min_value": 0},
            {"max_value": 1.0, "strict_max": True},
            {"min_value": -2, "max_value": 1.5},
            {"min_value": 1, "max_value": 2, "strict_min": True, "strict_max": True},
            {"min_value": 0.1, "strict_min": False},
            {"max_value": 0.1},
        )
    ),
    between("day", min_value="2000-01-01"),
    between("at", min_value="2024-05-17T12:00:00Z"),
    between("at", min_value="2024-05-17T13:00:00+01:00", strict_min=True, max_value="2025-01-01T00:00:00Z"),
    *(
        expectation(f"values_to_{not_}be_in_set", column=column, value_set=values)
        for not_ in ("", "not_")
        for column, values in (
            ("x", [0, 1.5, None]), ("i", [1, 2.0]), ("n", [1]), ("d", [1, 0.1, 1.5]),
            ("s", ["a", "日本", None]), ("b", [True]), ("t", []),
        )
    ),
    *(
        expectation(f"values_to_{not_}match_regex", column="s", regex=pattern)
        for not_ in ("", "not_")
        for pattern in PATTERNS
    ),
    expectation("value_lengths_to_equal", column="s", value=1),
    *(
        expectation("value_lengths_to_be_between", column="s", **bounds)
        for bounds in ({"min_value": 1}, {"max_value": 2}, {"min_value": 1, "max_value": 3} | STRICT)
    ),
    *(
        expectation("pair_values_to_be_equal", column_A=a, column_B=b, **ignoring)
        for a, b in (("x", "y"), ("i", "n"), ("s", "t"), ("at", "until"), ("x", "i"), ("d", "i"))
        for ignoring in ({}, IF_EITHER)
    ),
    *(
        expectation("pair_values_a_to_be_greater_than_b", column_A=a, column_B=b, **options)
        for a, b in (("x", "y"), ("i", "n"), ("at", "until"), ("x", "n"))
        for options in ({}, {"or_equal": True}, {"or_equal": True} | IF_EITHER)
    ),
    # of these, the library has no result where one is missing
    *(
        expectation("pair_values_a_to_be_greater_than_b", column_A=a, column_B=b, **IF_EITHER)
        for a, b in (("s", "t"), ("d", "i"))
    ),
]  # fmt: skip


def expectations() -> list[kernel.RowExpectation]:
    suite = suite_rows(json.dumps({"expectations": WRITTEN}))
    assert suite.unsupported == ()
    typed = [with_column_types(row, TYPES, {}, windowed=False) for row in suite.rows]
    assert None not in typed
    return [row for row in typed if row is not None]


def by_the_library(table: pa.Table) -> list[list[int]]:
    """Return for each expectation the rows that Great Expectations names, evaluated as the gate does it."""
    from tidegate.quality.expectations import gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    written = [{**written, "meta": {"number": number}} for number, written in enumerate(WRITTEN)]
    # For each decimal, Great Expectations reads the source of the whole call stack; pytest's is deep.
    util = importlib.import_module("great_expectations.util")
    definition = gx.ValidationDefinition(
        name="rows",
        data=asset.add_batch_definition_whole_dataframe("rows"),
        suite=context.suites.add(gx.ExpectationSuite(name="rows", expectations=written)),
    )
    with patch.object(util, "stack", list):
        result = context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": table.to_pandas()}, result_format="COMPLETE"
        )
    by_number = sorted(result.results, key=lambda result: result.expectation_config.meta["number"])
    return [result.result["unexpected_index_list"] or [] for result in by_number]


def refused_on_columns(expectation: kernel.RowExpectation, table: pa.Table) -> list[int]:
    value = table.to_struct_array().combine_chunks()
    reduce = kernel.Latest()
    stage = kernel.Stage(reduce, kernel.Update(), expectations=(expectation,))
    schema = kernel.input_schema(value.type, value.type, value.type, pa.struct([("reason", pa.string())]))
    columns = {
        "kind": pa.repeat(pa.scalar(kernel.RECORD, pa.int8()), len(value)),
        "key": pa.repeat("k", len(value)),
        "offset": pa.array(range(len(value)), pa.int64()),
        "value": value,
    }
    arrays = [columns.get(field.name, pa.nulls(len(value), field.type)) for field in schema]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    _, refused = without_refused(stage.expectations, kernel.output_schema(stage, schema), rows, Counts())
    return [offset for batch in refused for offset in batch.column("offset").to_pylist()]


@pytest.mark.heavy
@pytest.mark.parametrize("nulls", [True, pytest.param(False, marks=pytest.mark.long)])
def test_refused_rows_are_those_the_library_refuses(nulls: bool) -> None:
    given_values: dict[str, list[Any]] = {
        "x": NUMBERS, "y": NUMBERS[1:], "i": [0, 1, 2, -4, 2**52], "n": [1, 0, 2, 3, -4, 2],
        "d": [*map(Decimal, ("0.100", "1.000", "1.500", "-2.000"))], "s": TEXTS, "t": TEXTS[1:],
        "b": [True, False], "at": INSTANTS, "until": [NOON, INSTANTS[1]], "day": DAYS, "xs": [[], [1]],
    }  # fmt: skip
    columns = {}
    for name, values in given_values.items():
        in_turn = [*values, None] if nulls else values
        column = [in_turn[number % len(in_turn)] for number in range(40)]
        columns[name] = pa.array(column, SCHEMA.field(name).type, from_pandas=False)
    assert_same_verdicts(pa.table(columns, SCHEMA))


@pytest.mark.long
@examples(15)
@given(tables())
def test_refused_rows_equal_the_library_for_any_value(table: pa.Table) -> None:
    assert_same_verdicts(table)


def assert_same_verdicts(table: pa.Table) -> None:
    rows = table.to_pylist()
    for expectation, unexpected in zip(expectations(), by_the_library(table), strict=True):
        one_by_one = [number for number, row in enumerate(rows) if refusal([expectation], row)]
        assert one_by_one == sorted(unexpected), expectation
        assert refused_on_columns(expectation, table) == one_by_one, expectation


def test_all_kinds_are_tried() -> None:
    assert {written["type"] for written in WRITTEN} == {*NULL_TESTS, *TESTS}


LEFT = [
    between("x", min_value=0, mostly=0.9),
    between("x", min_value=0, row_condition="i > 1", condition_parser="pandas"),
    {**between("x", min_value=0), "severity": "warning"},
    between("x", min_value={"$PARAMETER": "least"}),
    between("x"),
    between("x", min_value=2, max_value=1),
    between("s", min_value="a"),
    between("at", min_value="2024-05-17T12:00:00"),
    expectation("values_to_match_regex", column="s", regex="("),
    expectation("values_to_be_in_set", column="s", value_set=[["a"]]),
    expectation("values_to_be_unique", column="s"),
    expectation("value_lengths_to_be_between", column="s", min_value=1.5),
    expectation("pair_values_to_be_equal", column_A="x", column_B="y", ignore_row_if="neither"),
    {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
]


@pytest.mark.parametrize("written", LEFT, ids=lambda written: json.dumps(written["kwargs"])[:60])
def test_other_expectations_are_left_to_the_gate(
    written: dict[str, Any],
) -> None:
    suite = suite_rows(json.dumps({"expectations": [written]}))
    assert suite.rows == ()
    assert suite.unsupported[0][0] == written["type"]


@pytest.mark.parametrize(
    "written",
    [
        expectation("values_to_match_regex", column="i", regex="1"),
        expectation("value_lengths_to_equal", column="xs", value=1),
        expectation("values_to_be_in_set", column="s", value_set=[1]),
        expectation("values_to_be_in_set", column="i", value_set=[True]),
        between("s", min_value=1),
        between("at", min_value="2024-05-17"),
        between("nowhere", min_value=1),
        expectation("pair_values_to_be_equal", column_A="x", column_B="s"),
    ],
    ids=lambda written: f"{written['type']}({written['kwargs']})"[:70],
)
def test_other_types_are_left_to_the_gate(written: dict[str, Any]) -> None:
    (expectation,) = suite_rows(json.dumps({"expectations": [written]})).rows
    assert with_column_types(expectation, TYPES, {}, windowed=False) is None


def test_key_and_window_columns_look_as_in_suites() -> None:
    keys = {"shop": type_of(pa.string()), "id": type_of(pa.int64())}
    row = {"__key": '{"shop":"north","id":7}', "window_start": 60_000, "window_end": 120_000, "x": 1.0}

    def refused(written: dict[str, Any]) -> str | None:
        (expectation,) = suite_rows(json.dumps({"expectations": [written]})).rows
        typed = with_column_types(expectation, {"x": TYPES["x"]}, keys, windowed=True)
        assert typed is not None
        return refusal([typed], row)

    assert refused(expectation("values_to_be_in_set", column="shop", value_set=["north"])) is None
    assert refused(between("id", max_value=6)) == "expect_column_values_to_be_between(id)"
    assert refused(expectation("values_to_match_regex", column="key", regex="^{")) is None
    assert refused(between("window_start", min_value=60_001)) is not None
    pair = expectation("pair_values_a_to_be_greater_than_b", column_A="window_end", column_B="window_start")
    assert refused(pair) is None
