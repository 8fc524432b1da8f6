"""Compute the passes of a level: their tasks run side by side, as one step of Spark's.

Before a later level, the emissions that it reads get their turn in their topic-partition, and its stream
time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate.kernel.rows import with_column
from tidegate.kernel.stage import Place
from tidegate.kernel.tables import is_table
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.frames import forwarded_schema
from tidegate.spark.kernel_task import BY_KEY_AND_RANK, KernelTask, Output, PassTask
from tidegate.spark.row_batches import batched, rows_in
from tidegate.spark.rows import key_hash
from tidegate.spark.shuffle import (
    TO,
    Report,
    Slots,
    TimeReport,
    arranged,
    columns_of,
    hash_order,
    in_schema,
    partition_order,
    rows_of,
    split_reports,
    task_of,
    times_before,
    times_of_tables,
)
from tidegate.spark.source import spark_types


@dataclass(frozen=True)
class LevelRows:
    """The kernel rows of a level, with the number of their pass in `TO`.

    Args:
        frame: the rows themselves, or row batches.
        columns: the columns of the rows.
        in_batches: whether the frame has row batches.
    """

    frame: DataFrame
    columns: pa.Schema
    in_batches: bool = False

    @staticmethod
    def of_frame(frame: DataFrame) -> LevelRows:
        """Return rows that Spark has made."""
        return LevelRows(frame, to_arrow_schema(frame.schema))

    def with_rows(self, rows: DataFrame, slots: Slots) -> LevelRows:
        """Return these rows and more of the same columns, which Spark has made.

        Args:
            rows: the rows to add.
            slots: the tasks of each pass.
        """
        added = batched(rows, slots) if self.in_batches else rows
        return replace(self, frame=self.frame.unionByName(added))


TIME_ORDER = ("__topic", "__partition", "__rank", "__side")
"""The columns by which a `TimeTask` takes its rows: reports first, since nulls sort first. Of two emissions
of one rank, which come to both sides of a join, the left one is first.
"""


@dataclass(frozen=True)
class TimeTask:
    """A `PassTask` before a later stage: a frame in `TIME_ORDER`, whole topic-partitions in one task.

    Sets `__turn`, the place in the partition, and `__time`, the largest timestamp before the row; quarantined
    rows advance no time.

    Args:
        stage: the stage that reads its rows.
        number: the number of its pass in the level.
        times: the time of the partitions before the batch, epoch ms.
        schema: the columns of what comes out.
    """

    stage: str
    number: int
    times: Mapping[Place, int]
    schema: pa.Schema

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Set the times of a slot."""
        del slot, reports
        clock = Clock(self.times)
        for part in rows:
            for timed in map(clock.timed, by_place(part)):
                to = pa.repeat(pa.scalar(self.number, pa.int32()), timed.num_rows)
                yield in_schema(columns_of(timed) | {TO: to}, self.schema, timed.num_rows)
        return [TimeReport(self.stage, *place, time) for place, time in clock.times.items()]


class Clock:
    """Turns and times of one topic-partition after the other.

    `starts` has the stream time (epoch ms) of each before the batch, -1 if there is none; `times` the time
    after the rows so far. Turns count from 1 in each.
    """

    def __init__(self, starts: Mapping[Place, int]) -> None:
        self._starts = starts
        self._turn = 0
        self._place: Place | None = None
        self.times: dict[Place, int] = {}

    def timed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of one topic-partition, which come in order, with `__turn` and `__time` set."""
        place = (rows.column("__topic")[0].as_py(), rows.column("__partition")[0].as_py())
        # Rows are sorted by place, so a place that was left never comes back.
        if place != self._place:
            self._place, self._turn = place, 0
            self.times[place] = self._starts.get(place, -1)
        usable = rows.column("__reason").is_null()
        before, self.times[place] = times_before(rows.column("__timestamp"), usable, self.times[place])
        if is_table(place[0]):
            before = times_of_tables(rows.column("__rank"))
        turns = np.arange(self._turn, self._turn + rows.num_rows) + 1
        self._turn += rows.num_rows
        return with_column(with_column(rows, "__turn", turns), "__time", before)


def by_place(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each topic-partition, which come together."""
    if not rows.num_rows:
        return
    moved = np.zeros(rows.num_rows, bool)
    for name in ("__topic", "__partition"):
        column = rows.column(name)
        moved[1:] |= pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)).to_numpy(False)
    starts = [0, *np.flatnonzero(moved).tolist(), rows.num_rows]
    for start, end in itertools.pairwise(starts):
        if end > start:
            yield rows.slice(start, end - start)


@dataclass(frozen=True)
class LevelTask:
    """A function for `mapInArrow`: the tasks of the passes of a level, side by side.

    Args:
        passes: a task for each pass.
        slots: the number of tasks of each pass.
        schema: the columns of what comes out.
        copies: the number of tasks of the next level, each of which gets all reports; 1 for the driver.
        in_batches: the columns of the rows that come in row batches; None: they come one by one.
    """

    passes: tuple[PassTask, ...]
    slots: int
    schema: pa.Schema
    copies: int
    in_batches: pa.Schema | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            number, slot = divmod(task_number(), self.slots)
            reports, rows = split_reports(batches)
            if self.in_batches is not None:
                rows = rows_in(rows, self.in_batches)
            own = yield from self.passes[number].run(slot, reports, rows)
            # Each task of this level has all reports, so the first one forwards them.
            before = reports if number == slot == 0 else []
            yield from rows_of([*before, *own], self.schema, self.copies)


def task_number() -> int:
    """Return the number of the task in this worker: its rows are those of this partition."""
    context = TaskContext.get()
    assert context is not None, "a task runs in a worker of Spark"
    return int(context.partitionId())


def decided_frame(rows: LevelRows, tasks: Sequence[KernelTask], slots: Slots, following: int) -> DataFrame:
    """Apply the kernel to the rows of a level, in the order of their hashes.

    Args:
        rows: the rows.
        tasks: a task for each pass of the level.
        slots: the ranges of hashes of the tasks of each pass.
        following: the number of passes of the next level; 0 if the driver is next.
    """
    number, schema = slots.number * len(tasks), tasks[0].output.forwarding.schema
    copies = following * slots.number or 1
    if rows.in_batches:
        placed = arranged(rows.frame, number, F.col(TO), [hash_order()])
        return _applied(placed, LevelTask(tuple(tasks), slots.number, schema, copies, rows.columns))
    of_hash = task_of(slots, F.col("hash"))
    if all(task.logic.bound is None for task in tasks):
        placed = arranged(rows.frame, number, of_hash, [hash_order()])
        return _applied(placed, LevelTask(tuple(tasks), slots.number, schema, copies))
    # The tasks of a bounded stage have whole topic-partitions: its emissions are brought together by key,
    # and only then written.
    merged = forwarded_schema([(task.logic, task.rows) for task in tasks])
    before_merge = tuple(task.before_merge(merged) for task in tasks)
    placed = arranged(rows.frame, number, of_hash, partition_order(rows.frame))
    decided = _applied(placed, LevelTask(before_merge, slots.number, merged, number))
    by_key = key_hash(F.col("key"), F.col("topic"), F.col("partition"), F.col("offset"))
    order = ["hash", *BY_KEY_AND_RANK]
    placed = arranged(decided.withColumn("hash", by_key), number, of_hash, order)
    return _applied(placed, LevelTask(tuple(task.merging for task in tasks), slots.number, schema, copies))


def timed_frame(frame: DataFrame, tasks: Sequence[TimeTask], slots: Slots) -> DataFrame:
    """Return emissions as the passes of the next level need them: in the order of their topic-partitions.

    Args:
        tasks: a task for each pass of the next level, all with the same columns.
        slots: the ranges of hashes of the tasks of each pass.
    """
    of_place = task_of(slots, F.xxhash64("__topic", "__partition"))
    number = slots.number * len(tasks)
    placed = arranged(frame, number, of_place, TIME_ORDER)
    return _applied(placed, LevelTask(tuple(tasks), slots.number, tasks[0].schema, number))


def _applied(placed: DataFrame, task: LevelTask) -> DataFrame:
    """Return what the tasks of a level make of the rows of a frame, which `arranged` has placed."""
    return placed.mapInArrow(task, spark_types(task.schema))
