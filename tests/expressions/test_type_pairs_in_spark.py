"""Operators and functions of a condition give what Spark gives: on all pairs of types, at their limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples import share_of
from tidegate.expressions.rows import compiled
from tidegate.expressions.types import ColumnTypes, Typed
from tidegate.expressions.values import Unfit
from tidegate.model.columns import parse_type
from tidegate.model.condition import read_expression

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
_SINGLE = {f"{side}{name}": type_ for type_, name in _NAMES.items() for side in "lr"}
_ARRAYS = {f"a{name}": f"array<{type_}>" for type_, name in _NAMES.items()}
_COLUMNS = _SINGLE | _ARRAYS
_TRUTH = f"l{_NAMES['boolean']}"
TYPES = {name: parse_type(type_) for name, type_ in _COLUMNS.items()}

_OPERATORS = ("+", "-", "*", "/", "%", "div", "=", "<>", "<", "<=", ">", ">=", "<=>")
_OF_TWO = (
    *("coalesce", "nullif", "least", "greatest", "concat"),
    *("startswith", "endswith", "contains", "substring"),
)
_SHAPES_OF_TWO = (
    *(f"if({_TRUTH}, {{left}}, {{right}})", f"case when {_TRUTH} then {{left}} else {{right}} end"),
    *("nvl2({left}, {left}, {right})", "nvl2({right}, {left}, {right})"),
    "case {left} when {right} then 1 else 2 end",
    *("{left} in ({right})", "{left} not in ({right}, null)", "{left} is distinct from {right}"),
    *("{left} between {right} and {left}", "{right} not between {left} and {right}"),
    "substring({left}, {right}, {right})",
)
_OF_ONE = (
    *("abs({})", "-{}", "sqrt({})", "sign({})", "isnan({})", "floor({})", "ceil({})", "length({})"),
    *("round({})", "round({}, 1)"),
    *("nvl({}, {})", "ifnull({}, {})", "substr({}, 2)"),
    *("isnull({})", "isnotnull({})", "char_length({})", "{} like '%b'"),
    *("lower({})", "upper({})", "trim({})"),
    *("{} + 1", "{} - 2147483648", "{} * 1.5", "{} % 3", "{} + 1e0", "{} = 1", "not {}", "{} is null"),
    *("cast({} as int)", "cast({} as smallint)", "cast({} as tinyint)", "substring({}, 2)"),
    *("{} < date'2026-01-02'", "{} >= timestamp'2026-01-01 01:00:00+01:00'", "{} = date'0001-01-01'"),
    *("{} = timestamp_ntz'2026-01-01 00:00:00.000001'", "{} in (timestamp'2000-02-29', null)"),
    *("cast({} as bigint)", "cast({} as double)", "cast({} as boolean)", "cast({} as string)"),
)


_ELEMENTS: dict[str, list[Any]] = {
    "n": [None, 0, 1, -1, 2, -3, 5],
    "xs": [None, [], [4, None, 6], [7], [1, 2], [None], [0]],
    "m": [None, {}, {"a": 1, "b": None}, {"b": 2}, {"": 3}, {"ä": 4}, {"a": 5}],
    "ps": [None, [], [{"b": 1}, None], [{"b": None}], [None], [{"b": 2}], [{"b": 3}, {"b": 4}]],
    "s": [None, "", "ab", "äöü😀", "a\nb\r\n", "x" * 9, "b1 _ é"],
}
"""Columns of a second table: arrays, maps, texts, and numbers to take parts out of them by."""
_ELEMENT_TYPES = {
    "n": "int",
    "xs": "array<bigint>",
    "m": "map<string,int>",
    "ps": "array<struct<b:int>>",
    "s": "string",
}
_OF_PARTS = (
    *("xs[n]", "xs[0]", "xs[0] + 1", "m['a']", "m[s]", "ps[0].b", "ps[n].B", "get(xs, n)", "get(xs, -1)"),
    "size(m)",
    *(
        "substring(s, n, 2)",
        "substring(s, n)",
        "substr(s, 2, n)",
        "substring(s from 2 for 1)",
    ),
)


_EXPRESSIONS_PER_JOB = 1_500


def rows() -> list[dict[str, Any]]:
    """Every value of each type on the left beside every one on the right, and arrays of some of them."""
    number = len(VALUES["int"])
    return [
        {
            **{name: VALUES[type_][left if name[0] == "l" else right] for name, type_ in _SINGLE.items()},
            **{f"a{name}": _array(VALUES[type_], left) for type_, name in _NAMES.items()},
        }
        for left, right in itertools.product(range(number), repeat=2)
    ]


def _array(values: list[Any], number: int) -> list[Any] | None:
    """None, empty, and longer and longer ones, of which some have a null."""
    return None if number == 0 else values[number : number + number - 1] + values[:1] * (number % 2)


def expressions() -> Iterator[str]:
    """Yield all operators and functions on all types."""
    for left, right in itertools.product(_NAMES.values(), repeat=2):
        yield from (f"l{left} {operator} r{right}" for operator in _OPERATORS)
        yield from (f"{function}(l{left}, r{right})" for function in _OF_TWO)
        columns = {"left": f"l{left}", "right": f"r{right}"}
        yield from (shape.format(**columns) for shape in _SHAPES_OF_TWO)
    for name in _NAMES.values():
        yield from (shape.replace("{}", f"l{name}") for shape in _OF_ONE)
        yield f"size(a{name})"


def expressions_of_parts() -> tuple[ColumnTypes, tuple[str, ...]]:
    """Return the expressions on parts of arrays, maps and texts, and the types of their columns."""
    return {name: parse_type(type_) for name, type_ in _ELEMENT_TYPES.items()}, _OF_PARTS


def test_operators_agree_with_spark_on_type_pairs(spark: SparkSession) -> None:
    read = {text: typed for text in expressions() if (typed := read_expression(text, TYPES)) is not None}
    assert len(read) > 1000
    _assert_agreement(spark, dict(share_of(read.items())), rows(), _COLUMNS)


def test_element_access_agrees_with_spark(spark: SparkSession) -> None:
    types, texts = expressions_of_parts()
    read = {text: read_expression(text, types) for text in texts}
    assert [text for text, typed in read.items() if typed is None] == []
    base_rows = [{name: values[at] for name, values in _ELEMENTS.items() if name != "n"} for at in range(7)]
    given = [{**row, "n": n} for row, n in itertools.product(base_rows, _ELEMENTS["n"])]
    _assert_agreement(spark, {t: typed for t, typed in read.items() if typed}, given, _ELEMENT_TYPES)


def _assert_agreement(
    spark: SparkSession, read: dict[str, Typed], given: list[dict[str, Any]], columns: dict[str, str]
) -> None:
    """Require the same types and values, and failures at the same rows, in as few jobs as memory allows."""
    session = _session_for_few_rows(spark)
    texts = iter(read.items())
    while part := dict(itertools.islice(texts, _EXPRESSIONS_PER_JOB)):
        _assert_part_agrees(session, part, given, columns)


def _assert_part_agrees(
    spark: SparkSession, read: dict[str, Typed], given: list[dict[str, Any]], columns: dict[str, str]
) -> None:
    frame = spark.createDataFrame(given, ", ".join(f"{name} {type_}" for name, type_ in columns.items()))
    tried = frame.coalesce(1).select(*[_tried(spark, text).alias(f"e{at}") for at, text in enumerate(read)])
    types = [field.dataType[0].dataType.simpleString() for field in tried.schema]
    other_types = [
        (text, theirs, typed.type and typed.type.text)
        for (text, typed), theirs in zip(read.items(), types, strict=True)
        if typed.type is None or typed.type.text != theirs
    ]
    assert other_types == []
    results = zip(given, tried.collect(), strict=True)
    wrong = [
        (text, {name: row[name] for name in columns if name in text}, result, ours)
        for row, of_row in results
        for (text, typed), result in zip(read.items(), of_row, strict=True)
        if not _same(ours := _outcome(typed.tree, row), result)
    ]
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
    """Return the value in a tuple, or None if the expression fails."""
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
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)  # also the sign of zero, which sinks write
    return bool(left == right) and (left is None) is (right is None)
