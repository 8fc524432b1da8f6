"""The first stage's columns are computed where records are read; repeated values are dropped there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tidegate.errors import RecordFailed
from tidegate.kernel.counts import COMPUTED_TWICE
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import reading_of
from tidegate.spark import batch
from tidegate.spark.computation import Computation
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = {"topics": ["in"], "format": "json", "columns": "id bigint, n int, d int", "key": ["id"]}


def pipeline(select: str = "n > 0", **stage: Any) -> Pipeline:
    written = {"name": "out", "select": {"x": select}, "reduce": "latest", "emit": {"on": "change"}, **stage}
    return parse_case_pipeline({"pipeline": "p", "source": SOURCE, "stages": [written]}, "case")


def record(n: int, offset: int, partition: int = 0, d: int = 1, timestamp: int = 1000) -> CaseRecord:
    payload = f'{{"id": 7, "n": {n}, "d": {d}}}'.encode()
    return CaseRecord(None, payload, timestamp, "in", partition, offset, ())


def values(played: Played) -> list[Any]:
    return [row["value"] and row["value"]["x"] for row in played.emissions().get("7", [])]


@pytest.fixture
def computations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The columns by which each computation drops repetitions, computation after computation."""
    compared: list[Any] = []

    class Noted(Computation):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            compared.extend(stage.compared for stage in self._reading.stages.values())

    monkeypatch.setattr(batch, "Computation", Noted)
    return compared


@pytest.mark.spark
def test_repetitions_count_as_suppressed(
    spark: SparkSession, tmp_path: Path, computations: list[Any]
) -> None:
    played = Played(spark, pipeline(), tmp_path)
    computed = played.batch([record(n, offset) for offset, n in enumerate((1, 2, 3, 0, 0, 5))])
    assert values(played) == [True, False, True]
    assert computations == [("x",)]
    counts = computed.counts["out"]
    assert (counts["used"], counts["idempotent-update-skip"], counts[COMPUTED_TWICE]) == (6, 3, 0)
    assert computed.counts[""]["read"] == 6


@pytest.mark.spark
def test_key_in_two_partitions_is_computed_again(
    spark: SparkSession, tmp_path: Path, computations: list[Any]
) -> None:
    """A value of another partition, between two equal ones by its timestamp, makes the second one count."""
    played = Played(spark, pipeline(), tmp_path)
    between = [
        record(1, 0, timestamp=1000),
        record(1, 1, timestamp=3000),
        record(0, 0, partition=1, timestamp=2000),
    ]
    played.batch(between)
    assert values(played) == [True, False, True]
    assert computations == [("x",), None]
    assert played.before.counts["out"][COMPUTED_TWICE] == 1
    played.batch([record(0, 2)])  # the stream had such a key: no further batch is tried
    assert computations == [("x",), None, None]
    assert played.before.counts["out"][COMPUTED_TWICE] == 1


@pytest.mark.spark
def test_record_without_a_value_is_named(spark: SparkSession, tmp_path: Path) -> None:
    played = Played(spark, pipeline("n / d"), tmp_path)
    with pytest.raises(RecordFailed, match=r"it divides by zero \(the record in\[0\] offset 4\)"):
        played.batch([record(1, 3), record(1, 4, d=0)])


@pytest.mark.spark
def test_where_is_tested_on_computed_columns(spark: SparkSession, tmp_path: Path) -> None:
    played = Played(spark, pipeline("n", where="x < 5 and id = 7"), tmp_path)
    computed = played.batch([record(n, offset) for offset, n in enumerate((1, 9, 9, 1, 2))])
    assert values(played) == [1, 2]
    counts = computed.counts["out"]
    assert (counts["filtered"], counts["idempotent-update-skip"], counts["used"]) == (2, 1, 5)


@pytest.mark.parametrize(
    ("stage", "selects", "drops"),
    [
        ({}, True, True),
        ({"emit": {"on": "update"}}, True, False),
        ({"emit": {"on": "change", "heartbeat": "1h"}}, True, False),
        ({"select": {"x": "hex(n)"}}, False, False),
        ({"where": "hex(x) = 'a'"}, False, False),
        ({"reduce": {"total": "sum(n)"}, "select": None, "window": {"tumbling": "1h"}}, True, False),
    ],
)
def test_pipeline_decides_the_work_of_readers(stage: dict[str, Any], selects: bool, drops: bool) -> None:
    written = {"name": "out", "select": {"x": "n"}, "reduce": "latest", "emit": {"on": "change"}, **stage}
    written = {name: part for name, part in written.items() if part is not None}
    case: dict[str, Any] = {"pipeline": "p", "source": SOURCE, "stages": [written]}
    reading = reading_of(parse_case_pipeline(case, "case"))
    assert (reading.selects, bool(reading.drops)) == (selects, drops)
    assert reading.described.endswith(".")


@pytest.mark.parametrize(
    ("emit", "in_batches"),
    [
        ({"on": "change"}, True),
        ({"on": "time_limit", "after": "1m", "buffer": {"max_records": 5, "when_full": "emit_early"}}, False),
    ],
)
def test_rows_of_unbounded_stages_go_in_row_batches(emit: dict[str, Any], in_batches: bool) -> None:
    assert reading_of(pipeline(emit=emit)).in_batches == in_batches


def test_emissions_that_a_stage_reads_count_as_rows() -> None:
    first = {"name": "out", "select": {"x": "n"}, "reduce": "latest", "emit": {"on": "change"}}
    second = {"name": "sums", "reduce": {"total": "sum(x)"}, "emit": {"on": "update"}}
    reading = reading_of(
        parse_case_pipeline({"pipeline": "p", "source": SOURCE, "stages": [first, second]}, "case")
    )
    assert reading.forwarded == ("out",)


def test_plan_says_what_only_spark_computes() -> None:
    assert reading_of(pipeline("hex(n)")).described == (
        "Spark computes the first stage's columns: `hex(n)` is not among the expressions of a condition."
    )
