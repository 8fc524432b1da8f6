"""What a batch costs Spark: one job, and a stage of it for each shuffle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tests.spark.stages import CHANGES, COUNTED
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LIMITED = {
    "name": "limited",
    "from": "source",
    "select": {"quantity": "quantity"},
    "reduce": "latest",
    "emit": {"on": "time_limit", "after": "10s", "buffer": {"max_records": 10}},
}
ALSO_COUNTED = {**COUNTED, "name": "also_counted", "from": "changes"}
ONCE = {"columns": ["id"], "keep": "1h"}


def _pipeline(*stages: dict[str, Any], **source: Any) -> Any:
    given = {
        "topics": ["in"],
        "format": "json",
        "columns": "id bigint, quantity int",
        "key": ["id"],
        **source,
    }
    return parse_case_pipeline({"pipeline": "counted_jobs", "source": given, "stages": list(stages)}, "case")


@pytest.mark.parametrize(
    ("stages", "source", "shuffles"),
    [
        pytest.param([CHANGES], {}, 1, id="one stage"),
        pytest.param([CHANGES], {"deduplicate": ONCE}, 2, id="repetitions are dropped before it"),
        pytest.param([LIMITED], {}, 2, id="a bounded buffer, by partition and then by key"),
        pytest.param([CHANGES, COUNTED], {}, 3, id="two stages: by key, by partition, by key"),
        pytest.param([CHANGES, COUNTED, ALSO_COUNTED, LIMITED], {}, 4, id="branches side by side"),
    ],
)
def test_batch_is_one_job_with_planned_shuffles(
    spark: SparkSession, tmp_path: Path, stages: list[dict[str, Any]], source: dict[str, Any], shuffles: int
) -> None:
    played = Played(spark, _pipeline(*stages, **source), tmp_path)
    context = spark.sparkContext
    group = str(tmp_path)
    context.setJobGroup(group, "one batch")
    records = [CaseRecord(None, b'{"id": 1, "quantity": 2}', 1_000, "in", offset=0)]
    try:
        played.batch(records, clock=60_000)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    (job,) = context.statusTracker().getJobIdsForGroup(group)
    info = context.statusTracker().getJobInfo(job)
    assert info is not None
    assert len(info.stageIds) == shuffles + 1
