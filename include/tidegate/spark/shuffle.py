"""Place rows: each task has one range of hashes, so that no two tasks write or need the same state.

Reports of tasks, to the driver and to each other, are rows among the rows, so that a batch needs only one
job. A report is a row with a text in `__report`, no key and the least hash. It reaches each task of the next
level before all other rows; the first of these tasks forwards it. A level is the passes that are computed
side by side: they read the source, or emissions of the level before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate.kernel.keys import LEAST_HASH
from tidegate.kernel.stage import Place
from tidegate.storage.manifest import DataFile

REPORT, TO = "__report", "__to"
"""The columns that lead rows: the text of a report, null in all other rows; and where the row goes. A report
goes to the task of the next level with this number, any other row to the pass with this number.
"""
Times = Mapping[Place, int]
"""Topic-partition -> stream time, epoch ms."""
_RECORDS_AT_MOST, _RECORDS_PER_CORE, _STATE_BYTES = 500_000, 10_000, 1_000_000_000
_HALF = 2**31
"""Slots are computed from a hash's upper 32 bits, so that no product exceeds 64 bits."""


class HashRange(NamedTuple):
    """Hashes from `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class Slots:
    """The tasks of a pass: `number` of them, each with the hashes of its range.

    Example: `Slots(2).range(1)` has the hashes from 0 on.
    """

    number: int

    @staticmethod
    def of_batch(records: int, cores: int, state_bytes: int) -> Slots:
        """Return as many slots as a batch needs to fit in memory, and to give each core work if there is
        enough.

        A small batch on a large state gets some, too: it may have to read all of the state.

        Args:
            records: the largest number of records that the batch can read.
            cores: the number of tasks that run at once.
            state_bytes: the size on disk of the largest stage.

        Example: `Slots.of_batch(1_000, 8, 0)` is `Slots(1)`, and `Slots.of_batch(2_000_000, 2, 0)` is
        `Slots(4)`.
        """
        for_records = math.ceil(records / _RECORDS_AT_MOST)
        for_cores = min(cores, math.ceil(records / _RECORDS_PER_CORE))
        return Slots(max(for_records, for_cores, math.ceil(state_bytes / _STATE_BYTES), 1))

    def slot_of(self, hash_: Column) -> Column:
        """Return the slot of a hash."""
        upper = F.shiftright(hash_, 32) + F.lit(_HALF).cast("long")
        return F.shiftright(upper * F.lit(self.number).cast("long"), 32).cast("int")

    def of_hashes(self, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the slot of each hash, as `slot_of`."""
        return ((hashes >> 32) + _HALF) * self.number >> 32

    def range(self, slot: int) -> HashRange:
        """Return the hashes of a slot."""
        return HashRange(self._first(slot), self._first(slot + 1) - 1)

    def _first(self, slot: int) -> int:
        # Ceiling division: the first upper half that `slot_of` multiplies and shifts to this slot.
        return (-(-slot * 2 * _HALF // self.number) - _HALF) << 32


def task_of(slots: Slots, hash_: Column) -> Column:
    """Return the number of the task that a row goes to, and of a report the one that it names.

    The tasks of pass 0 come first, one for each slot.

    Args:
        slots: the tasks of each pass.
        hash_: the hash that decides the slot of a row.
    """
    of_row = F.col(TO) * F.lit(slots.number) + slots.slot_of(hash_)
    return F.when(F.col(REPORT).isNotNull(), F.col(TO)).otherwise(of_row)


def arranged(frame: DataFrame, tasks: int, task: Column, order: Sequence[Column | str]) -> DataFrame:
    """Return the rows of each task in one partition, in order. Reports come first: their sort columns are
    null, or the least hash.

    Args:
        frame: rows, with reports among them.
        tasks: the number of tasks.
        task: the number of the task that a row goes to.
        order: the order of the rows of a task.
    """
    # `repartition` would hash the number of the task once more, and let tasks share a partition.
    return frame.repartitionById(tasks, task).sortWithinPartitions(*order).drop(TO)


def hash_order() -> Column:
    """Sort rows by their hash alone: Spark sorts a single number by radix, which compares no rows."""
    return F.when(F.col(REPORT).isNull(), F.col("hash"))


def partition_order(rows: DataFrame) -> list[Column | str]:
    """Sort rows by their hash and position: a large topic-partition is decided block by block, so it must
    come in order.

    Args:
        rows: kernel rows, as `rows.record_rows` returns them.
    """
    # a record of the source has its turn by its offset
    turn = "turn" if "turn" in rows.columns else "offset"
    part = ["part"] if "part" in rows.columns else []
    return [hash_order(), "topic", "partition", turn, *part]


@dataclass(frozen=True)
class SliceReport:
    """The counts of a slice of a topic-partition.

    Args:
        source: the name of its source.
        records: records of Kafka.
        rows: rows after explosion.
        empty: those of the rows that had nothing to explode.
        unkeyed: rows that bypass the pass which drops repeated records.
        time: the stream time after the slice, epoch ms; None: time is not kept.
        usable: rows that are neither in quarantine nor deletions.
        unusable: rows in quarantine.
        deletions: rows that delete a key.
        filled: declared column -> rows with a value.
        undeclared: field -> records that have it, of those that were `sampled`.
        removed: rows that the source's filter removes, and that no pass gets.
        dropped: stage -> metric -> number, of rows that were dropped where they were read.
        first: the timestamp of the first usable row, epoch ms; None: there is none, or time is not kept.
    """

    source: str
    topic: str
    partition: int
    start: int
    records: int
    rows: int
    empty: int
    unkeyed: int
    time: int | None
    usable: int = 0
    filled: Mapping[str, int] = field(default_factory=dict)
    undeclared: Mapping[str, int] = field(default_factory=dict)
    sampled: int = 0
    unusable: int = 0
    deletions: int = 0
    removed: int = 0
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None


@dataclass(frozen=True)
class TimeReport:
    """The stream time of a topic-partition after the emissions that a later stage reads.

    Args:
        stage: the later stage.
        time: epoch ms.
    """

    stage: str
    topic: str
    partition: int
    time: int


@dataclass(frozen=True)
class TaskReport:
    """The counts and files of one task of a stage.

    Args:
        slot: the number of the task in its stage.
        counts: metric -> number.
        files: the files that it has completed.
    """

    stage: str
    slot: int
    counts: Mapping[str, int]
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class TraceReport:
    """The rows about a key of one task of a stage: see `traced`."""

    stage: str
    slot: int
    rows: tuple[Mapping[str, Any], ...]


Report = SliceReport | TimeReport | TaskReport | TraceReport


_KINDS = {kind.__name__: kind for kind in (SliceReport, TimeReport, TaskReport, TraceReport)}


def to_text(report: Report) -> str:
    """Return a report as JSON."""
    return json.dumps({"is": type(report).__name__} | asdict(report))


def from_text(text: str) -> Report:
    """Return the report of a JSON text, the inverse of `to_text`.

    Args:
        text: a text of `to_text`, of the same version: reports are never stored.
    """
    document: dict[str, Any] = json.loads(text)
    kind = _KINDS[document.pop("is")]
    if kind is TaskReport:
        document["files"] = tuple(DataFile(**file) for file in document["files"])
    report: Report = kind(**document)
    return report


def rows_of(reports: Iterable[Report], schema: pa.Schema, copies: int) -> Iterator[pa.RecordBatch]:
    """Yield reports as rows, all of them for each task of the next level.

    Args:
        reports: the reports; without any, nothing is yielded.
        schema: the columns of the rows; all but those of reports are null.
        copies: the number of tasks of the next level.
    """
    texts = [to_text(report) for report in reports]
    if not texts:
        return
    # Each task of the next level needs all stream times, so each gets all reports.
    number = len(texts) * copies
    columns = {
        REPORT: pa.array(texts * copies),
        TO: pa.array([task for task in range(copies) for _ in texts], pa.int32()),
        **dict.fromkeys(("hash", "__hash"), pa.repeat(pa.scalar(LEAST_HASH, pa.int64()), number)),
    }
    yield in_schema(columns, schema, number)


def value_column(number: int) -> str:
    """Return the column with the values of the pass with this number: rows of several passes travel together.

    >>> value_column(0)
    'value0'
    """
    return f"value{number}"


def emitted_column(number: int) -> str:
    """Return the column with what the emissions of the pass with this number replace."""
    return f"emitted{number}"


def record_column(number: int) -> str:
    """Return the column with whole records of the pass with this number, if it emits late ones."""
    return f"record{number}"


def in_schema(columns: Mapping[str, pa.Array], schema: pa.Schema, number: int) -> pa.RecordBatch:
    """Return a batch of `number` rows with the columns of the schema.

    A column that is not given is null, and a given one that is not in the schema is left out.
    """
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def columns_of(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return name -> column of a batch."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def split_reports(
    batches: Iterable[pa.RecordBatch],
) -> tuple[list[Report], Iterator[pa.RecordBatch]]:
    """Return the reports at the head of a task's rows, and the rows after them: at least one batch, maybe
    empty.
    """
    reports: list[Report] = []
    remaining = iter(batches)
    last: list[pa.RecordBatch] = []
    for batch in remaining:
        texts = batch.column(REPORT)
        leading = batch.num_rows - texts.null_count
        reports += map(from_text, texts.slice(0, leading).to_pylist())
        last = [batch.slice(leading)]
        if leading < batch.num_rows:
            break
    return reports, chain(last, remaining)


def end_times(
    stage: str, sources: Collection[str], times: Mapping[tuple[str, int], int], reports: Iterable[Report]
) -> dict[tuple[str, int], int]:
    """Return the stream time of topic-partitions after a stage's records: the time before, raised by reports.

    Slices report to the passes that read their source, a `TimeReport` to the later stage that it names.

    Args:
        stage: the stage.
        sources: the sources whose records it reads, maybe as a filter before a stage; empty for a later
            stage.
        times: (topic, partition) -> the time before the batch, epoch ms.
        reports: all reports that its tasks got.
    """
    ends = dict(times)
    for report in reports:
        if not isinstance(report, (SliceReport, TimeReport)):
            continue
        is_relevant = report.source in sources if isinstance(report, SliceReport) else report.stage == stage
        if is_relevant and report.time is not None:
            place = (report.topic, report.partition)
            ends[place] = max(report.time, ends.get(place, -1))
    return ends


def start_times(
    sources: Collection[str], times: Mapping[tuple[str, int], int], reports: Iterable[Report]
) -> dict[tuple[str, int], int]:
    """Return the time of topic-partitions before a batch; of one without a time, its first timestamp.

    Args:
        sources: the sources that count.
        times: (topic, partition) -> the time before the batch, epoch ms; -1: there is none.
        reports: all reports.
    """
    firsts = {
        (report.topic, report.partition): report.first
        for report in reports
        if isinstance(report, SliceReport) and report.source in sources and report.first is not None
    }
    return {**firsts, **{place: at for place, at in times.items() if at >= 0}}


def times_before(
    timestamps: pa.Int64Array, usable: pa.BooleanArray, start: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the time before each record of a topic-partition, in order, and the time after all; epoch ms.
    For emissions that a changed table has made, see `times_of_tables`.

    `start` is the time before the first record, -1 for none. Records that are not usable, or have no
    timestamp, do not advance time.

    Example: timestamps 5, 3, 8, all usable, from -1 give `[-1, 5, 5]` and 8.
    """
    counted = pc.fill_null(pc.if_else(usable, timestamps, -1), -1)
    # One number more than records: the time before each of them, and the time after all.
    reached = np.maximum.accumulate(np.append(np.int64(start), counted.to_numpy()))
    return reached[:-1], int(reached[-1])


def times_of_tables(ranks: pa.StructArray) -> npt.NDArray[np.int64]:
    """Return the time before each emission that a changed table has made, epoch ms: when it happened.

    That is the time of the partition of the record that was joined again. The place of a table has no time of
    its own: timestamps of such emissions are old, and of several partitions.

    Args:
        ranks: `kernel.RANK` of each emission.
    """
    instants: npt.NDArray[np.int64] = pc.struct_field(ranks, "instant").to_numpy()
    return instants
