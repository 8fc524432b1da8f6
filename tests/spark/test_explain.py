"""Explanations: a batch decided again, for one key, with the state that the batches before have left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import GivenRecords, Played
from tests.spark.stages import CHANGES, COUNTED
from tidegate.errors import OffsetsLost
from tidegate.spark.case_run import CaseRun
from tidegate.spark.computation import Before
from tidegate.spark.explain import TraceEvent, explain_batch
from tidegate.yaml.cases import CaseRecord, Tick
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = {"topics": ["in"], "format": "json", "columns": "id bigint, quantity int", "key": ["id"]}


def _record(offset: int, key: int, quantity: Any) -> CaseRecord:
    value = b'{"id": %d, "quantity": %s}' % (key, str(quantity).encode())
    return CaseRecord(str(key), value, 1_000 + offset, "in", offset=offset)


@pytest.fixture
def played(spark: SparkSession, tmp_path: Path) -> Played:
    pipeline = parse_case_pipeline(
        {"pipeline": "explained", "source": SOURCE, "stages": [CHANGES, COUNTED]}, "case"
    )
    return Played(spark, pipeline, tmp_path)


def _traces(played: Played, records: list[CaseRecord], stage: str | None = None) -> list[TraceEvent]:
    before, clocks = played.before, dict(played.clocks)
    played.batch(records, clock=60_000)
    files = sorted((played.root).rglob("*"))
    plan = played.plans[-1]
    played.clocks = clocks
    given = GivenRecords(tuple(records))
    events = explain_batch(played.spark, played.planned(plan, before), given, stage, "1")
    assert sorted((played.root).rglob("*")) == files, "an explanation writes nothing"
    return events


def test_key_history_is_shown_in_each_stage(played: Played) -> None:
    played.batch([_record(0, 1, 5), _record(1, 2, 5)], clock=50_000)
    events = _traces(played, [_record(2, 1, 4), _record(3, 2, 0), _record(4, 1, 0)])
    assert [(event.stage, event.what, event.fate, event.value) for event in events] == [
        ("changes", "record", "suppressed", {"open": True}),
        ("changes", "record", "changed", {"open": False}),
        ("changes", "emission", "changed", {"open": False}),
        ("counted", "record", "changed", {"changes": 1}),
        ("counted", "emission", "changed", {"changes": 2}),
    ]


def test_explanation_shows_the_previous_value_of_key(played: Played) -> None:
    played.batch([_record(0, 1, 5)], clock=50_000)
    (event,) = _traces(played, [_record(1, 1, 4)], "changes")
    assert [entry["emitted"] for entry in event.previous] == [{"open": True}]


def test_quarantined_record_is_found_by_kafka_key(played: Played) -> None:
    (event,) = _traces(played, [_record(0, 1, '"many"')], "changes")
    assert (event.what, event.source) == ("quarantined", ("in", 0, 0))
    assert event.fate.startswith("malformed")


def test_final_value_that_where_rejects_is_unsent(spark: SparkSession, tmp_path: Path) -> None:
    stage = {"name": "few", "window": {"tumbling": "10s"}, "reduce": {"n": "count(*)"}, "where": "n < 2"}
    stages = [{**stage, "emit": {"on": "window_close"}}]
    pipeline = parse_case_pipeline({"pipeline": "explained", "source": SOURCE, "stages": stages}, "case")
    events = _traces(Played(spark, pipeline, tmp_path), [_record(0, 1, 5), _record(1, 1, 4)])
    assert [(event.what, event.fate, event.value, event.window) for event in events] == [
        ("record", "held", {"n": 1}, None),
        ("record", "held", {"n": 1}, None),
        ("unsent", "filtered", {"n": 2}, (0, 10_000)),
    ]
    inputs = [_record(0, 1, 5), _record(1, 1, 4), Tick(60_000)]
    fates = CaseRun(spark, pipeline, inputs, trace=True).run_all()[0].fates
    assert [(fate.what, fate.fate) for fate in fates] == [(event.what, event.fate) for event in events]


def test_explained_record_counts_as_one(spark: SparkSession) -> None:
    stage = {"name": "s", "reduce": {"n": "count(*)", "total": "sum(v)"}, "emit": {"on": "update"}}
    source = {"topics": ["in"], "format": "json", "columns": "v int"}
    pipeline = parse_case_pipeline({"pipeline": "p", "source": source, "stages": [stage]}, "case")
    record = CaseRecord("k", b'{"v": 7}', 1, "in", offset=0)
    (fate,) = CaseRun(spark, pipeline, [record], trace=True).run_all()[0].fates
    assert fate.value == {"n": 1, "total": 7}
    assert not isinstance(fate.value["n"], bool)


def test_records_that_are_gone_are_reported(played: Played) -> None:
    played.batch([_record(0, 1, 5)], clock=50_000)
    planned = played.planned(played.plans[-1], Before())
    given = GivenRecords((_record(0, 1, 5),))
    with pytest.raises(OffsetsLost, match="only 1 of the 2 records"):
        explain_batch(played.spark, planned, given, None, "1", counted=2)
