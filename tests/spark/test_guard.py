"""Records on which an expression fails that Spark computes: quarantined, or named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import GivenRecords, Played
from tidegate.errors import RecordFailed
from tidegate.model.pipeline import Pipeline
from tidegate.spark import guard
from tidegate.spark.explain import explain_batch
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

IN_SPARK = "cast(hex(n) as int)"
"""`n`, as an expression that tidegate does not compile."""
FIRST = {"name": "first", "select": {"n": "n"}, "emit": {"on": "update"}}
COLUMNS = {
    "select": {
        "n": "n",
        "plain": f"100 div {IN_SPARK}",
        "with_a_common_part": f"100 div {IN_SPARK} + 1",
        "rewritten_by_spark": f"nullif(100 div ({IN_SPARK} - 1), 1)",
        "never_null": f"coalesce(100 div ({IN_SPARK} - 2), 0)",
        "map": f"map('a', 100 div ({IN_SPARK} - 3))",
    }
}
"""Each fails on another number: 0, 1, 2 and 3."""
CONDITIONS = {
    "filter": f"100 div {IN_SPARK} > 1 and 100 div ({IN_SPARK} - 1) > -999",
    "select": {"n": "n"},
    "where": "100 div (cast(hex(n) as int) - 2) > -999 and 100 div (cast(hex(n) as int) - 3) > -999",
}
ARGUMENTS = {
    "reduce": {
        "n": f"sum(100 div {IN_SPARK} + 100 div ({IN_SPARK} - 1))",
        "m": f"sum(100 div ({IN_SPARK} - 2) + 100 div ({IN_SPARK} - 3))",
    }
}
PLAIN = {"select": {"x": f"100 div {IN_SPARK}"}}


def made(*stages: Mapping[str, Any], **source: Any) -> Pipeline:
    written = {"topics": ["in"], "format": "json", "columns": "k string, n int", "key": ["k"], **source}
    return parse_case_pipeline({"pipeline": "p", "source": written, "stages": list(stages)}, "case")


def stage(on_error: str, of_stage: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "out", "emit": {"on": "update"}, "on_error": on_error, **of_stage}


def records(*numbers: int) -> list[CaseRecord]:
    payloads = [json.dumps({"k": "a", "n": n}).encode() for n in numbers]
    return [CaseRecord(None, payload, 5, "in", 0, offset, ()) for offset, payload in enumerate(payloads)]


@pytest.mark.parametrize(
    ("of_stage", "before"),
    [(COLUMNS, []), (CONDITIONS, []), (ARGUMENTS, [FIRST])],
    ids=["columns", "conditions", "arguments of aggregates in a later stage"],
)
@pytest.mark.sample(1)
def test_records_that_fail_are_quarantined_whole(
    spark: SparkSession, tmp_path: Path, of_stage: Mapping[str, Any], before: list[Any]
) -> None:
    played = Played(spark, made(*before, stage("quarantine", of_stage)), tmp_path)
    counts = played.batch(records(4, 0, 1, 5, 2, 3, 6)).counts["out"]
    assert (counts["used"], counts["quarantined"], counts["emitted"]) == (3, 4, 3)
    rows = sorted(played.rows("quarantine"), key=lambda row: row["offset"])
    assert [(row["offset"], json.loads(row["value"])["n"]) for row in rows] == [
        (1, 0),
        (2, 1),
        (4, 2),
        (5, 3),
    ]
    assert {row["reason"][:16] for row in rows} == {"record_failed: `"}


@pytest.mark.parametrize("later", [False, True], ids=["of records", "of emissions"])
@pytest.mark.sample(1)
def test_stage_that_stops_names_the_record(spark: SparkSession, tmp_path: Path, later: bool) -> None:
    before = [FIRST] if later else []
    played = Played(spark, made(*before, stage("stop", PLAIN)), tmp_path)
    where = "In the stage `out`: " if later else ""
    says = rf"^{where}`.*DIVIDE_BY_ZERO.* \(the record in\[0\] offset 1\).*on_error: quarantine.*--offset 1"
    with pytest.raises(RecordFailed, match=says):
        played.batch(records(4, 0, 5, 0, 2))


def test_message_is_that_of_the_failing_expression(spark: SparkSession, tmp_path: Path) -> None:
    """Spark names one of two expressions that fail, and a record that the other fails on may come first."""
    select = {"x": f"100 div {IN_SPARK}", "y": "case when n = 4 then cast(concat('x', n) as int) end"}
    played = Played(spark, made(stage("stop", {"select": select})), tmp_path)
    with pytest.raises(RecordFailed) as raised:
        played.batch(records(4, 0, 5, 0, 2))
    assert ("offset 0" in raised.value.what) == ("case when" in raised.value.what)


def test_good_batch_is_computed_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards: list[Any] = []
    made_guard = guard.Guard
    monkeypatch.setattr(guard, "Guard", lambda *a, **k: guards.append(1) or made_guard(*a, **k))
    played = Played(spark, made(stage("quarantine", PLAIN)), tmp_path)
    played.batch(records(4))
    assert guards == []


def test_only_the_element_that_fails_is_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    source = {"columns": "k string, n array<int>", "explode": "n"}
    for number, sql in enumerate((PLAIN["select"]["x"], "100 div n")):
        pipeline = made(stage("quarantine", {"select": {"x": sql}}), **source)
        played = Played(spark, pipeline, tmp_path / str(number))
        payload = json.dumps({"k": "a", "n": [4, 0, 5, 0, 2]}).encode()
        played.batch([CaseRecord(None, payload, 5, "in", 0, 0, ())])
        assert [row["value"]["x"] for row in played.emissions()["a"]] == [25, 20, 50]
        rows = sorted(played.rows("quarantine"), key=lambda row: row["part"])
        assert [(row["part"], row["value"]) for row in rows] == [(1, payload), (3, payload)]


def test_compiled_expression_quarantines_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    by_reader = {
        "filter": "100 div n > 1",
        "select": {"x": "100 div (n - 5)"},
        "where": "100 div (x + 100) > 0",
    }
    in_spark = {
        name: sql if isinstance(sql, dict) else f"{sql} and hex(n) <> ''" for name, sql in by_reader.items()
    }
    in_spark["where"] = "100 div (x + 100) > 0 and hex(x) <> ''"
    outcomes = []
    for number, of_stage in enumerate((by_reader, in_spark)):
        played = Played(spark, made(stage("quarantine", of_stage)), tmp_path / str(number))
        computed = played.batch(records(4, 0, 5, 0, 2))
        rows = played.rows("quarantine")
        assert all(row["reason"].startswith("record_failed: `100 div") for row in rows)
        places = sorted(row["offset"] for row in rows)
        outcomes.append((places, [row["text"] for row in played.emissions()["a"]], computed.counts["out"]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [0, 1, 2, 3]


def test_explanation_shows_why_a_record_is_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    played = Played(spark, made(stage("quarantine", PLAIN)), tmp_path)
    given = [CaseRecord("a", record.payload, 5, "in", 0, record.offset, ()) for record in records(4, 0, 5, 0)]
    before = played.before
    played.batch(given)
    plan, source = played.plans[0], GivenRecords(tuple(given))
    events = explain_batch(spark, played.planned(plan, before), source, None, "a")
    assert sorted(event.source[2] for event in events if event.what == "quarantined") == [1, 3]


def test_expressions_with_one_message_are_all_tested(spark: SparkSession, tmp_path: Path) -> None:
    select = {"a": "100 div n", "b": "if(n = 0, null, 100 div n)", "c": "reverse(k)"}
    played = Played(spark, made(stage("stop", {"select": select})), tmp_path)
    with pytest.raises(RecordFailed, match=r"the record in\[0\] offset 0"):
        played.batch(records(0, 1))
