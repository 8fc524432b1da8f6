"""Late records as a stream of their own, through Spark: of the source's stages and of a later one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import GivenRecords, Played
from tidegate.model.pipeline import Pipeline
from tidegate.spark.computation import Before
from tidegate.spark.explain import explain_batch
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SOURCE = {
    "topics": ["in"],
    "format": "json",
    "columns": "id bigint, n int, place struct<city:string>",
    "key": ["id"],
}
TENS = {
    "name": "tens",
    "window": {"tumbling": "10s", "grace": "40s"},
    "emit": {"on": "update"},
    "reduce": {"n": "sum(n)"},
}
BURSTS = {"name": "bursts", "from": "source", "window": {"session": "3s"}, "emit": {"on": "update"}}
BURSTS |= {"reduce": {"n": "count(*)"}, "filter": "n < 90"}
BY_N = {"name": "by_n", "from": "tens", "key": ["n"], "window": {"tumbling": "2s"}}
BY_N |= {"reduce": {"ids": "count(*)"}, "emit": {"on": "window_close", "clock": "stream"}}
STAGES: list[dict[str, Any]] = [TENS, BURSTS, BY_N]
TIMES = [1000, 30_000, 2000, 31_000, 3000, 60_000, 29_000, 90_000, 5000, 61_000, 500, 7000]


def _pipeline(on_late: str) -> Pipeline:
    stages = [{**stage, "on_late": on_late} for stage in STAGES]
    ends = [stage["name"] + (".late" if on_late == "emit" else "") for stage in STAGES]
    sinks = [{"kind": "kafka", "topic": name, "stage": name, "with_key": True} for name in ends]
    return parse_case_pipeline({"pipeline": "l", "source": SOURCE, "stages": stages, "sinks": sinks}, "case")


def _records() -> list[CaseRecord]:
    values = [f'{{"id": {at % 2}, "n": {at}, "place": {{"city": "rome"}}}}' for at in range(len(TIMES))]
    return [CaseRecord(None, value.encode(), TIMES[at], "in", 0, at) for at, value in enumerate(values)]


def _played(spark: SparkSession, root: Path, on_late: str, cut: int) -> Played:
    played = Played(spark, _pipeline(on_late), root)
    for batch in (_records()[:cut], _records()[cut:]):
        played.batch(batch)
    return played


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.parametrize("cut", [5, 9])
def test_outboxes_have_what_quarantine_would_get(spark: SparkSession, tmp_path: Path, cut: int) -> None:
    emitted = _played(spark, tmp_path / "emit", "emit", cut)
    quarantined = _played(spark, tmp_path / "quarantine", "quarantine", cut)
    late = {stage["name"]: emitted.rows("outbox", f"{stage['name']}.late") for stage in STAGES}
    assert all(late.values())
    assert emitted.rows("quarantine") == []
    rows = [
        (row["source"], row["timestamp"], row["value"]["lateness"])
        for outbox in late.values()
        for row in outbox
    ]
    assert sorted(rows) == sorted(
        (f"in/0/{row['offset']}", row["timestamp"], int(row["reason"].split()[1]))
        for row in quarantined.rows("quarantine")
    )
    for name, of_stage in late.items():
        assert emitted.counts["late-emitted"] == sum(map(len, late.values()))
        assert sum(computed.counts[f"{name}.late"]["emitted"] for computed in emitted.batches) == len(
            of_stage
        )
    (record,) = [row["value"] for row in late["tens"] if row["source"] == "in/0/8"]
    assert record == {"id": 0, "n": 8, "place": {"city": "rome"}, "lateness": 85_000}
    # The columns of a later stage are those of the emissions that it reads.
    assert set(late["by_n"][0]["value"]) == {"id", "n", "lateness"}


def test_explain_shows_late_records_as_emissions(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, records = _pipeline("emit"), _records()
    played = Played(spark, pipeline, tmp_path)
    played.batch(records)
    given = GivenRecords(tuple(records))
    events = explain_batch(spark, played.planned(played.plans[0], Before()), given, "tens", "0")
    fates = {event.source[2]: event.fate for event in events if event.what == "record"}
    late = [event for event in events if event.stage == "tens.late"]
    assert late
    assert {event.source[2] for event in late} == {at for at, fate in fates.items() if fate == "late"}
    assert {(event.what, event.fate) for event in late} == {("emission", "late")}
    assert all(event.value["lateness"] == 90_000 - (event.timestamp or 0) for event in late)
