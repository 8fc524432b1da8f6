"""Operators and functions of a condition give what Spark gives: on all pairs of types, at their limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.core.condition.compiler import compiled
from tidegate.core.condition.values import Unfit
from tidegate.spec.columns import parse_type
from tidegate.spec.condition import read_expression

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark


def _limits(bits: int) -> list[int | None]:
    most = 2 ** (bits - 1)
    return [None, 0, 1, -1, 7, most - 1, -most]


_DAYS = ("1969-12-31", "2000-02-29", "2026-01-01", "2026-01-02", "9999-12-31", "0001-01-01")
_INSTANTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2000, 2, 29),
    datetime(2026, 1, 1),
    datetime(2026, 1, 1, 0, 0, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(1583, 1, 1),
]
VALUES: dict[str, list[Any]] = {
    "tinyint": _limits(8),
    "smallint": _limits(16),
    "int": _limits(32),
    "bigint": _limits(64),
    "float": [None, 0.0, 0.5, -1.5, 3.0, math.nan, -math.inf],
    "double": [None, -0.0, 1.0, -2.5, 3.0, math.nan, math.inf],
    "decimal(9,2)": [None, *map(Decimal, ("0.00", "1.00", "-1.00", "7.05", "9999999.99", "-9999999.99"))],
    "decimal(18,0)": [None, *map(Decimal, ("0", "1", "-1", "7", "999999999999999999", "-5"))],
    "string": [None, "", "a", "ab", "B", " 7 ", "ä😀b"],
    "boolean": [None, True, False, True, False, None, True],
    "date": [None, *map(date.fromisoformat, _DAYS)],
    "timestamp": [None, *(instant.replace(tzinfo=timezone.utc) for instant in _INSTANTS)],
    "timestamp_ntz": [None, *_INSTANTS],
}
"""Type -> its values: as many for each."""
_NAMES = {type_: f"c{number}" for number, type_ in enumerate(VALUES)}
_COLUMNS = {f"{side}{name}": type_ for type_, name in _NAMES.items() for side in "lr"}
KNOWN = {name: parse_type(type_) for name, type_ in _COLUMNS.items()}

_OPERATORS = ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>")
_OF_TWO = ("coalesce", "nullif", "least", "greatest")
_OF_ONE = (
    *("abs({})", "-{}", "sqrt({})", "sign({})", "isnan({})", "floor({})", "ceil({})", "length({})"),
    *("round({})", "round({}, 1)", "round({}, -1)", "pow({}, 2)", "lower({})", "upper({})", "trim({})"),
    *("{} + 1", "{} - 2147483648", "{} * 1.5", "{} % 3", "{} + 1e0", "{} = 1", "not {}", "{} is null"),
    *("cast({} as bigint)", "cast({} as double)", "cast({} as boolean)", "cast({} as string)"),
)


def rows() -> list[dict[str, Any]]:
    """Every value of each type on the left beside every one on the right."""
    number = len(VALUES["int"])
    return [
        {name: VALUES[type_][left if name[0] == "l" else right] for name, type_ in _COLUMNS.items()}
        for left, right in itertools.product(range(number), repeat=2)
    ]


def expressions() -> Iterator[str]:
    """All operators and functions on all types."""
    for left, right in itertools.product(_NAMES.values(), repeat=2):
        yield from (f"l{left} {operator} r{right}" for operator in _OPERATORS)
        yield from (f"{function}(l{left}, r{right})" for function in _OF_TWO)
    for name in _NAMES.values():
        yield from (shape.format(f"l{name}") for shape in _OF_ONE)


def test_operators_and_functions_agree_with_spark_on_all_pairs_of_types(spark: SparkSession) -> None:
    read = {text: typed for text in expressions() if (typed := read_expression(text, KNOWN)) is not None}
    assert len(read) > 1000
    given = rows()
    spark = _session_for_few_rows(spark)
    frame = spark.createDataFrame(given, ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items()))
    tried = frame.coalesce(1).select(*[_tried(spark, text).alias(f"e{at}") for at, text in enumerate(read)])
    types = [field.dataType[0].dataType.simpleString() for field in tried.schema]
    other_types = [
        (text, theirs, typed.type and typed.type.text)
        for (text, typed), theirs in zip(read.items(), types, strict=True)
        if typed.type is None or typed.type.text != theirs
    ]
    wrong = []
    for row, theirs in zip(given, tried.collect(), strict=True):
        for (text, typed), result in zip(read.items(), theirs, strict=True):
            ours = _outcome(typed.tree, row)
            if not _same(ours, result):
                wrong.append((text, {name: row[name] for name in row if name in text}, result, ours))
    assert other_types == []
    assert wrong[:10] == [], len(wrong)


def _session_for_few_rows(spark: SparkSession) -> SparkSession:
    """One in which compiling code would take longer than running it."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def _tried(spark: SparkSession, text: str) -> Column:
    """A struct with the expression's value; null where it fails. SQL has no word for this."""
    from pyspark.sql import Column as AnyColumn
    from pyspark.sql import functions as F  # noqa: N812

    jvm: Any = spark._jvm
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    inner = convert.expression(F.struct(F.expr(text).alias("value"))._jc)
    return AnyColumn(convert.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def _outcome(tree: Any, row: dict[str, Any]) -> Any:
    """As a tuple of the value; None where it fails."""
    try:
        return (compiled(tree)(row),)
    except Unfit:
        return None


def _same(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    left, right = ours[0], theirs[0]
    if isinstance(left, datetime) and isinstance(right, datetime) and left.tzinfo:
        right = right.astimezone(timezone.utc)
    return bool(left == right or (left != left and right != right)) and (left is None) is (right is None)
