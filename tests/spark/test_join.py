"""Joins in the data plane: both sides come to one pass, in batches of files and in the runs of a case."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.kernel.joins_for_tests import JoinRecord, join, naive
from tests.spark.played import Played
from tidegate.model.pipeline import Pipeline
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: tuple[Literal["inner", "left", "outer"], ...] = ("inner", "left", "outer")
WINDOW = {"before": "4ms", "after": "9ms", "grace": "5ms", "clock": "stream"}
COLUMNS = "side string, id string, n bigint"
Emissions = dict[str, list[tuple[Any, ...]]]


def _pipeline() -> Pipeline:
    """Three joins of the same sides."""
    sides = [
        {
            "name": side,
            "from": "source",
            "filter": f"side = '{side}'",
            "select": {"n": "n"},
            "emit": {"on": "update"},
        }
        for side in ("left", "right")
    ]
    joins = [
        {
            "name": f"{kind}_join",
            "join": {"left": "left", "right": "right", "kind": kind, **WINDOW},
            "select": {"l": "left.n", "r": "right.n"},
        }
        for kind in KINDS
    ]
    source = {"topics": ["in"], "format": "json", "columns": COLUMNS, "key": ["id"]}
    sinks = [{"kind": "table", "path": f"out/{kind}", "stage": f"{kind}_join"} for kind in KINDS]
    written = {"pipeline": "joins", "source": source, "stages": [*sides, *joins], "sinks": sinks}
    return parse_case_pipeline(written, "case")


def _history() -> list[JoinRecord]:
    """Records of two partitions, out of order; each key is in one of them."""
    draw, time, records = random.Random(11), 100, []
    for number in range(60):
        time += draw.choice([0, 1, 2, 3, 40])
        key = draw.choice("abcd")
        side: Literal["left", "right"] = draw.choice(["left", "right"])
        records.append(JoinRecord(side, key, number, time - draw.randint(0, 25), "abcd".index(key) % 2))
    return records


def _records(history: list[JoinRecord]) -> list[CaseRecord]:
    offsets, records = [0, 0], []
    for record in history:
        value = json.dumps({"side": record.side, "id": record.key, "n": record.value}).encode()
        place = record.place
        records.append(CaseRecord(record.key, value, record.timestamp, "in", place, offsets[place]))
        offsets[place] += 1
    return records


def _expected(history: list[JoinRecord], kind: str) -> Emissions:
    rule, emissions = join(kind, 4, 9, 5), {}
    for place in (0, 1):
        for row in naive(rule, [record for record in history if record.place == place]):
            value = {"l": row.left, "r": row.right}
            emissions.setdefault(row.key, []).append((value, row.timestamp, row.reason))
    return emissions


@pytest.mark.sample(3, of="a naive model beside Spark")
@pytest.mark.spark
def test_batches_of_files_equal_the_naive_model(spark: SparkSession, tmp_path: Path) -> None:
    history, pipeline = _history(), _pipeline()
    played, records = Played(spark, pipeline, tmp_path), _records(history)
    played.clocks = {("in", 0): -1, ("in", 1): -1}
    for start, end in pairwise([0, 17, 40, 60]):
        played.batch(records[start:end])
    for kind in KINDS:
        written = {
            key: [(json.loads(row["text"]), row["timestamp"], row["reason"]) for row in rows]
            for key, rows in played.emissions(f"{kind}_join").items()
        }
        assert written == _expected(history, kind), kind


@pytest.mark.spark
def test_case_equals_the_naive_model_however_cut(spark: SparkSession) -> None:
    history = _history()
    run = CaseRun(spark, _pipeline(), _records(history), stages=[f"{kind}_join" for kind in KINDS])
    for outcome in run.run_all([[], [10, 30], list(range(1, 60))]):
        assert outcome.error is None
        for kind in KINDS:
            emitted = {
                key: [(emission.value, emission.timestamp, emission.reason) for emission in emissions]
                for key, emissions in outcome.by_key(f"{kind}_join").items()
            }
            assert emitted == _expected(history, kind), kind
