"""`expected`: the keys of a table in the data plane, with state on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from tests.spark.played import Played
from tidegate.errors import PipelineInvalid
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
TABLE = "devices/current"
MINUTE = 60_000


@dataclass(frozen=True)
class Devices:
    """A table as the plan of a batch pins it."""

    ids: tuple[int | None, ...]
    column: str = "id"

    parts: ClassVar[int] = 1

    def open(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(pa.table({self.column: pa.array(self.ids, pa.int32())}))


def record(offset: int, device: int, timestamp: int) -> CaseRecord:
    value = json.dumps({"site": "x", "device": device, "level": 7}).encode()
    return CaseRecord(None, value, timestamp, "in", offset=offset)


def played(spark: SparkSession, folder: Path) -> Played:
    stage = {"name": "silent", "select": {"level": "level"}, "emit": {"on": "quiet", "after": "10m"}}
    document = {
        "pipeline": "silence",
        "source": {
            "topics": ["in"],
            "format": "json",
            "columns": "site string, device bigint, level int",
            "key": ["device"],
        },
        "stages": [{**stage, "expected": {"table": TABLE, "key": ["id"]}}],
        "sinks": [{"kind": "kafka", "topic": "out"}],
    }
    return Played(spark, parse_case_pipeline(document, "case"), folder)


def test_keys_of_a_table_are_reported_once(spark: SparkSession, tmp_path: Path) -> None:
    stream = played(spark, tmp_path)

    def batch(table: Any, changed: bool, *records: CaseRecord, clock: int) -> Any:
        tables: Any = {TABLE: table}
        stream.before = replace(
            stream.before, lookups=tables, changed_tables={TABLE} if changed else frozenset()
        )
        return stream.batch(records, clock * MINUTE)

    with pytest.raises(PipelineInvalid, match="has no column `id`"):
        batch(Devices((1,), "other"), True, record(0, 1, MINUTE), clock=5)
    first = batch(Devices((1, 2, 2, 3, None)), True, record(0, 1, MINUTE), clock=5)
    assert first.counts["silent"]["expected"] == 3
    assert first.counts[""]["read"] == first.counts[""]["used"] == 1
    batch(Devices((1, 2)), True, clock=6)
    batch(Devices((1, 2)), False, clock=15)
    batch(Devices((1, 2)), True, clock=40)
    assert {
        key: [(row["text"], row["reason"], row["timestamp"], row["at"], row["source"]) for row in rows]
        for key, rows in stream.emissions().items()
    } == {
        "1": [('{"level":7}', "quiet", MINUTE, 11 * MINUTE, "in/0/0")],
        "2": [('{"level":null}', "absent", MINUTE, 11 * MINUTE, "#devices.current/0/1")],
    }
