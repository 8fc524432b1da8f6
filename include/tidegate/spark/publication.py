"""Send the shards of a large batch by Spark tasks: one task for each shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.kafka.shard import ShardTask
from tidegate.model.pipeline import Pipeline
from tidegate.spark.errors import report_worker_errors, translated


def send_shards(spark: SparkSession, pipeline: Pipeline, tasks: Sequence[ShardTask]) -> list[int]:
    """Send each shard in a task of its own, and return how many messages the topic has of each.

    Spark may repeat a task, or run it twice at once: the shard's transactional id fences the earlier one.

    Raises what `ShardTask.send` raises, and the errors that `translated` makes of Spark's exceptions.
    """
    frame = spark.range(0, len(tasks), numPartitions=len(tasks))
    with translated(pipeline):
        rows = frame.mapInArrow(_SendTask(tuple(tasks)), "id long, sent long").collect()
    sent = {row.id: row.sent for row in rows}
    return [sent[shard] for shard in range(len(tasks))]


@dataclass(frozen=True)
class _SendTask:
    """A function for `mapInArrow`: it takes numbers of shards, sends these, and returns what was sent."""

    tasks: tuple[ShardTask, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            shards = batch.column("id").to_pylist()
            with report_worker_errors():
                sent = [self.tasks[shard].send() for shard in shards]
            yield pa.RecordBatch.from_pydict({"id": pa.array(shards), "sent": pa.array(sent, pa.int64())})
