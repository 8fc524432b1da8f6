"""Compute the passes of a level: their tasks run side by side, as one step of Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate.spark.errors import report_worker_errors
from tidegate.spark.frames import forwarded_schema
from tidegate.spark.kernel_task import BY_KEY_AND_RANK, KernelTask, PassTask
from tidegate.spark.rows import key_hash
from tidegate.spark.shuffle import Slots, arranged, hash_order, rows_of, split_reports
from tidegate.spark.source import spark_types


@dataclass(frozen=True)
class LevelTask:
    """A function for `mapInArrow`: the tasks of the passes of a level, side by side.

    Args:
        passes: a task for each pass.
        slots: the number of tasks of each pass.
        schema: the columns of what comes out.
        copies: the number of tasks of the next level, each of which gets all reports; 1 for the driver.
    """

    passes: tuple[PassTask, ...]
    slots: int
    schema: pa.Schema
    copies: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            number, slot = divmod(task_number(), self.slots)
            reports, rows = split_reports(batches)
            own = yield from self.passes[number].run(slot, reports, rows)
            # Each task of this level has all reports, so the first one forwards them.
            before = reports if number == slot == 0 else []
            yield from rows_of([*before, *own], self.schema, self.copies)


def task_number() -> int:
    """Return the number of the task in this worker: its rows are those of this partition."""
    context = TaskContext.get()
    assert context is not None, "a task runs in a worker of Spark"
    return int(context.partitionId())


def decided_frame(rows: DataFrame, tasks: Sequence[KernelTask], slots: Slots, following: int) -> DataFrame:
    """Apply the kernel to the rows, in the order of their hashes.

    `following` is the number of passes of the next level.
    """
    hash_, schema = F.col("hash"), tasks[0].output.forwarding.schema
    if all(task.logic.bound is None for task in tasks):
        return applied_frame(rows, tasks, slots, hash_, [hash_order()], schema, following)
    # The tasks of a bounded stage have whole topic-partitions: its emissions are brought together by key,
    # and only then written.
    merged = forwarded_schema([(task.logic, task.rows) for task in tasks])
    first = [task.before_merge(merged) for task in tasks]
    decided = applied_frame(rows, first, slots, hash_, [hash_order()], merged, len(tasks))
    by_key = key_hash(F.col("key"), F.col("topic"), F.col("partition"), F.col("offset"))
    decided, order = decided.withColumn("hash", by_key), ["hash", *BY_KEY_AND_RANK]
    return applied_frame(decided, [task.merging for task in tasks], slots, hash_, order, schema, following)


def applied_frame(
    frame: DataFrame,
    tasks: Sequence[PassTask],
    slots: Slots,
    place: Column,
    order: Sequence[Column | str],
    schema: pa.Schema,
    following: int,
) -> DataFrame:
    """Return what the tasks of a level make of the rows of a frame.

    Args:
        frame: the rows.
        tasks: a task for each pass of the level.
        slots: the ranges of hashes of the tasks of each pass.
        place: the hash that decides which task of its pass gets a row.
        order: the order of the rows of a task.
        schema: the columns of what comes out.
        following: the number of passes of the next level; 0 if the driver is next.
    """
    placed = arranged(frame, slots, len(tasks), place, order)
    copies = following * slots.number or 1
    task = LevelTask(tuple(tasks), slots.number, schema, copies)
    return placed.mapInArrow(task, spark_types(schema))
