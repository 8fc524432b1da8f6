"""Filters and aggregates over several batches: plain SQL of DuckDB over the whole history gives the same."""

from __future__ import annotations

import itertools
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.spark.played import Played
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "store string, q int, price decimal(10,2), weight double, ok boolean"
SOURCE_FILTER, STAGE_FILTER = "ok or q > 6", "q <> 3"
CALLS = {
    "records": "count(*)",
    "priced": "count(price)",
    "kinds": "count(distinct q)",
    "total": "sum(q)",
    "paid": "sum(price)",
    "mean": "avg(weight)",
    "least": "min(price)",
    "most": "max(q)",
    "middle": "median(weight)",
    "spread": "stddev(weight)",
    "var": "variance(q)",
    "every": "bool_and(ok)",
    "some": "bool_or(ok)",
    "cheapest": "min_by(q, price)",
    "heaviest": "max_by(price, weight)",
    "many": "sum(q) filter (where q > 4)",
    "few": "count(*) filter (where ok)",
    "share": "cast(sum(q) as double) / count(*)",
}
IN_SQL = {
    **CALLS,
    # DuckDB's `arg_min` passes over rows whose first argument is null; Spark's and tidegate's does not
    "cheapest": "arg_min_null(q, price)",
    "heaviest": "arg_max_null(price, weight)",
    "var": "var_samp(q)",
}


def drawn(dice: random.Random) -> list[dict[str, Any]]:
    """Return rows. Prices and weights of a store differ, so that one row has the least and one the most."""
    numbers = dice.sample(range(1_000), 60)
    return [
        {
            "store": dice.choice("ab"),
            "q": dice.choice((None, *range(9))),
            "price": None if dice.random() < 0.1 else f"{number / 100:.2f}",
            "weight": None if dice.random() < 0.1 else number / 7,
            "ok": dice.choice((None, True, False)),
        }
        for number in numbers
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12))
def test_filtered_aggregates_equal_those_of_sql(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    rows = drawn(dice)
    source = {
        "topics": ["in"],
        "format": "json",
        "columns": COLUMNS,
        "key": ["store"],
        "filter": SOURCE_FILTER,
    }
    stage = {"name": "out", "filter": STAGE_FILTER, "reduce": CALLS, "emit": {"on": "update"}}
    pipeline = parse_case_pipeline({"pipeline": "p", "source": source, "stages": [stage]}, "case")
    played = Played(spark, pipeline, tmp_path)
    records = [
        CaseRecord(None, json.dumps(row).encode(), 5, "in", offset=offset) for offset, row in enumerate(rows)
    ]
    cuts = [0, *sorted(dice.sample(range(1, len(records)), 2)), len(records)]
    for start, end in itertools.pairwise(cuts):
        played.batch(records[start:end])
    emitted = {key: emissions[-1]["value"] for key, emissions in played.emissions().items()}
    assert emitted
    differing = {
        (key, name): (emitted[key][name], value)
        for key, values in _in_sql(rows).items()
        for name, value in values.items()
        if not _equal(emitted[key][name], value)
    }
    assert not differing


def _in_sql(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    types = COLUMNS.replace("string", "varchar")
    names = [column.split()[0] for column in types.split(", ")]
    with duckdb.connect() as connection:
        connection.execute(f"create table records ({types})")
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"insert into records values ({marks})", [[row[name] for name in names] for row in rows]
        )
        calls = ", ".join(IN_SQL.values())
        results = connection.execute(
            f"select store, {calls} from records where ({SOURCE_FILTER}) and ({STAGE_FILTER}) group by store"
        ).fetchall()
    return {store: dict(zip(IN_SQL, values, strict=True)) for store, *values in results}


def _equal(emitted: Any, in_sql: Any) -> bool:
    if isinstance(emitted, float) and in_sql is not None:
        return math.isclose(emitted, float(in_sql), rel_tol=1e-9)
    if isinstance(in_sql, Decimal) and emitted is not None:
        return Decimal(str(emitted)) == in_sql
    return bool(emitted == in_sql)
