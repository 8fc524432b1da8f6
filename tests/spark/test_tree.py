"""A tree of stages: one job for all branches, each of which gives what it gives in a pipeline of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.played import Played
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import reading_of
from tidegate.spark.case_parts import Outcome
from tidegate.spark.case_run import CaseRun
from tidegate.spark.source_rows import for_passes
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline
from tidegate.yaml.tree import read_exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = {
    "topics": ["in"],
    "format": "json",
    "columns": "id bigint, city string, n int",
    "key": ["id"],
    "filter": "n < 90",
}
CHANGES = {"name": "changes", "select": {"city": "city", "big": "n > 2"}, "emit": {"on": "change"}}
LIMITED = {
    "name": "limited",
    "from": "source",
    "select": {"n": "n"},
    "filter": "n > 0",
    "emit": {"on": "time_limit", "after": "2s", "buffer": {"max_records": 2}, "clock": "stream"},
}
TOTALS = {"name": "totals", "from": "source", "reduce": {"total": "sum(n)", "most": "max(city)"}}
BY_CITY = {"name": "by_city", "from": "changes", "key": ["city"], "reduce": {"changes": "count(*)"}}
BIG = {"name": "big", "from": "changes", "where": "big", "select": {"big": "big", "town": "upper(city)"}}
OF_LIMITED = {"name": "of_limited", "from": "limited", "reduce": {"sum": "sum(n)"}}
OF_BIG = {"name": "of_big", "from": "big", "reduce": {"towns": "collect_set(town)"}}
STAGES = [CHANGES, LIMITED, TOTALS, BY_CITY, BIG, OF_LIMITED, OF_BIG]
# Spark computes all values of these: tidegate has no `hex` of its own, and no keys of single stages.
IN_SPARK = [*STAGES, {"name": "hexed", "from": "source", "key": ["city"], "reduce": {"last": "last(hex(n))"}}]

ROWS: list[tuple[int | None, str | None, int | None, int]] = [
    *[(1, "rome", 1, 1000), (2, "oslo", 5, 1500), (1, "rome", 3, 2000), (1, "rome", 4, 2500)],
    *[(None, "rome", 1, 2600), (2, None, 0, 3000), (3, "oslo", 95, 3500), (2, "oslo", 1, 4000)],
    *[(1, None, None, 4500), (3, "rome", 7, 6500), (3, "rome", 7, 6600), (1, "oslo", 2, 9000)],
]
"""Each is (id, city, n, timestamp); without city and n it deletes the id."""


def _records() -> list[CaseRecord]:
    records, offsets = [], [0, 0]
    for id_, city, n, timestamp in ROWS:
        value = f'{{"id": {_json(id_)}, "city": {_json(city)}, "n": {_json(n)}}}'.encode()
        payload = None if city is None and n is None else value
        partition = 0 if id_ is None else id_ % 2
        records.append(CaseRecord(_json(id_), payload, timestamp, "in", partition, offsets[partition]))
        offsets[partition] += 1
    return records


def _json(value: Any) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


def _pipeline(stages: list[dict[str, Any]], source: dict[str, Any]) -> Pipeline:
    sinks = [{"kind": "table", "path": f"out/{stage['name']}", "stage": stage["name"]} for stage in stages]
    written = [{"emit": {"on": "update"}, **stage} for stage in stages]
    return parse_case_pipeline(
        {"pipeline": "tree", "source": source, "stages": written, "sinks": sinks}, "case"
    )


def _alone(stages: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the chain from the source to a stage."""
    by_name = {stage["name"]: stage for stage in stages}
    chain = [by_name[name]]
    while chain[0].get("from", "source") != "source":
        chain.insert(0, by_name[chain[0]["from"]])
    return [{key: value for key, value in stage.items() if key != "from"} for stage in chain]


FATES = ("used", "removed", "quarantined", "deduplicated", "filtered", "idempotent-update-skip", "emitted")
Rows = dict[str, list[tuple[Any, ...]]]


def _played(spark: SparkSession, pipeline: Pipeline, root: Path) -> Played:
    """Two batches, each as one job, with a cut before record 5."""
    played, records = Played(spark, pipeline, root), _records()
    played.clocks = {("in", 0): -1, ("in", 1): -1}
    for batch in (records[:5], records[5:]):
        played.batch(batch)
    return played


def _emitted_of(outcome: Outcome, stage: str) -> Rows:
    return {
        key: [(emission.value, emission.timestamp, emission.window, emission.reason) for emission in emitted]
        for key, emitted in outcome.by_key(stage).items()
    }


def _written_of(played: Played, stage: str) -> Rows:
    return {
        key: [(_value(row["text"]), row["timestamp"], None, row["reason"]) for row in rows]
        for key, rows in played.emissions(stage).items()
    }


def _value(text: str | None) -> Any:
    return None if text is None else read_exactly(text)


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.spark
@pytest.mark.parametrize("stages", [STAGES, IN_SPARK], ids=["read", "spark"])
def test_branches_in_one_job_equal_a_case(
    spark: SparkSession, tmp_path: Path, stages: list[dict[str, Any]]
) -> None:
    pipeline = _pipeline(stages, SOURCE)
    assert reading_of(pipeline).selects == (stages is STAGES)
    names = [stage["name"] for stage in stages]
    outcome = CaseRun(spark, pipeline, _records(), stages=names).run_all([[5]])[0]
    played = _played(spark, pipeline, tmp_path)
    for name in names:
        assert _written_of(played, name) == _emitted_of(outcome, name), name
    # The record without an id once, and one without a city for each stage with that key.
    assert len(played.rows("quarantine")) == (2 if stages is STAGES else 3)
    assert {name: played.counts[name] for name in FATES} == {name: outcome.counts[name] for name in FATES}


@pytest.mark.spark
def test_each_branch_gives_what_it_gives_alone(spark: SparkSession) -> None:
    names = [stage["name"] for stage in STAGES]
    (tree,) = CaseRun(spark, _pipeline(STAGES, SOURCE), _records(), stages=names).run_all([[5]])
    for leaf in ("totals", "by_city", "of_limited", "of_big"):
        chain = _alone(STAGES, leaf)
        path = [stage["name"] for stage in chain]
        (alone,) = CaseRun(spark, _pipeline(chain, SOURCE), _records(), stages=path).run_all([[5]])
        for name in path:
            assert _emitted_of(tree, name) == _emitted_of(alone, name), name


def test_unusable_records_go_to_the_first_branch_only() -> None:
    decoded = pa.RecordBatch.from_pydict({"n": [1, 2], "__reason": pa.array([None, "malformed"])})
    (number, (first, times)), *later = for_passes([2, 0, 1], decoded, pa.array([5, 6]))
    assert (number, first, times.to_pylist()) == (2, decoded, [5, 6])
    rest = [(number, rows["n"].to_pylist(), times.to_pylist()) for number, (rows, times) in later]
    assert rest == [(0, [1], [5]), (1, [1], [5])]
