"""A column that is computed where records are read has the type and the values that Spark gives it.

`test_type_pairs_in_spark` holds types and rows against Spark; here columns are held against rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.examples import share_of
from tests.expressions import test_type_pairs_in_spark as in_spark
from tidegate.expressions import Expression
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.rows import compiled
from tidegate.expressions.types import BIGINT, INT, ColumnTypes
from tidegate.expressions.values import Unfit
from tidegate.model.columns import parse_type
from tidegate.model.condition import compiled_expression, read_expression

_UNFIT = object()
"""The value of a row without one."""
TYPES = {"n": INT, "b": BIGINT, "s": parse_type("string"), "d": parse_type("decimal(9,2)")}


def selected(text: str, types: ColumnTypes = TYPES) -> Expression | None:
    return compiled_expression(text, types)


@pytest.mark.heavy
def test_selected_columns_equal_rows() -> None:
    given = in_spark.rows()
    fields = [(name, arrow_type(type_)) for name, type_ in in_spark.TYPES.items()]
    rows = pa.array(given, pa.struct(fields))
    plain = rows.to_pylist()
    texts = share_of(in_spark.expressions())
    expressions = [expression for text in texts if (expression := selected(text, in_spark.TYPES))]
    assert len(expressions) > len(texts) / 5
    wrong = [expression.text for expression in expressions if not _agrees(expression, rows, plain)]
    assert wrong == []


def _agrees(expression: Expression, rows: pa.StructArray, plain: list[dict[str, Any]]) -> bool:
    type_ = arrow_type(parse_type(expression.type))
    by_row = list(map(partial(_value_or_unfit, compiled(expression.tree)), plain))
    column, unfit = expression.of_rows(rows, type_)
    failed = [row for row, value in enumerate(by_row) if value is _UNFIT]
    if [failure.row for failure in unfit] != failed or column.type != type_:
        return False
    return _texts(column) == _texts(pa.array([None if value is _UNFIT else value for value in by_row], type_))


def _value_or_unfit(compute: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> Any:
    try:
        return compute(row)
    except Unfit:
        return _UNFIT


def _texts(column: pa.Array) -> str:
    return repr(column.to_pylist())  # NaN is NaN, and -0.0 is not 0.0


def test_every_column_can_be_copied() -> None:
    nested = {"m": parse_type("map<string,array<int>>"), "p": parse_type("struct<a:int,company:string>")}
    assert [name for name in (*in_spark.TYPES, *nested) if not selected(name, in_spark.TYPES | nested)] == []


@pytest.mark.parametrize(
    "text",
    ["hour(s)", "try_cast(s as int)", "null", "cast(d as double)", "rand()", "n = b = n", "x", "s + 1"],
)
def test_spark_computes_the_others(text: str) -> None:
    assert selected(text) is None


def test_unknown_columns_are_computed_by_spark() -> None:
    assert selected("n", None) is None
    assert selected("n", {"n": None}) is None


def test_row_without_a_result_is_named() -> None:
    expression = selected("n / b")
    assert expression is not None
    rows = pa.array([{"n": 1, "b": 1}, {"n": 1, "b": 0}], pa.struct([("n", pa.int32()), ("b", pa.int64())]))
    column, unfit = expression.of_rows(rows, pa.float64())
    assert column.to_pylist() == [1.0, None]
    assert [(failure.row, failure.what) for failure in unfit] == [
        (1, "`n / b` has no result: it divides by zero")
    ]


def test_types_are_those_of_the_tree() -> None:
    given = {
        text: typed for text in ("n + 1", "b + n", "n > 0", "if(n > 0, 1, null)") if (typed := selected(text))
    }
    assert {text: expression.type for text, expression in given.items()} == {
        "n + 1": "int",
        "b + n": "bigint",
        "n > 0": "boolean",
        "if(n > 0, 1, null)": "int",
    }
    assert read_expression("n + 1", TYPES) is not None
