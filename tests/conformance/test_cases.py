"""Every case, whole and cut: after each record, and in two random ways.

The cases of the sample pipelines, of several stages, and those that Kafka Streams itself produced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.case_files import cases_in
from tidegate.model.reading import Reading, reading_of
from tidegate.spark import case_run
from tidegate.spark.cases import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SAMPLES = Path(__file__).resolve().parents[2] / "include" / "pipelines" / "cases"
KAFKA_STREAMS = Path(__file__).resolve().parent / "kafka-streams"
STAGES = Path(__file__).resolve().parent / "stages"
FILES = [
    *sorted(SAMPLES.rglob("*.yaml")),
    *sorted(STAGES.glob("*.yaml")),
    *sorted(KAFKA_STREAMS.glob("*.json")),
]
CASES = [(path, number) for path in FILES for number in range(len(cases_in(path)))]


READ = [(path, number) for path, number in CASES if reading_of(cases_in(path)[number].pipeline).selects]
"""The cases whose first stage is computed where records are read."""


IDS = {place: f"{place[0].parent.name}/{place[0].stem}-{place[1]}" for place in CASES}


@pytest.mark.sample(20)
@pytest.mark.parametrize(("path", "number"), CASES, ids=IDS.values())
def test_case_gives_its_expectation_however_cut(spark: SparkSession, path: Path, number: int) -> None:
    assert differences(spark, cases_in(path)[number], cuts=2, seed=1) == []


@pytest.mark.sample(6)
@pytest.mark.parametrize("place", READ, ids=IDS.get)
def test_expressions_in_spark_give_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: tuple[Path, int]
) -> None:
    path, number = place
    monkeypatch.setattr(case_run, "reading_of", lambda _: Reading(obstacle="a test asks for Spark"))
    assert differences(spark, cases_in(path)[number], cuts=0, seed=1) == []


def test_most_cases_need_no_spark_expressions() -> None:
    assert len(READ) > len(CASES) / 2
