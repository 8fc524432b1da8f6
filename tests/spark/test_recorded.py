"""Kafka's timestamp of the record that triggers an emission, through Spark and several stages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import reading_of
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SOURCE = {
    "topics": ["in"],
    "format": "json",
    "columns": "id bigint, n int, at bigint",
    "key": ["id"],
    "timestamp": "at",
}
LIMITED = {
    "name": "limited",
    "from": "source",
    "select": {"n": "n"},
    "emit": {"on": "time_limit", "after": "5s", "clock": "stream", "buffer": {"max_records": 9}},
}
ALL = {"name": "all", "from": "totals", "key": ["odd"], "reduce": {"last": "last(total)"}}
FOLLOWING = {"name": "following", "from": "limited", "reduce": {"n": "sum(n)"}}


def _pipeline(total: str, deduplicate: Any) -> Pipeline:
    totals = {"name": "totals", "reduce": {"total": total, "odd": "last(id % 2)"}}
    stages = [totals, LIMITED, ALL, FOLLOWING]
    sinks = [
        {"kind": "kafka", "topic": stage["name"], "stage": stage["name"], "timestamp": "record"}
        for stage in stages
    ]
    written = [{"emit": {"on": "update"}, **stage} for stage in stages]
    source = {**SOURCE, "deduplicate": deduplicate}
    return parse_case_pipeline({"pipeline": "r", "source": source, "stages": written, "sinks": sinks}, "case")


def _records() -> list[CaseRecord]:
    """Records whose own time is `at`; Kafka has 50,000 and their offset."""
    values = [f'{{"id": {number % 3}, "n": {number}, "at": {1000 * number}}}' for number in range(12)]
    return [CaseRecord(None, value.encode(), 50_000 + at, "in", 0, at) for at, value in enumerate(values)]


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.parametrize("total", ["sum(n)", "sum(cast(conv(n, 10, 10) as int))"], ids=["read", "spark"])
@pytest.mark.parametrize("deduplicate", ["offset", {"columns": ["n"], "keep": "1h"}], ids=["plain", "filter"])
def test_each_stage_sends_the_timestamp_of_the_record(
    spark: SparkSession, tmp_path: Path, total: str, deduplicate: Any
) -> None:
    pipeline = _pipeline(total, deduplicate)
    assert reading_of(pipeline).selects == (total == "sum(n)" and deduplicate == "offset")
    played, records = Played(spark, pipeline, tmp_path), _records()
    for batch in (records[:5], records[5:]):
        played.batch(batch)
    for stage in ("totals", "all"):
        rows = played.rows("outbox", stage)
        assert sorted(row["recorded"] for row in rows) == [50_000 + at for at in range(12)]
        assert all(row["source"] == f"in/0/{row['recorded'] - 50_000}" for row in rows)
    limited, following = (played.rows("outbox", stage) for stage in ("limited", "following"))
    assert limited
    assert all(row["recorded"] == row["at"] for row in limited)
    assert sorted(row["recorded"] for row in following) == sorted(row["recorded"] for row in limited)
    # a case has no sinks, and the same emissions
    (outcome,) = CaseRun(spark, pipeline, records, stages=["totals"]).run_all([[5]])
    assert len(outcome.stages["totals"]) == 12


def test_outbox_lacks_the_column_without_such_sink(spark: SparkSession, tmp_path: Path) -> None:
    written = {"pipeline": "r", "source": SOURCE, "stages": [LIMITED]}
    played = Played(spark, parse_case_pipeline(written, "case"), tmp_path)
    played.batch(_records())
    assert all("recorded" not in row for row in played.rows("outbox", "limited"))
