"""Every case, whole and cut: after each record, and in two random ways.

The cases of the sample pipelines, of several stages, and those that Kafka Streams itself produced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.spark.cases import differences
from tidegate.yaml.cases import load_cases

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
CASES = [(path, number) for path in FILES for number in range(len(load_cases(path)))]


@pytest.mark.parametrize(
    ("path", "number"), CASES, ids=[f"{path.parent.name}/{path.stem}-{number}" for path, number in CASES]
)
def test_case_gives_its_expectation_however_cut(spark: SparkSession, path: Path, number: int) -> None:
    assert differences(spark, load_cases(path)[number], cuts=2, seed=1) == []
