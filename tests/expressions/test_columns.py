"""An expression on whole columns has the results that it has row by row, or there is no column."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pyarrow as pa
import pytest

from tests.examples import share_of
from tests.expressions import test_type_pairs_in_spark as in_spark
from tests.expressions.conditions import COLUMNS, RandomCondition, random_row
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.columns import column_of
from tidegate.expressions.rows import Tree, compiled
from tidegate.expressions.types import ColumnTypes
from tidegate.expressions.values import Unfit
from tidegate.model.columns import parse_columns, parse_type
from tidegate.model.condition import read_expression

A: Tree = ("column", "a")
B: Tree = ("column", "b")


def column(tree: Tree, *values: Any, type_: pa.DataType | None = None) -> list[Any] | None:
    """The results over a column `a`; None if there is no column."""
    rows = pa.StructArray.from_arrays([pa.array(values, type_)], ["a"])
    result = column_of(tree, rows)
    return None if result is None else result.to_pylist()


def _outcome(tree: Tree, row: dict[str, Any]) -> Any:
    try:
        return (compiled(tree)(row),)
    except Unfit:
        return None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)
    return (type(left) is type(right) and left == right) or (left == right and not isinstance(left, float))


def differences(texts: list[str], types: ColumnTypes, given: list[dict[str, Any]]) -> tuple[int, list[Any]]:
    """Return the number of expressions that have a column, and where it differs from the rows."""
    fields = [(name, arrow_type(type_)) for name, type_ in types.items() if type_ is not None]
    rows = pa.array(given, pa.struct(fields))
    computed, wrong = 0, []
    for text in texts:
        typed = read_expression(text, types)
        result = None if typed is None else column_of(typed.tree, rows)
        if typed is None or result is None:
            continue
        computed += 1
        outcomes = [_outcome(typed.tree, row) for row in rows.to_pylist()]
        for row, outcome, value in zip(given, outcomes, result.to_pylist(), strict=True):
            if outcome is None or not _same(outcome[0], value):
                wrong.append((text, {name: row[name] for name in row if name in text}, outcome, value))
    return computed, wrong


@pytest.mark.heavy
def test_columns_equal_rows_on_type_pairs() -> None:
    texts = share_of(in_spark.expressions())
    computed, wrong = differences(texts, in_spark.TYPES, in_spark.rows())
    assert (wrong[:5], computed > len(texts) / 5) == ([], True)


@pytest.mark.heavy
def test_columns_equal_rows_where_none_overflows() -> None:
    small = [row for row in in_spark.rows() if not any(map(_is_large, row.values()))]
    texts = share_of(in_spark.expressions())
    computed, wrong = differences(texts, in_spark.TYPES, small)
    assert (wrong[:5], computed > len(texts) / 5, len(small) > 10) == ([], True, True)


def _is_large(value: Any) -> bool:
    return isinstance(value, (int, float)) and not abs(value) < 100


def test_columns_equal_rows_on_random_conditions() -> None:
    source = random.Random(20260131)
    types = {name: parse_type(column.type) for column in parse_columns(COLUMNS)[0] for name in [column.name]}
    made = [RandomCondition(source).boolean(source.randint(1, 4)) for _ in range(800)]
    computed, wrong = differences(made, types, [random_row(source) for _ in range(60)])
    assert (wrong[:5], computed > 500) == ([], True)


@pytest.mark.parametrize(
    ("tree", "values"),
    [
        (("/", ("literal", 1), A), [1, 0]),
        (("%", A, ("literal", 0)), [1]),
        (("+", A, A), [2**62]),
        (("fit", "int", ("*", A, ("literal", 2))), [2**30]),
        (("cast", "bigint", A), [1e30]),
        (("cast", "bigint", A), [math.nan]),
        (("call", "floor", A), [2.0**63]),
        (("call", "upper", A), ["stra\u00dfe"]),
    ],
)
def test_failing_or_inexact_row_gives_no_column(tree: Tree, values: list[Any]) -> None:
    assert column(tree, *values) is None


def test_branch_not_taken_fails_no_row() -> None:
    guarded = ("case", (("<>", A, ("literal", 0)), ("/", ("literal", 1), A)), ("literal", 0.0))
    assert column(guarded, 1, 0) is None
    assert [compiled(guarded)({"a": value}) for value in (1, 0)] == [1.0, 0.0]


def test_nan_is_equal_and_largest_on_columns() -> None:
    assert column(("=", A, ("literal", math.nan)), math.nan, 1.0, None) == [True, False, None]
    assert column(("<", A, ("literal", math.nan)), math.nan, math.inf, None) == [False, True, None]
    assert column(("=", A, ("literal", 0.0)), -0.0) == [True]


def test_constant_condition_has_a_value_per_row() -> None:
    assert column(("literal", True), 1, 2) == [True, True]


def test_unknown_column_or_key_gives_none() -> None:
    assert column(("<", ("column", "window_end"), ("literal", 1)), 1) is None
    assert column(("=", ("key", None, "string"), ("literal", "a")), 1) is None


def test_like_on_columns_escapes_every_character() -> None:
    signs = "".join(map(chr, range(1, 128)))
    for sign in set(signs) - {"%", "_", "\\"}:
        assert column(("like", A, f"{sign}_", "\\"), f"{sign}\n", "\u20ac") == [True, False], re.escape(sign)
