"""Records that together are larger than the memory of a task: from the reader through Spark to the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.spark.played import ALWAYS_BELIEVED, Played
from tests.spark.stages import CHANGES
from tidegate.formats import Records
from tidegate.kafka.records import Slice
from tidegate.ledger.records import OffsetRange, Plan, Stream
from tidegate.spark.batch import compute_batch
from tidegate.spark.computation import Before, Computed
from tidegate.spark.source import RecordSlice
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MB = 1_000_000
TOTAL_BYTES = 600 * MB
"""More than half of what Spark has by default: a buffer for all of it, doubled as it grows, is too large."""
BLOCK_BYTES = 10 * MB


@dataclass(frozen=True)
class Wide:
    """A source of `number` unreadable records of the same size."""

    number: int
    bytes_each: int

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        del timed, cores
        return [WideSlice(Slice("in", 0, 0, self.number), self.bytes_each)]


@dataclass(frozen=True)
class WideSlice:
    """A slice that yields blocks of the size in which Kafka's records come."""

    range: Slice
    bytes_each: int

    def blocks(self) -> Iterator[Records]:
        step = BLOCK_BYTES // self.bytes_each
        value = b"{" * self.bytes_each
        for first in range(0, self.range.end, step):
            offsets = range(first, min(first + step, self.range.end))
            none: list[None] = [None] * len(offsets)
            yield Records("in", 0, offsets, [1_000] * len(offsets), none, [value] * len(offsets), none)


@pytest.mark.long
@pytest.mark.parametrize("bytes_each", [10 * MB, 40_000])
def test_records_beyond_memory_are_quarantined_whole(
    spark: SparkSession, tmp_path: Path, bytes_each: int
) -> None:
    number = TOTAL_BYTES // bytes_each
    source = {"topics": ["in"], "format": "json", "columns": "id bigint, quantity int", "key": ["id"]}
    case: dict[str, Any] = {"pipeline": "wide", "source": source, "stages": [CHANGES]}
    played = Played(spark, parse_case_pipeline(case, "case"), tmp_path)
    computed = _computed(played, Wide(number, bytes_each))
    counts = computed.counts[""]
    assert (counts["read"], counts["quarantined"]) == (number, number)
    files = [file for file in computed.manifest.files if file.kind == "quarantine"]
    assert sum(file.rows for file in files) == number
    last = pq.ParquetFile(tmp_path / files[-1].path)
    (value,) = last.read_row_group(0, columns=["value"]).column("value").slice(0, 1).to_pylist()
    assert value == b"{" * bytes_each


def _computed(played: Played, source: Wide) -> Computed:
    stream = Stream(played.pipeline.pipeline, played.pipeline.generation)
    ranges = (OffsetRange("in", 0, 0, source.number, is_cut=True),)
    plan = Plan(*(stream, 1, "played", -1, ALWAYS_BELIEVED), *(ranges, {}, "", ""))
    name = "0000000001-000001-00000000"
    return compute_batch(played.spark, played.planned(plan, Before()), source, name)
