"""One batch as one Spark job: from the planned ranges of Kafka to the files of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate import kernel
from tidegate.errors import RecordFailed
from tidegate.kernel.tables import topic_of
from tidegate.ledger.records import Plan
from tidegate.model.kernel_stages import keeps_time
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.model.tables import Expected
from tidegate.spark import row_batches
from tidegate.spark.accounting import account_for, counts_of_sources, stage_counts
from tidegate.spark.decoding import Decoding, SliceReader, readers_of_tasks, source_counts, source_schema
from tidegate.spark.errors import hides_its_record, translated
from tidegate.spark.frames import (
    REPORTS_ONLY,
    emission_frame,
    forwarded_schema,
    readers_of_source,
    source_frame,
    source_keys,
    union_schema,
)
from tidegate.spark.guard import SETTINGS as GUARD_SETTINGS
from tidegate.spark.guard import guards_of
from tidegate.spark.kernel_task import Forwarding, KernelTask, StageOutput
from tidegate.spark.level import LevelRows, TimeTask, decided_frame, timed_frame
from tidegate.spark.lookups import PinnedTables, StateVersion, enrich, expected_rows, rejoined
from tidegate.spark.outbox import outbox_format
from tidegate.spark.retraction import changes, retracting
from tidegate.spark.row_batches import RowBatches
from tidegate.spark.rows import kernel_schema, record_rows
from tidegate.spark.semantics import pin_semantics
from tidegate.spark.session import changed, compile_expressions, cores_of, prepare
from tidegate.spark.shuffle import (
    REPORT,
    Report,
    Slots,
    TaskReport,
    Times,
    end_times,
    from_text,
    value_column,
)
from tidegate.spark.source import RecordSource, frame_of, spark_types
from tidegate.spark.source_rows import RecordRows, Shape, SourceRows
from tidegate.spark.state import StateFiles, stored_schema
from tidegate.spark.steps import (
    FRAME,
    KernelPass,
    KeyTypes,
    Port,
    column_at,
    keeps_input,
    key_types_text,
    leaving,
    levels_of,
    packed,
    packed_type,
    passes_of,
    ports_of,
    record_layout,
    repeated_columns,
    require_same_key_types,
    require_usable_key,
    stage_rows,
    typed,
    unpacked,
)
from tidegate.spark.written import AttemptFiles, WrittenOutput
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile, Manifest, manifest_of

T = TypeVar("T")
Frames = dict[str, DataFrame]
"""Source -> its decoded records; or "" -> all rows of a level in one frame."""


@dataclass(frozen=True)
class Before:
    """The results of earlier batches.

    Args:
        state: stage -> the files of its state, those of the newest batch last.
        times: stage -> its stream times at the head.
        counts: stage -> its counts, from which running totals go on.
        lookups: the tables that the plan's lookups read.
        changed_tables: those of lookups with `on_change: emit`, and those with expected keys, that may have
            other rows than in the batch before.
    """

    state: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lookups: PinnedTables = field(default_factory=dict)
    changed_tables: Collection[str] = ()


@dataclass(frozen=True)
class PlannedBatch:
    """A planned batch, with what it is computed from beside its records.

    Args:
        pipeline: the pipeline of the plan.
        lake: where the files of its stream are.
    """

    plan: Plan
    pipeline: Pipeline
    lake: Lake
    before: Before


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
    """The passes of one batch as one job, level by level: those of a level are computed side by side.

    `reading` says what is done where records are read; by default all that the pipeline allows, but that no
    record is dropped.
    """

    _shows_removed: ClassVar[bool] = False
    """Whether records that a filter removes stay among the rows."""
    _reused: Collection[str] = ()
    """The passes that are not computed."""

    def __init__(self, spark: SparkSession, batch: PlannedBatch, reading: Reading | None = None) -> None:
        plan, pipeline, before = batch.plan, batch.pipeline, batch.before
        self._reading = reading_of(pipeline).keeping_all if reading is None else reading
        pin_semantics(spark)
        self._slots = Slots.of_batch(plan.most_records, cores_of(spark), _largest_state_bytes(before))
        parts_of_tables = [table.parts for table in before.lookups.values()]
        partitions = max([self._slots.number, *parts_of_tables])
        prepare(spark, plan.most_records, partitions, self._reading.in_batches)
        if not self._reading.selects:
            compile_expressions(spark)
        self._spark = spark
        self._plan = plan
        self._pipeline = pipeline
        self._lake = batch.lake
        self._before = before
        self._passes = passes_of(pipeline)
        self._keeps_time = keeps_time(pipeline)
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

    @cached_property
    def _levels(self) -> list[list[KernelPass]]:
        return levels_of(self._passes)

    def frame(self, records: RecordSource, attempt: str) -> DataFrame:
        """Return all passes as a frame of reports."""
        frames: Frames = self._source(records)
        keys: list[KeyTypes] = []
        for depth in range(len(self._levels)):
            frames, keys = self._apply_level(depth, frames, keys, attempt)
        (frame,) = frames.values()
        return frame.select(REPORT)

    def outcome(self, attempt: str, reports: Sequence[Report]) -> Computed:
        """Return the counts, checked, and the list of the files. Raises CountMismatch."""
        counts = stage_counts(reports, self._passes)
        batch_counts = account_for(self._passes, counts, reports, self._reused)
        totals = {
            stage: kernel.running_totals(counted, self._before.counts.get(stage, {}))
            for stage, counted in counts.items()
        }
        times = {}
        if self._keeps_time:
            for pass_ in self._passes:
                start = self._before.times.get(pass_.name, {})
                times[pass_.name] = end_times(pass_.name, pass_.sources, start, reports)
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
        whole = {**totals, "": batch_counts, **counts_of_sources(reports), **source_stages}
        return Computed(whole, times, manifest_of(attempt, self._plan.seq, files))

    # the source

    def _source(self, records: RecordSource) -> Frames:
        """Return the records of the planned ranges, decoded, exploded and enriched, source by source, for
        each pass that reads them; or in one frame already as the rows of these passes, if they are made where
        the records are read.
        """
        cores, rows = cores_of(self._spark), self._rows_of_sources()
        readers = self._slice_readers(records, rows)
        if rows is not None:
            everything = [reader for of_source in readers.values() for reader in of_source]
            schema = row_batches.SCHEMA if self._reading.in_batches else rows.schema
            return {"": frame_of(self._spark, schema, readers_of_tasks(everything, cores))}
        frames = {}
        for name, of_source in readers.items():
            schema = source_schema(self._decoding(name).decoder().schema, self._keeps_time)
            frame = frame_of(self._spark, schema, readers_of_tasks(of_source, cores))
            # `__empty` is null in reports, and a filter drops rows whose condition is null.
            present = frame.where(~F.coalesce("__empty", F.lit(False))).drop("__empty")
            frames[name] = enrich(present, self._pipeline, self._spark, self._before.lookups)
        return frames

    def _decoding(self, source: str) -> Decoding:
        columns, believed_until_ms = repeated_columns(self._pipeline), self._plan.believed_until_ms
        layout = record_layout(self._pipeline.sources[source])
        return Decoding(source, layout, believed_until_ms, keeps_input(self._passes), columns)

    def _slice_readers(self, records: RecordSource, rows: RecordRows | None) -> dict[str, list[SliceReader]]:
        """Return source -> what reads its slices, for the sources that a pass reads."""
        level, sources = self._levels[0], self._pipeline.sources
        numbers = {name: readers_of_source(name, level) for name in sources}
        decodings = {name: self._decoding(name) for name in sources if numbers[name]}
        readers: dict[str, list[SliceReader]] = {name: [] for name in decodings}
        for slice_ in records.slices(self._keeps_time, cores_of(self._spark)):
            name = sources.name_of(slice_.range.topic)
            if name not in decodings:
                continue  # a stage is explained that does not read this source
            times = self._before.times.get(level[numbers[name][0]].name, {})
            place = (slice_.range.topic, slice_.range.partition)
            start = times.get(place, -1) if self._keeps_time else None
            reader = SliceReader(
                slice_,
                decodings[name],
                start,
                self._slots.number * len(level),
                numbers[name],
                rows,
                self._shows_removed,
                RowBatches(self._slots) if self._reading.in_batches else None,
            )
            readers[name].append(reader)
        return readers

    def _rows_of_sources(self) -> RecordRows | None:
        """Return what makes rows where records are read; None if Spark does."""
        if not self._reading.selects:
            return None
        return RecordRows(tuple(map(self._rows_of_stage, self._levels[0])))

    def _rows_of_stage(self, pass_: KernelPass) -> SourceRows:
        reading, shape = self._reading.stages[pass_.name], self._shape([pass_])
        columns = union_schema(self._pipeline, pass_)
        return stage_rows(pass_, reading, columns, shape, self._shows_removed)

    def _apply_level(
        self, depth: int, frames: Frames, keys: Sequence[KeyTypes], attempt: str
    ) -> tuple[Frames, list[KeyTypes]]:
        """Apply the passes of a level; return the frames of the next level, or that of the reports of the
        last one's tasks.

        `keys` are the columns of the keys of the passes that read emissions.
        """
        level = self._levels[depth]
        following = self._levels[depth + 1] if depth + 1 < len(self._levels) else []
        rows, keys = self._rows(level, frames, keys)
        rows = self._with_expected(rows, level, keys)
        ports = ports_of(following, level)
        tasks = self._tasks(level, ports, rows.columns, keys, attempt)
        decided = decided_frame(rows, tasks, self._slots, len(following))
        if not following:
            return {"": decided}, keys
        if level[0].is_filter:
            return dict.fromkeys(self._pipeline.sources, unpacked(decided)), keys
        frame, keys = self._following_frame(decided, keys, following, ports)
        return {"": frame}, keys

    def _rows(
        self, level: Sequence[KernelPass], frames: Frames, keys: Sequence[KeyTypes]
    ) -> tuple[LevelRows, list[KeyTypes]]:
        """Return the kernel's rows for the passes of a level, and the columns of their keys."""
        if not level[0].reads_source:
            (frame,) = frames.values()
            return LevelRows.of_frame(self._kernel_rows(frame, level, dict(enumerate(level)))), list(keys)
        if (made := self._rows_of_sources()) is not None:
            columns = to_arrow_schema(spark_types(made.schema))
            rows = LevelRows(frames[""], columns, self._reading.in_batches)
            return rows, [self._source_key(pass_, frames) for pass_ in level]
        if level[0].remembers_records:
            frames = {name: self._with_rejoined(frame, level[0]) for name, frame in frames.items()}
        if level[0].is_filter:
            frames = {name: packed(frame, level[0], self._pipeline) for name, frame in frames.items()}
        unions = {n: spark_types(union_schema(self._pipeline, pass_)) for n, pass_ in enumerate(level)}
        of_sources = []
        for name, frame in frames.items():
            readers = {number: level[number] for number in readers_of_source(name, level)}
            of_sources.append(self._kernel_rows(source_frame(frame, readers, unions), level, readers))
        # A source has no values for the passes that do not read it.
        union = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), of_sources)
        return LevelRows.of_frame(union), [self._source_key(pass_, frames) for pass_ in level]

    def _with_rejoined(self, frame: DataFrame, pass_: KernelPass) -> DataFrame:
        """Add the last records whose looked-up row has changed since the batch before."""
        files = tuple(self._before.state.get(pass_.name, ()))
        reacting = {lookup.table for lookup in self._pipeline.reacting_lookups}
        changed = reacting & {*self._before.changed_tables}
        if not files or not changed or pass_.name in self._reused:
            return frame
        # of the records' types: otherwise Spark would convert the records of the batch to the types of both
        state = StateVersion(self._lake.store, files, pass_.aliases, value=packed_type(frame))
        last = state.open(self._spark).select(f"{FRAME}.*")
        lookups = self._before.lookups
        tables = {table: lookups[table].open(self._spark) for table in changed}
        times = self._before.times.get(pass_.name, {})
        return rejoined(last, frame, self._pipeline, tables, changed, self._plan.seq, times)

    def _with_expected(
        self, rows: LevelRows, level: Sequence[KernelPass], keys: Sequence[KeyTypes]
    ) -> LevelRows:
        """Add the keys of tables to the rows of stages that expect them.

        `keys` are the columns of the keys of the passes.
        """
        for number, (pass_, types) in enumerate(zip(level, keys, strict=True)):
            if (expected := self._fed(pass_)) is not None:
                table = self._before.lookups[expected.table].open(self._spark)
                columns, of_pass = spark_types(rows.columns), (number, pass_.name)
                of_table = expected_rows(table, expected, types, columns, of_pass, self._plan.seq)
                rows = rows.with_rows(of_table, self._slots)
        return rows

    def _fed(self, pass_: KernelPass) -> Expected | None:
        """Return the table whose keys a pass gets in this batch; None: it gets none.

        Without a time, no key could wait in the batch before.
        """
        expected = None if pass_.stage is None else pass_.stage.expected
        if expected is None or pass_.name in self._reused:
            return None
        has_time = max(self._before.times.get(pass_.name, {}).values(), default=-1) >= 0
        return None if has_time and expected.table not in self._before.changed_tables else expected

    def _kernel_rows(
        self, frame: DataFrame, level: Sequence[KernelPass], readers: Mapping[int, KernelPass]
    ) -> DataFrame:
        guards = guards_of(self._failure, level)
        return record_rows(frame, readers, self._shape(level), self._pipeline.pipeline, guards)

    def _source_key(self, pass_: KernelPass, frames: Frames) -> KeyTypes:
        """Return the columns of the key of a pass that reads records: all of its sources have the same."""
        name = pass_.sources[0]
        repeated = {path: path for path in repeated_columns(self._pipeline)}
        key = repeated if pass_.is_deduplication else pass_.key
        if key is None:
            return source_keys(self._pipeline.sources[name])
        keyed = frames[name].select(*[column_at(path).alias(name) for name, path in key.items()])
        types = {field.name: field.dataType for field in keyed.schema}
        require_usable_key(self._pipeline.pipeline, pass_.name, types)
        return types

    def _shape(self, level: Sequence[KernelPass]) -> Shape:
        reads_source, tested = level[0].reads_source, any(pass_.where for pass_ in level)
        exploded = reads_source and self._pipeline.sources.explodes
        exploded |= any(pass_.retracts for pass_ in level)
        # before the stages, a record travels whole
        recorded = self._pipeline.sends_recorded and not level[0].is_filter
        return Shape(self._keeps_time, exploded, not reads_source, recorded, tested)

    def _tasks(
        self,
        level: Sequence[KernelPass],
        ports: Sequence[Port],
        columns: pa.Schema,
        keys: Sequence[KeyTypes],
        attempt: str,
    ) -> list[KernelTask]:
        """Return the kernel's task for each pass of a level.

        Args:
            level: the passes.
            ports: the ways into the next level.
            columns: those of the rows.
            keys: the columns of the passes' keys.
            attempt: the name of the attempt.
        """
        typed_passes, schemas = [], []
        for number, (pass_, types) in enumerate(zip(level, keys, strict=True)):
            # A key of another type has other texts: its state would not be found, and nobody would notice.
            require_same_key_types(pass_.name, self._before.state.get(pass_.name, ()), types)
            self._key_types[pass_.name] = key_types_text(types)
            value = columns.field(value_column(number)).type
            typed_passes.append(typed(pass_, value, types))
            schemas.append(kernel_schema(columns, number, typed_passes[-1].logic, pass_.retracts))
        schema = REPORTS_ONLY
        if ports:
            logics = [pass_.logic for pass_ in typed_passes]
            schema = forwarded_schema(list(zip(logics, schemas, strict=True)))
        forwardings = [Forwarding(schema, number, leaving(number, ports)) for number in range(len(level))]
        parts = zip(typed_passes, keys, schemas, forwardings, strict=True)
        return [self._task(*part, attempt) for part in parts]

    def _task(
        self, pass_: KernelPass, keys: KeyTypes, rows: pa.Schema, forwarding: Forwarding, attempt: str
    ) -> KernelTask:
        files = tuple(self._before.state.get(pass_.name, ()))
        bounded = pass_.logic.bound is not None
        stored = stored_schema(pass_.logic, rows)
        return KernelTask(
            pass_.name,
            forwarding.number,
            pass_.logic,
            self._batch(pass_),
            pass_.sources,
            rows,
            self._slots,
            StateFiles(self._lake.store, files, stored, rows, bounded, pass_.aliases),
            self._output(pass_, rows, keys, forwarding, attempt),
        )

    def _output(
        self, pass_: KernelPass, rows: pa.Schema, keys: KeyTypes, forwarding: Forwarding, attempt: str
    ) -> StageOutput:
        """Return where a stage's results are written, and where its emissions go."""
        outbox = None
        if pass_.stage is not None and pass_.name in self._pipeline.published_stages:
            outbox = outbox_format(self._pipeline, pass_.stage, keys, self._plan)
        files = AttemptFiles(self._lake, attempt)
        late = None
        if pass_.late is not None and pass_.late.name in self._pipeline.published_stages:
            late = outbox_format(self._pipeline, pass_.late, keys, self._plan)
        stored = stored_schema(pass_.logic, rows)
        return WrittenOutput(pass_.name, self._plan.seq, files, stored, outbox, forwarding, late)

    def _batch(self, pass_: KernelPass) -> kernel.Batch:
        """Return the kernel's parameters of the batch, without the stream times, which reports bring."""
        plan = self._plan
        times = self._before.times.get(pass_.name, {})
        batch = kernel.Batch(
            times, drain=plan.drain, replay=plan.replay is not None, tables=self._tables_of(pass_)
        )
        if pass_.logic.clock == "stream":
            return batch
        return replace(
            batch, clock=plan.clock_ms, floor=plan.least_clock, clocks=plan.clocks, cut=plan.cut_partitions
        )

    def _tables_of(self, pass_: KernelPass) -> dict[str, str]:
        """Return the tables whose changed rows bring records to a pass, by their topics. Stages behind those
        that read the source get emissions.
        """
        if (expected := self._fed(pass_)) is not None:
            return {topic_of(expected.table): expected.table}
        reads = pass_.remembers_records or (pass_.reads_source and not pass_.is_filter)
        tables = [lookup.table for lookup in self._pipeline.reacting_lookups] if reads else []
        return {topic_of(table): table for table in tables if table in self._before.changed_tables}

    def _following_frame(
        self,
        decided: DataFrame,
        keys: Sequence[KeyTypes],
        following: Sequence[KernelPass],
        ports: Sequence[Port],
    ) -> tuple[DataFrame, list[KeyTypes]]:
        """Return emissions as the frame of the next level, in the order of their partition."""
        frame, new_keys = emission_frame(decided, keys, following, ports)
        for pass_, types in zip(following, new_keys, strict=True):
            require_usable_key(self._pipeline.pipeline, pass_.name, types)
        # reports are null in columns that are never null in other rows
        schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(frame.schema)])
        tasks = [
            TimeTask(pass_.name, number, self._before.times.get(pass_.name, {}), schema)
            for number, pass_ in enumerate(following)
        ]
        timed = timed_frame(frame, tasks, self._slots)
        return changes(timed, retracting(following)), new_keys


def _largest_state_bytes(before: Before) -> int:
    """Return the bytes on disk of the stage with the largest state."""
    return max((sum(file.bytes for file in files) for files in before.state.values()), default=0)
