"""Aggregate functions give what Spark's functions of the same names give, with the same types."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.model.aggregates import NAMES
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    '{"i": 4, "x": 0.5, "d": "1.25", "b": true, "s": "v"}',
    '{"i": null, "x": null, "d": null, "b": null, "s": null}',
    '{"i": -7, "x": 1e9, "d": "-3.75", "b": true, "s": "u"}',
    '{"i": 4, "x": 1000000000.5, "d": "1.25", "b": false, "s": "v"}',
]
COLUMNS = "i int, x double, d decimal(10,2), b boolean, s string"
ARGUMENTS = {
    "bool_and": "b",
    "bool_or": "b",
    "sum": "ixd",
    "avg": "ixd",
    "variance": "ixd",
    "stddev": "ixd",
    "median": "ixd",
}
CALLS = [
    f"{name}({column})"
    for name in NAMES
    for column in ARGUMENTS.get(name, "ixdbs")
    if not FUNCTIONS[name].chooses and not FUNCTIONS[name].parameter
]
CALLS += ["min_by(s, x)", "max_by(i, x)", "min_by(d, b)", "max_by(x, x) filter (where b)"]
CALLS += ["count(*)", "count(distinct i)", "count(distinct s)", "sum(i) filter (where b)"]
CALLS += ["count(*) filter (where x > 1)", "bool_or(i > 4)"]
CALLS += ["percentile(x, 0.9)", "percentile(d, 0.25) filter (where b)", "percentile(i, 1)"]
CALLS += ["sum(i) / count(*)", "round(avg(x), 3)", "round(avg(d), 1)", "coalesce(min(d), 0) + max(d)"]
CALLS += ["case when count(*) > 3 then max(s) else 'few' end", "sum(i) filter (where b) div 2 - min(i)"]
CALLS += [
    "count(i) / nullif(count(*) - count(s) - 1, 0)",
    "size(collect_set(s)) + 1",
    "bool_or(b) and max(i) > 3",
]


def comparable(value: Any) -> Any:
    """A value as JSON has it; lists of Spark's `collect_set` have no order."""
    if isinstance(value, list):
        return sorted(map(comparable, value), key=str)
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.parametrize("batches", [1, 4])
def test_aggregates_equal_those_of_spark(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    reduce = {f"c{number}": call for number, call in enumerate(CALLS)}
    source = {"topics": ["in"], "format": "json", "columns": COLUMNS}
    stage = {"name": "out", "reduce": reduce, "emit": {"on": "update"}}
    pipeline = parse_case_pipeline({"pipeline": "p", "source": source, "stages": [stage]}, "case")
    records = [CaseRecord("k", row.encode(), 5, "in", offset=offset) for offset, row in enumerate(ROWS)]
    played, size = Played(spark, pipeline, tmp_path), len(records) // batches
    for start in range(0, len(records), size):
        played.batch(records[start : start + size])
    emitted = played.emissions()["k"][-1]["value"]
    rows = spark.createDataFrame([(row,) for row in ROWS], "json string")
    parsed = rows.selectExpr(f"from_json(json, '{COLUMNS}') AS row").selectExpr("row.*")
    (expected,) = parsed.selectExpr(*CALLS).collect()
    differing = {
        call: (emitted[name], of_spark)
        for (name, call), of_spark in zip(reduce.items(), expected, strict=True)
        if not _equal(comparable(emitted[name]), comparable(of_spark))
        # "any value" in Spark: the first and the last of a key are by the order of the log here
        and not call.startswith(("first(", "last("))
    }
    assert not differing


def _equal(emitted: Any, of_spark: Any) -> bool:
    if isinstance(emitted, float) and isinstance(of_spark, float):
        return math.isclose(emitted, of_spark, rel_tol=1e-12)
    return bool(emitted == of_spark)
