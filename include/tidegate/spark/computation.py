"""One batch as one Spark job: from the planned ranges of Kafka to the files of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate import kernel
from tidegate.errors import RecordFailed
from tidegate.expressions.arrow import arrow_type
from tidegate.formats import RecordLayout
from tidegate.ledger.records import Plan
from tidegate.model.columns import parse_type
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.spark.decoding import (
    Decoding,
    SliceReader,
    readers_of_tasks,
    source_counts,
    source_schema,
)
from tidegate.spark.errors import hides_its_record, translated
from tidegate.spark.guard import SETTINGS as GUARD_SETTINGS
from tidegate.spark.guard import Guard
from tidegate.spark.kernel_task import (
    BY_KEY_AND_RANK,
    TIME_ORDER,
    Forwarding,
    KernelTask,
    MergeTask,
    StageOutput,
    TimeTask,
)
from tidegate.spark.lookups import PinnedTables, enrich
from tidegate.spark.outbox import outbox_format
from tidegate.spark.retraction import changes
from tidegate.spark.rows import (
    REPORTS_ONLY,
    emission_frame,
    forwarded_schema,
    kernel_schema,
    key_hash,
    record_rows,
)
from tidegate.spark.semantics import pin_semantics
from tidegate.spark.session import changed, compile_expressions, cores_of, prepare
from tidegate.spark.shuffle import (
    REPORT,
    Report,
    Slots,
    TaskReport,
    Times,
    arranged,
    end_times,
    from_text,
    hash_order,
)
from tidegate.spark.source import RecordSource, frame_of, spark_types
from tidegate.spark.source_rows import Shape, SourceRows
from tidegate.spark.state import StateFiles, stored_schema
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    account_for,
    keeps_input,
    keeps_time,
    key_types_text,
    packed,
    passes_of,
    record_layout,
    repeated_columns,
    require_same_key_types,
    require_usable_key,
    source_keys,
    stage_counts,
    typed,
    unpacked,
)
from tidegate.spark.written import AttemptFiles, WrittenOutput
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile, Manifest, manifest_of

T = TypeVar("T")


@dataclass(frozen=True)
class Before:
    """The results of earlier batches.

    Args:
        state: stage -> the files of its state, those of the newest batch last.
        times: stage -> its stream times at the head.
        counts: stage -> its counts, from which running totals go on.
        lookups: the tables that the plan's lookups read.
    """

    state: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lookups: PinnedTables = field(default_factory=dict)


@dataclass(frozen=True)
class Computed:
    """The results of a computation.

    Args:
        counts: stage -> its counts; the stage "" is the whole batch.
        times: stage -> its stream times after the batch; empty if no stage keeps time.
        manifest: the files of the attempt.
    """

    counts: Mapping[str, kernel.Counts]
    times: Mapping[str, Times]
    manifest: Manifest


class Computation:
    """The passes of one batch as one job, each over the emissions of the pass before.

    `reading` says what is done where records are read; by default all that the pipeline allows, but that no
    record is dropped.
    """

    _shows_removed: ClassVar[bool] = False
    """Whether records that a filter removes stay among the rows."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        pipeline: Pipeline,
        lake: Lake,
        before: Before,
        reading: Reading | None = None,
    ) -> None:
        self._reading = reading_of(pipeline).keeping_all if reading is None else reading
        pin_semantics(spark)
        prepare(spark, plan.most_records)
        if not self._reading.selects:
            compile_expressions(spark)
        self._spark = spark
        self._plan = plan
        self._pipeline = pipeline
        self._lake = lake
        self._before = before
        self._passes = passes_of(pipeline)
        self._keeps_time = keeps_time(self._passes)
        self._slots = Slots.of_batch(plan.most_records, cores_of(spark), _largest_state_bytes(before))
        self._key_types: dict[str, str | None] = {}
        self._failure: str | None = None
        """The message of an expression that fails in Spark, which does not name the record."""

    def run(self, records: RecordSource, attempt: str) -> list[Report]:
        """Compute all passes, and return the reports of their tasks. Raises the errors of `translated`."""
        # The driver gets only the output of tasks that count: lost or superseded tries report nothing.
        return self._guarded(
            lambda: [from_text(row[REPORT]) for row in self.frame(records, attempt).collect()]
        )

    def _guarded(self, compute: Callable[[], T]) -> T:
        """Return what `compute` does. If an expression fails in Spark on a record that Spark does not name,
        compute once more, with a guard that finds such records.
        """
        try:
            with translated(self._pipeline):
                return compute()
        except RecordFailed as error:
            if not hides_its_record(error):
                raise
            self._failure = error.what
        try:
            with translated(self._pipeline), changed(self._spark, GUARD_SETTINGS):
                return compute()
        finally:
            self._failure = None

    def frame(self, records: RecordSource, attempt: str) -> DataFrame:
        """Return all passes as a frame of reports."""
        frame = self._source(records)
        keys = source_keys(self._pipeline)
        for number in range(len(self._passes)):
            frame, keys = self._apply_pass(number, frame, keys, attempt)
        return frame.select(REPORT)

    def outcome(self, attempt: str, reports: Sequence[Report]) -> Computed:
        """Return the counts, checked, and the list of the files. Raises CountMismatch."""
        counts = stage_counts(reports, [pass_.name for pass_ in self._passes])
        batch_counts = account_for(self._passes, counts, reports)
        totals = {
            stage: kernel.running_totals(counted, self._before.counts.get(stage, {}))
            for stage, counted in counts.items()
        }
        times = {}
        if self._keeps_time:
            for pass_ in self._passes:
                start = self._before.times.get(pass_.name, {})
                times[pass_.name] = end_times(pass_.name, self._reads_source(pass_), start, reports)
        aliases = {pass_.name: pass_.aliases.text for pass_ in self._passes}
        files = [
            replace(file, key_types=self._key_types.get(file.stage), aliases=aliases.get(file.stage))
            if file.kind == "state"
            else file
            for report in reports
            if isinstance(report, TaskReport)
            for file in report.files
        ]
        source_stages = {stage: kernel.Counts(counts) for stage, counts in source_counts(reports).items()}
        whole = {**totals, "": batch_counts, **source_stages}
        return Computed(whole, times, manifest_of(attempt, self._plan.seq, files))

    # the source

    def _source(self, records: RecordSource) -> DataFrame:
        """Return the records of the planned ranges, decoded, exploded and enriched; or already as the rows of
        the first stage, if they are made where the records are read.
        """
        plan, source, first = self._plan, self._pipeline.source, self._passes[0]
        columns = repeated_columns(self._pipeline)
        layout = record_layout(source)
        decoding = Decoding(layout, plan.believed_until_ms, keeps_input(self._passes), columns)
        rows = self._rows_of_source(layout)
        schema = rows.schema if rows else source_schema(decoding.decoder().schema, self._keeps_time)
        starts = self._before.times.get(first.name, {})
        cores = cores_of(self._spark)
        readers = [
            SliceReader(
                slice_,
                decoding,
                starts.get((slice_.range.topic, slice_.range.partition), -1) if self._keeps_time else None,
                self._slots.number,
                rows,
                self._shows_removed,
            )
            for slice_ in records.slices(self._keeps_time, cores)
        ]
        frame = frame_of(self._spark, schema, readers_of_tasks(readers, cores))
        if rows is not None:
            return frame
        # `__empty` is null in reports, and a filter drops rows whose condition is null.
        present = frame.where(~F.coalesce("__empty", F.lit(False))).drop("__empty")
        return enrich(present, self._pipeline, self._spark, self._before.lookups)

    def _rows_of_source(self, layout: RecordLayout) -> SourceRows | None:
        """Return what makes rows of the first stage where records are read; None if Spark does."""
        if not self._reading.selects:
            return None
        first = self._passes[0]
        reading, names = self._reading, tuple(layout.row_columns.names)
        values = {name: (value, arrow_type(parse_type(value.type))) for name, value in reading.values.items()}
        by_place = first.logic.bound is not None
        return SourceRows(
            *(names, values, reading.filter, reading.where, reading.compared, self._shape(first), by_place),
            self._shows_removed,
            quarantines=first.logic.on_error == "quarantine",
        )

    def _reads_source(self, pass_: KernelPass) -> bool:
        """Return whether a pass reads records of the source: the first stage, and the filters before it."""
        stages = [stage_pass.name for stage_pass in self._passes if not stage_pass.is_filter]
        return pass_.is_filter or pass_.name == stages[0]

    # passes

    def _apply_pass(
        self, number: int, frame: DataFrame, keys: KeyTypes, attempt: str
    ) -> tuple[DataFrame, KeyTypes]:
        """Apply one pass; return the frame of the next pass, or of the reports of the last one's tasks."""
        pass_ = self._passes[number]
        following = self._passes[number + 1] if number + 1 < len(self._passes) else None
        if pass_.is_filter:
            frame = packed(frame, pass_, self._pipeline)
        else:
            # A key of another type has other texts: its state would not be found, and nobody would notice.
            require_same_key_types(pass_.name, self._before.state.get(pass_.name, ()), keys)
            self._key_types[pass_.name] = key_types_text(keys)
        rows = frame
        if number or not self._reading.selects:
            guard = self._guard(pass_)
            rows = record_rows(frame, pass_, self._shape(pass_), self._pipeline.pipeline, guard)
        pass_ = typed(pass_, to_arrow_schema(rows.schema).field("value").type, keys)
        task = self._task(pass_, following, rows, keys, attempt)
        if pass_.logic.bound is not None:
            decided = self._bounded(rows, task)
        else:
            decided = self._decided(rows, task, task.output.forwarding.schema)
        if following is None:
            return decided, keys
        if pass_.is_filter:
            return unpacked(decided), keys
        return self._following_frame(decided, keys, following)

    def _guard(self, pass_: KernelPass) -> Guard | None:
        if self._failure is None or pass_.is_filter:
            return None
        return Guard(self._failure, pass_, is_later=not self._reads_source(pass_))

    def _shape(self, pass_: KernelPass) -> Shape:
        reads_source = self._reads_source(pass_)
        exploded = pass_.retracts or (reads_source and self._pipeline.source.explode is not None)
        return Shape(self._keeps_time, exploded, ranked=not reads_source)

    def _task(
        self, pass_: KernelPass, following: KernelPass | None, rows: DataFrame, keys: KeyTypes, attempt: str
    ) -> KernelTask:
        schema = kernel_schema(rows, pass_.logic)
        files = tuple(self._before.state.get(pass_.name, ()))
        bounded = pass_.logic.bound is not None
        output = self._output(pass_, following, schema, keys, attempt)
        return KernelTask(
            pass_.name,
            pass_.logic,
            self._batch(pass_),
            self._reads_source(pass_),
            schema,
            self._slots,
            StateFiles(
                *(self._lake.store, files, stored_schema(pass_.logic, schema), schema, bounded), pass_.aliases
            ),
            output,
        )

    def _output(
        self, pass_: KernelPass, following: KernelPass | None, rows: pa.Schema, keys: KeyTypes, attempt: str
    ) -> StageOutput:
        """Return where a stage's results are written, and where its emissions go."""
        outbox = None
        if pass_.stage is not None and pass_.name in self._pipeline.published_stages:
            outbox = outbox_format(self._pipeline, pass_.stage, keys, self._plan)
        files = AttemptFiles(self._lake, attempt)
        stored = stored_schema(pass_.logic, rows)
        forwarding = self._forwarding(pass_, following, rows)
        return WrittenOutput(pass_.name, self._plan.seq, files, stored, outbox, forwarding)

    def _forwarding(self, pass_: KernelPass, following: KernelPass | None, rows: pa.Schema) -> Forwarding:
        if following is None:
            return Forwarding(REPORTS_ONLY, False, 1)
        return Forwarding(forwarded_schema(pass_.logic, rows), True, self._slots.number)

    def _batch(self, pass_: KernelPass) -> kernel.Batch:
        """Return the kernel's parameters of the batch, without the stream times, which reports bring."""
        plan = self._plan
        times = self._before.times.get(pass_.name, {})
        batch = kernel.Batch(times, drain=plan.drain, replay=plan.replay is not None)
        if pass_.logic.clock == "stream":
            return batch
        return replace(
            batch, clock=plan.clock_ms, floor=plan.least_clock, clocks=plan.clocks, cut=plan.cut_partitions
        )

    def _bounded(self, rows: DataFrame, task: KernelTask) -> DataFrame:
        """Apply a stage whose tasks have whole topic-partitions: its emissions are brought together by key,
        and only then written.
        """
        schema = forwarded_schema(task.logic, task.rows)
        first = task.output.before_merge(Forwarding(schema, True, self._slots.number))
        decided = self._decided(rows, replace(task, output=first), schema)
        by_key = key_hash(F.col("key"), F.col("topic"), F.col("partition"), F.col("offset"))
        rows = decided.withColumn("hash", by_key)
        placed = arranged(rows, self._slots, F.col("hash"), ["hash", *BY_KEY_AND_RANK])
        return placed.mapInArrow(MergeTask(task.output), spark_types(task.output.forwarding.schema))

    def _decided(self, rows: DataFrame, task: KernelTask, schema: pa.Schema) -> DataFrame:
        """Apply the kernel to the rows, in the order of their hashes."""
        placed = arranged(rows, self._slots, F.col("hash"), [hash_order()])
        return placed.mapInArrow(task, spark_types(schema))

    def _following_frame(
        self, decided: DataFrame, keys: KeyTypes, following: KernelPass
    ) -> tuple[DataFrame, KeyTypes]:
        """Return emissions as the frame of the next stage, in the order of their partition."""
        frame, keys = emission_frame(
            decided, keys, following.key, following.takes_deletions, retracts=following.retracts
        )
        require_usable_key(self._pipeline.pipeline, following.name, keys)
        place = F.xxhash64("__topic", "__partition")
        # reports are null in columns that are never null in other rows
        schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(frame.schema)])
        times = self._before.times.get(following.name, {})
        task = TimeTask(following.name, times, schema, self._slots.number)
        timed = arranged(frame, self._slots, place, TIME_ORDER).mapInArrow(task, spark_types(schema))
        return changes(timed) if following.retracts else timed, keys


def _largest_state_bytes(before: Before) -> int:
    """Return the bytes on disk of the stage with the largest state."""
    return max((sum(file.bytes for file in files) for files in before.state.values()), default=0)
