"""What a batch shuffles, writes and reads, counted: as much as it reads and changes, not as there is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.played import ALWAYS_BELIEVED, Played
from tests.spark.stages import CHANGES, COUNTED
from tidegate.formats import Records
from tidegate.kafka.records import Slice
from tidegate.ledger.records import OffsetRange, Plan, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.spark.batch import compute_batch
from tidegate.spark.computation import Computed, PlannedBatch
from tidegate.spark.source import RecordSlice
from tidegate.storage.store import Store
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEW_REPORTS = 12
"""Rows by which tasks report, of one slot and one topic-partition."""


def _pipeline(*stages: dict[str, Any], columns: str = "id bigint, quantity int") -> Pipeline:
    source = {"topics": ["in"], "format": "json", "columns": columns, "key": ["id"]}
    return parse_case_pipeline({"pipeline": "counted", "source": source, "stages": list(stages)}, "case")


def _records(first: int, quantities: list[int], **more: Any) -> list[CaseRecord]:
    """A record of each product, from the offset `first` on."""
    return [
        CaseRecord(
            None,
            json.dumps({"id": number, "quantity": quantity, **more}).encode(),
            1_000 + number,
            "in",
            offset=first + number,
        )
        for number, quantity in enumerate(quantities)
    ]


@dataclass(frozen=True)
class Shuffled:
    """The rows and bytes that went through the shuffles of one job."""

    rows: int
    bytes: int


@pytest.fixture
def shuffled(spark: SparkSession, tmp_path: Path) -> Callable[[Callable[[], object]], Shuffled]:
    """Measures what is called, which runs one job."""
    context: Any = spark.sparkContext

    def measure(call: Callable[[], object]) -> Shuffled:
        context.setJobGroup(str(tmp_path), "measured")
        try:
            call()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        (job,) = context.statusTracker().getJobIdsForGroup(str(tmp_path))
        scala = context._jsc.sc()
        scala.listenerBus().waitUntilEmpty()
        store = scala.statusStore()
        stages = [store.lastStageAttempt(id_) for id_ in context.statusTracker().getJobInfo(job).stageIds]
        return Shuffled(
            sum(stage.shuffleWriteRecords() for stage in stages),
            sum(stage.shuffleWriteBytes() for stage in stages),
        )

    return measure


def test_records_are_shuffled_in_row_batches(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[Callable[[], object]], Shuffled]
) -> None:
    played = Played(spark, _pipeline(CHANGES), tmp_path)
    cost = shuffled(lambda: played.batch(_records(0, [1] * 500), clock=60_000))
    assert 0 < cost.rows <= FEW_REPORTS


def test_rows_of_spark_are_shuffled_once(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[Callable[[], object]], Shuffled]
) -> None:
    computed = {**CHANGES, "select": {"open": "upper(reverse(cast(quantity as string)))"}}
    played = Played(spark, _pipeline(computed), tmp_path)
    cost = shuffled(lambda: played.batch(_records(0, [1] * 500), clock=60_000))
    assert 500 < cost.rows <= 500 + FEW_REPORTS


def test_emissions_are_shuffled_twice(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[Callable[[], object]], Shuffled]
) -> None:
    played = Played(spark, _pipeline(CHANGES, {**COUNTED, "key": ["open"]}), tmp_path)
    played.batch(_records(0, [1] * 500), clock=60_000)
    cost = shuffled(lambda: played.batch(_records(500, [0] * 100 + [2] * 400), clock=120_000))
    assert 2 * 100 < cost.rows <= 2 * 100 + FEW_REPORTS


def test_columns_that_no_stage_names_are_not_shuffled(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[Callable[[], object]], Shuffled]
) -> None:
    columns = "id bigint, quantity int, more string"
    played = Played(spark, _pipeline(CHANGES, columns=columns), tmp_path)
    more = os.urandom(2_000).hex()  # nothing that compresses
    cost = shuffled(lambda: played.batch(_records(0, [1] * 200, more=more), clock=60_000))
    assert cost.bytes < 200 * 100


def test_batch_writes_files_only_for_changes(spark: SparkSession, tmp_path: Path) -> None:
    played = Played(spark, _pipeline(CHANGES), tmp_path)

    def rows_of(computed: Computed) -> dict[str, int]:
        return {file.kind: file.rows for file in computed.manifest.files}

    first = played.batch(_records(0, [1] * 500), clock=60_000)
    same = played.batch(_records(500, [2] * 500), clock=120_000)
    single_change = played.batch(_records(1_000, [3] * 499 + [0]), clock=180_000)
    unusable = CaseRecord(None, b"{no json", 1_000, "in", offset=1_500)
    quarantined = played.batch([unusable], clock=240_000)
    assert [rows_of(computed) for computed in (first, same, single_change, quarantined)] == [
        {"state": 500, "outbox": 500},
        {},
        {"state": 1, "outbox": 1},
        {"quarantine": 1},
    ]
    assert all(len(computed.manifest.files) <= 2 for computed in played.batches)
    assert single_change.manifest.bytes < first.manifest.bytes / 2
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert written == {file.path for computed in played.batches for file in computed.manifest.files}


KEYS = 400_000


@dataclass(frozen=True)
class Numbers:
    """A source of the offsets `first` to `end`, a record of each product in turn, made where it is read."""

    first: int
    end: int
    quantity: int

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        del timed, cores
        return [NumberSlice(Slice("in", 0, self.first, self.end), self.quantity)]


@dataclass(frozen=True)
class NumberSlice:
    range: Slice
    quantity: int

    def blocks(self) -> Iterator[Records]:
        numbers = range(self.range.start, self.range.end)
        none: list[None] = [None] * len(numbers)
        values = [b'{"id": %d, "quantity": %d}' % (number % KEYS, self.quantity) for number in numbers]
        yield Records("in", 0, numbers, [1_000] * len(numbers), none, values, none)


class Meter:
    """A file that notes in another how many bytes were read of it."""

    def __init__(self, file: pa.NativeFile, log: str) -> None:
        self._file, self._log = file, log
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        content = bytes(self._file.read(None if size < 0 else size))
        with Path(self._log).open("a") as log:
            log.write(f"{len(content)}\n")
        return content

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size())

    def close(self) -> None:
        self.closed = True
        self._file.close()


@dataclass(frozen=True)
class MeteredStore(Store):
    """A store whose files are read through a `Meter`, in whichever process."""

    log: str = ""

    def open(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Meter(super().open(path), self.log), mode="r")


def test_small_batch_reads_little_of_a_large_state(spark: SparkSession, tmp_path: Path) -> None:
    played = Played(spark, _pipeline(CHANGES), tmp_path)
    log = tmp_path / "read"
    lake = played.lake
    lake.__dict__["store"] = MeteredStore(str(tmp_path), str(log))

    stream = Stream(played.pipeline.pipeline, played.pipeline.generation)

    def computed(seq: int, source: Numbers) -> Computed:
        plan = Plan(
            *(stream, seq, "played", -1, ALWAYS_BELIEVED),
            *((OffsetRange("in", 0, source.first, source.end, is_cut=True),), {}, "", ""),
        )
        name = f"{seq:010d}-000001-00000000"
        return compute_batch(spark, PlannedBatch(plan, played.pipeline, lake, played.before), source, name)

    first = computed(1, Numbers(0, KEYS, 1))
    state = first.manifest.files_of("state", "changes")
    assert sum(file.rows for file in state) == KEYS
    assert not log.exists()
    played.before = replace(played.before, state={"changes": state}, times=first.times, counts=first.counts)
    second = computed(2, Numbers(KEYS + 7, KEYS + 8, 0))
    assert [(file.kind, file.rows) for file in second.manifest.files] == [("outbox", 1), ("state", 1)]
    read = sum(map(int, log.read_text().split()))
    # one row group of six, the hashes in it twice
    assert 0 < read < sum(file.bytes for file in state) / 3
