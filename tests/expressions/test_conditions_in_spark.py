"""Conditions have the results that Spark has, on rows of every kind."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.expressions.conditions import COLUMNS, RandomCondition, random_row
from tidegate.expressions import Condition
from tidegate.model.columns import parse_columns, parse_type
from tidegate.model.condition import parse_condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TYPES = {column.name: parse_type(column.type) for column in parse_columns(COLUMNS)[0]}


WRITTEN = [
    "a > 1 and not p or q is null",
    "not a = b and p",
    "- a * 2 < -3 % 2",
    "a - b - 1 = 0",
    "a - -1 = 0",
    "x * 2 / 4 = x / 2",
    "0.1 + 0.2 = 0.3",
    "d * 3 = 0.30",
    "a / 2 = 0.5",
    "isnan(x) and x > 1e300 and x = x",
    "x in (0.0, null)",
    "a not in (1, null)",
    "-0.0D = 0.0D",
    "least(x, y) <=> greatest(x, y)",
    "9007199254740993 = 9007199254740992.0D",
    "cast(9007199254740993 as double) = 9007199254740992",
    "9223372036854775807 > 9223372036854775806",
    "s < t",
    "'Z' < 'a' and 'a' < 'ä' and 'ä' < '😀'",
    "length(«'😀'») = 1",
    "'\\ud83d\\ude00' = '😀'",
    "'\\101\\303' = concat(«'A'», '303')",
    "'\\x' = 'x' and '\\t' <> 't'",
    "'a\\%b' like 'a\\\\\\\\\\%b'",
    "'50%' like '50\\%'",
    "'a\\nb' like 'a_b' and 'a\\nb' like '%b'",
    "s like '%!_%' escape '!'",
    "lower(«'ÄẞİaΣ'») = 'äßi̇aς'",
    "upper(«'straße'») = 'STRASSE'",
    "trim(«'\\t a '») = '\\t a'",
    "cast(x as boolean)",
    "cast(-7.9D as bigint) = -7",
    "floor(«-0.5D») = -1 and ceil(«-0.5») = 0 and floor(«1e30») = 9223372036854775807",
    "floor(x) = ceil(x)",
    "round(«2.5D») = 3 and round(«-2.5») = -3 and round(«-0.25D», 1) = -0.3 and round(«1.005D», 2) = 1.01",
    "round(«1e300D», 2) = 1e300D and isnan(round(sqrt(«-1D»), 1)) and round(«7», 1) = 7",
    "round(x) = floor(x + 0.5) and round(x, 1) >= 0",
    "isnan(sqrt(«-1»))",
    "sign(«-0.0D») = 0",
    "-7 % 3 = -1 and 7 % -3 = 1 and -7.5D % 2 = -1.5",
    "null <=> null and not (null <=> 1)",
    "(null and false) is not null",
    "coalesce(null, a, 0) >= 0",
    "nvl2(a, 1, 2) = if(a is null, 2, 1)",
    "case a when null then true else false end",
    "size(xs) = 0",
    "n.deep.x = x",
    "N.DEEP.X <=> n.deep.x",
    "p is true or p is not true",
    "p = q",
    "p > q",
    "f = 0.5 and f < a",
    "s = 'a' and s in ('a', 'b')",
    "i + a > 2147483647",
    "x between y and 1",
    "x is not distinct from y",
]


def depending(text: str) -> str:
    """Replace each «constant» by an expression that depends on the record."""
    return re.sub("«(.*?)»", r"if(a is null, \1, \1)", text)


def outcomes(condition: Condition, rows: list[dict[str, Any]]) -> list[bool | None]:
    return [condition.evaluate(row) for row in rows]


def test_random_conditions_over_random_rows_agree_with_spark(spark: SparkSession) -> None:
    source = random.Random(20260131)
    rows = [random_row(source) for _ in range(60)]
    made = [RandomCondition(source).boolean(source.randint(1, 4)) for _ in range(500)]
    conditions = {text: condition for text in made if (condition := parse_condition(text, TYPES)[0])}
    assert len(conditions) > 250, "most of what is made can be read"
    _agree(spark, conditions, rows)


def test_what_is_written_by_hand_agrees_with_spark(spark: SparkSession) -> None:
    source = random.Random(7)
    rows = [random_row(source) for _ in range(40)]
    conditions = {}
    for text in map(depending, WRITTEN):
        condition, faults = parse_condition(text, TYPES)
        assert condition is not None, (text, faults)
        conditions[text] = condition
    _agree(spark, conditions, rows)


def _agree(spark: SparkSession, conditions: dict[str, Condition], rows: list[dict[str, Any]]) -> None:
    """One job for all of them."""
    from pyspark.sql import functions as F  # noqa: N812

    numbered = [{**row, "at": at} for at, row in enumerate(rows)]
    frame = spark.createDataFrame(numbered, f"at int, {COLUMNS}").coalesce(1)
    columns = [F.expr(text).cast("boolean").alias(f"c{at}") for at, text in enumerate(conditions)]
    results = [row[1:] for row in sorted(frame.select("at", *columns).collect())]
    wrong = [
        (text, row, theirs, ours)
        for at, (text, condition) in enumerate(conditions.items())
        for row, theirs, ours in zip(
            rows, [row[at] for row in results], outcomes(condition, rows), strict=True
        )
        if theirs is not ours
    ]
    assert wrong[:5] == []
