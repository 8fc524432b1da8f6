"""What a batch costs Spark: one job, and a stage of it for each shuffle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.spark.played import Played
from tests.spark.stages import CHANGES, COUNTED
from tidegate.spark.computation import Before
from tidegate.spark.lookups import DeltaVersion
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark import SparkJobInfo
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COSTED = {"name": "costed", "select": {"cost": "quantity * cost"}, "emit": {"on": "change"}}
LIMITED = {
    "name": "limited",
    "from": "source",
    "select": {"quantity": "quantity"},
    "reduce": "latest",
    "emit": {"on": "time_limit", "after": "10s", "buffer": {"max_records": 10}},
}
ALSO_COUNTED = {**COUNTED, "name": "also_counted", "from": "changes"}
ONCE = {"columns": ["id"], "keep": "1h"}


RECORD = CaseRecord(None, b'{"id": 1, "quantity": 2}', 1_000, "in", offset=0)


def _pipeline(*stages: dict[str, Any], lookup: Sequence[dict[str, Any]] = (), **source: Any) -> Any:
    given = {
        "topics": ["in"],
        "format": "json",
        "columns": "id bigint, quantity int",
        "key": ["id"],
        **source,
    }
    file = {"pipeline": "counted_jobs", "source": given, "stages": list(stages), "lookup": list(lookup)}
    return parse_case_pipeline(file, "case")


def _jobs_of(spark: SparkSession, group: str, run: Callable[[], object]) -> list[SparkJobInfo]:
    """Return the jobs that Spark ran for a call."""
    context = spark.sparkContext
    context.setJobGroup(group, "one batch")
    try:
        run()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    return [job for job in jobs if job is not None]


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
    (job,) = _jobs_of(spark, str(tmp_path), lambda: played.batch([RECORD], clock=60_000))
    assert len(job.stageIds) == shuffles + 1


def test_check_of_a_small_table_runs_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "costs")
    write_deltalake(table, pa.table({"id": pa.array([1, 2], pa.int64()), "cost": [3, 5]}))
    pipeline = _pipeline(COSTED, lookup=[{"table": table, "on": ["id"], "columns": ["cost"]}])
    played = Played(spark, pipeline, tmp_path, before=Before(lookups={table: DeltaVersion(table, 0)}))
    jobs = _jobs_of(spark, str(tmp_path), lambda: played.batch([RECORD], clock=60_000))
    stages = [spark.sparkContext.statusTracker().getStageInfo(id_) for job in jobs for id_ in job.stageIds]
    assert sum(stage.numTasks for stage in stages if stage is not None) < 10
    assert [json.loads(row["text"]) for row in played.rows("outbox", "costed")] == [{"cost": 6}]
