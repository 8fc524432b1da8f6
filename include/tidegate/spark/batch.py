"""Compute one batch with Spark, from the planned ranges of Kafka to the files of an attempt; and send the
shards of a large one, each in a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.kafka.shard import SendTask
from tidegate.kernel.counts import COMPUTED_TWICE
from tidegate.kernel.repeats import has_hidden_values
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.spark.computation import Computation, Computed, PlannedBatch
from tidegate.spark.errors import report_worker_errors, translated
from tidegate.spark.reused import ReusingComputation, StoredBatch
from tidegate.spark.source import RecordSource


def compute_batch(
    spark: SparkSession,
    batch: PlannedBatch,
    records: RecordSource,
    attempt: str,
    stored: StoredBatch | None = None,
) -> Computed:
    """Compute a planned batch under the name `attempt`, from the results of the committed batches.

    If values may be hidden between records that were dropped as repetitions, the batch is computed a second
    time without dropping any. With `stored`, a part is read from another generation's files. Nothing that it
    writes is visible before the ledger commits the attempt.

    Raises CountMismatch, RecordTooLarge, SchemaChanged, BufferFull, UserFunctionFailed, ConditionFailed,
    LookupAmbiguous, OffsetsLost, LakeDamaged, and the errors that `translated` makes of Spark's exceptions.
    """

    def computed(reading: Reading) -> Computed:
        with translated(batch.pipeline):
            computation = Computation(spark, batch, reading)
        return computation.outcome(attempt, computation.run(records, attempt))

    if stored is not None:
        with translated(batch.pipeline):
            reusing = ReusingComputation(spark, batch, stored)
        return reusing.computed(attempt)
    reading = reading_of(batch.pipeline)
    # A stream with such keys has them in most batches: after the first, none is tried again.
    is_hopeless = any(batch.before.counts.get(stage, {}).get(COMPUTED_TWICE) for stage in reading.drops)
    if not reading.drops or batch.plan.replay is not None or is_hopeless:
        return computed(reading.keeping_all)
    without_repeats = computed(reading)
    hidden = [stage for stage in reading.drops if has_hidden_values(without_repeats.counts[stage])]
    if not hidden:
        return without_repeats
    # The files of the first time are in no manifest: no two tries of a task write the same file.
    again = computed(reading.keeping_all)
    for stage in hidden:
        again.counts[stage][COMPUTED_TWICE] += 1
    return again


def send_shards(spark: SparkSession, pipeline: Pipeline, tasks: Sequence[SendTask]) -> list[int]:
    """Send each shard in a task of its own, and return what `send` returns for each.

    Spark may repeat a task, or run it twice at once, which `send` allows for: in Kafka the shard's
    transactional id fences the earlier one.

    Raises what `send` raises, and the errors that `translated` makes of Spark's exceptions.
    """
    frame = spark.range(0, len(tasks), numPartitions=len(tasks))
    with translated(pipeline):
        rows = frame.mapInArrow(_SendTask(tuple(tasks)), "id long, sent long").collect()
    sent = {row.id: row.sent for row in rows}
    return [sent[shard] for shard in range(len(tasks))]


@dataclass(frozen=True)
class _SendTask:
    """A function for `mapInArrow`: it takes numbers of shards, sends these, and returns what was sent."""

    tasks: tuple[SendTask, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            shards = batch.column("id").to_pylist()
            with report_worker_errors():
                sent = [self.tasks[shard].send() for shard in shards]
            yield pa.RecordBatch.from_pydict({"id": pa.array(shards), "sent": pa.array(sent, pa.int64())})
