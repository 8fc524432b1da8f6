"""Compute one batch: with Spark, from the planned ranges of Kafka to the files of an attempt."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate.kernel.counts import COMPUTED_TWICE
from tidegate.kernel.repeats import has_hidden_values
from tidegate.ledger.records import Plan
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.spark.computation import Before, Computation, Computed
from tidegate.spark.errors import translated
from tidegate.spark.reused import ReusingComputation, StoredBatch
from tidegate.spark.source import RecordSource
from tidegate.storage.layout import Lake


def compute_batch(
    spark: SparkSession,
    plan: Plan,
    pipeline: Pipeline,
    records: RecordSource,
    lake: Lake,
    before: Before,
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
        with translated(pipeline):
            computation = Computation(spark, plan, pipeline, lake, before, reading)
        return computation.outcome(attempt, computation.run(records, attempt))

    if stored is not None:
        with translated(pipeline):
            reusing = ReusingComputation(spark, plan, pipeline, lake, before, stored)
        return reusing.computed(attempt)
    reading = reading_of(pipeline)
    # A stream with such keys has them in most batches: after the first, none is tried again.
    is_hopeless = any(before.counts.get(stage, {}).get(COMPUTED_TWICE) for stage in reading.drops)
    if not reading.drops or plan.replay is not None or is_hopeless:
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
