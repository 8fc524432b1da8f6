"""`filter`, in each of the three places that test it, against the same records of a key that nobody reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.played import GivenRecords, Played
from tidegate.errors import RecordFailed
from tidegate.model.pipeline import Pipeline
from tidegate.spark.case_run import CaseRun
from tidegate.spark.explain import explain_batch
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = {"topics": ["in"], "format": "json", "columns": "k string, n int", "key": ["k"]}
BY_READER, BY_SPARK = "n > 1", "cast(hex(n) as int) > 1"
PLACES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "source": ({"filter": BY_READER}, {}),
    "stage, tested by the reader": ({}, {"filter": BY_READER}),
    "stage, tested by Spark": ({}, {"filter": BY_SPARK}),
}
TOTAL = {"total": "sum(n)"}
STAGES: dict[str, dict[str, Any]] = {
    "change": {"select": {"n": "n"}, "emit": {"on": "change"}},
    "update": {"reduce": TOTAL, "emit": {"on": "update"}},
    "window": {
        "reduce": TOTAL,
        "window": {"tumbling": "10ms", "grace": "2ms"},
        "emit": {"on": "window_close", "clock": "stream"},
    },
    "time limit": {"select": {"n": "n"}, "emit": {"on": "time_limit", "after": "7ms", "clock": "stream"}},
}
UNREAD = "unread"


def made(stage: dict[str, Any], *later: dict[str, Any], **source: Any) -> Pipeline:
    stages = [{"name": f"s{number}", **part} for number, part in enumerate([stage, *later])]
    return parse_case_pipeline({"pipeline": "p", "source": SOURCE | source, "stages": stages}, "case")


def record(key: str | None, n: int | None, timestamp: int, offset: int) -> CaseRecord:
    value = None if n is None else json.dumps({"k": key, "n": n}).encode()
    return CaseRecord(key, value, timestamp, "in", offset=offset)


values = st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 4), st.integers(0, 40))


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", STAGES)
@given(given_values=st.lists(values, max_size=12), cut=st.integers(0, 12))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_removed_records_only_advance_time(
    spark: SparkSession, name: str, place: str, given_values: list[tuple[str, int | None, int]], cut: int
) -> None:
    of_source, of_stage = PLACES[place]
    records = [record(*value, offset) for offset, value in enumerate(given_values)]
    # tombstones are deletions, and no filter removes them
    unread = [
        record(UNREAD if n is not None and n <= 1 else key, n, timestamp, offset)
        for offset, (key, n, timestamp) in enumerate(given_values)
    ]
    filtered = CaseRun(spark, made(STAGES[name] | of_stage, **of_source), records).run_all([[], [cut]])
    whole = CaseRun(spark, made(STAGES[name]), unread).run_all()[0]
    expected = {key: rows for key, rows in whole.by_key().items() if key != UNREAD}
    for outcome in filtered:
        assert outcome.error is None
        assert outcome.by_key() == expected
        assert outcome.counts["removed"] == sum(n is not None and n <= 1 for _, n, _ in given_values)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sample(1)
def test_batch_accounts_for_removed_records(spark: SparkSession, tmp_path: Path, place: str) -> None:
    of_source, of_stage = PLACES[place]
    played = Played(spark, made(STAGES["change"] | of_stage, **of_source), tmp_path)
    computed = played.batch([record("a", n, 5, offset) for offset, n in enumerate((1, 2, 0, 2, 3))])
    assert [row["value"]["n"] for row in played.emissions()["a"]] == [2, 3]
    assert (computed.counts[""]["read"], computed.counts[""]["removed"]) == (5, 2)
    assert (computed.counts["s0"]["used"], computed.counts["s0"]["removed"]) == (3, 2)


def test_later_stage_removes_emissions_before_its_state(spark: SparkSession, tmp_path: Path) -> None:
    later = {"filter": "total > 3", "reduce": {"most": "min(total)"}, "emit": {"on": "update"}}
    played = Played(spark, made(STAGES["update"], later), tmp_path)
    computed = played.batch([record("a", n, 5, offset) for offset, n in enumerate((1, 2, 3, 4))])
    assert [row["value"]["most"] for row in played.emissions()["a"]] == [6, 6]
    assert (computed.counts["s1"]["removed"], computed.counts[""]["removed"]) == (2, 0)


def test_removed_emission_advances_time_of_later_stages(spark: SparkSession) -> None:
    """The second stage's window closes by an emission that its filter removes."""
    later = {**STAGES["window"], "reduce": {"most": "max(total)"}, "filter": "total < 9"}
    records = [record("a", 1, 3, 0), record("a", 8, 30, 1)]
    outcome = CaseRun(spark, made(STAGES["update"], later), records).run_all()[0]
    assert [(key, rows[0].value) for key, rows in outcome.by_key().items()] == [("a", {"most": 1})]


def test_source_filter_comes_before_repetitions(spark: SparkSession, tmp_path: Path) -> None:
    """A removed record is not the first one of its value."""
    deduplicate = {"columns": ["k"], "keep": "1h"}
    pipeline = made(STAGES["change"], filter=BY_READER, deduplicate=deduplicate)
    computed = Played(spark, pipeline, tmp_path).batch(
        [record("a", n, 5, offset) for offset, n in enumerate((1, 2, 3))]
    )
    counts = computed.counts[""]
    assert (counts["read"], counts["removed"], counts["deduplicated"]) == (3, 1, 1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sample(1)
def test_select_is_not_computed_of_removed_records(spark: SparkSession, tmp_path: Path, place: str) -> None:
    of_source, of_stage = PLACES[place]
    stage = {"select": {"x": "10 div (n - 1)"}, "emit": {"on": "change"}, **of_stage}
    played = Played(spark, made(stage, **of_source), tmp_path)
    played.batch([record("a", 1, 5, 0), record("a", 2, 5, 1)])
    assert [row["value"]["x"] for row in played.emissions()["a"]] == [10]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("1 / n > 0.5", r"it divides by zero \(the record in\[0\] offset 1\)"),
        ("1 / cast(hex(n) as int) > 0.5", r"DIVIDE_BY_ZERO.*\(the record in\[0\] offset 1\)"),
    ],
)
def test_filter_without_a_result_fails_the_batch(
    spark: SparkSession, tmp_path: Path, condition: str, says: str
) -> None:
    played = Played(spark, made(STAGES["change"] | {"filter": condition}), tmp_path)
    with pytest.raises(RecordFailed, match=says):
        played.batch([record("a", 1, 5, 0), record("a", 0, 5, 1)])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sample(1)
def test_explanation_shows_a_removed_record(spark: SparkSession, tmp_path: Path, place: str) -> None:
    of_source, of_stage = PLACES[place]
    played = Played(spark, made(STAGES["change"] | of_stage, **of_source), tmp_path)
    before, records = played.before, [record("a", n, 5, offset) for offset, n in enumerate((1, 2))]
    played.batch(records)
    source = GivenRecords(tuple(records))
    events = explain_batch(spark, played.planned(played.plans[-1], before), source, None, "a")
    assert [(event.what, event.fate) for event in events] == [
        *(("record", "removed"), ("record", "new"), ("emission", "new"))
    ]
