"""Run a pipeline on the records of a case file, without Kafka, ledger or files: for case files and
`simulate`.

The passes are those of the production `Computation`, and its kernel tasks decide batch after batch, however
the input is cut. Only what surrounds them differs: the records are those of the case, the tasks run in this
process, and their state stays in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel
from tidegate.errors import TidegateError
from tidegate.kernel.repeats import has_hidden_values
from tidegate.kernel.rows import with_column
from tidegate.kernel.tables import topic_of
from tidegate.ledger.records import OffsetRange, Plan, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.model.sources import Sources
from tidegate.model.tables import Expected
from tidegate.spark.case_parts import (
    CaseInput,
    Cut,
    Outcome,
    Span,
    StageRun,
    StreamTimes,
    emitted_of,
    without_repeats,
)
from tidegate.spark.case_tables import CaseTables, Rows, moved
from tidegate.spark.computation import Before, Computation, Frames, PlannedBatch
from tidegate.spark.explain import TracedOutput
from tidegate.spark.frames import emission_frame, readers_of_source
from tidegate.spark.kernel_task import Forwarding, KernelTask, StageOutput
from tidegate.spark.level import LevelRows
from tidegate.spark.lookups import expected_rows, joined, rejoined
from tidegate.spark.retraction import changes, retracting
from tidegate.spark.session import changed
from tidegate.spark.shuffle import REPORT, TO, Times, value_column
from tidegate.spark.source import spark_types
from tidegate.spark.source_rows import RecordRows, Shape, for_passes
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    Port,
    keeps_input,
    require_usable_key,
    unpacked,
)
from tidegate.stage_names import late_name
from tidegate.storage.layout import Lake
from tidegate.yaml.cases import CaseStep

_EMISSION_ORDER = [(name, "ascending") for name in ("topic", "partition", *kernel.RANK.names, TO)]
"""`level.TIME_ORDER`, by the names that emissions have before they are a frame."""
_NUMBER = "__number"
"""The column with an emission's number among those of all batches and runs."""


_FOR_FEW_ROWS = {
    # compiling code would take longer than running it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class _Run:
    """One way to cut the input, and its outcome so far.

    Args:
        spans: the turns of each batch's records.
        emissions: pass -> the emissions of each batch.
        emitted: the inputs of a pass -> the numbers of each batch's emissions of all of them.
    """

    cut: Cut
    spans: Sequence[Span]
    outcome: Outcome = field(default_factory=Outcome)
    emissions: dict[str, Sequence[pa.Table]] = field(default_factory=dict)
    emitted: dict[tuple[str, ...], Sequence[Span]] = field(default_factory=dict)


class CaseRun(Computation):
    """A pipeline with its input, to be run under any cuts into batches. `tables`: rows of lookup tables;
    `reading`: in place of that of the pipeline; `stages`: those whose emissions are outcomes, beside the last
    one's.

    Calls of Spark take most of the time of a case, so there is one per pass for all batches of all cuts: one
    frame has the rows of all of them, and `__turn` says to which batch of which run a row belongs.

    Example: `CaseRun(spark, pipeline, inputs).run_all([[2]])` ends a batch before record 2.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        case_inputs: Sequence[CaseStep],
        tables: Mapping[str, Rows] | None = None,
        trace: bool = False,
        reading: Reading | None = None,
        stages: Collection[str] = (),
    ) -> None:
        self.input = CaseInput(case_inputs)
        plan, lake = _nowhere(pipeline, len(self.input.steps))
        if reading is None and not trace:  # a trace has each record
            reading = reading_of(pipeline)
        changed = frozenset(lookup.table for lookup in pipeline.reacting_lookups)
        before = Before(changed_tables=changed)
        super().__init__(spark, PlannedBatch(plan, pipeline, lake, before), reading)
        self._changing = changed
        # The step of a table's change -> last records and times before it, and the records that come again.
        self._rejoined: dict[int, list[tuple[pa.Table, Times, pa.Table]]] = {}
        self._tables = CaseTables(spark, tables or {}, self.input.tables)
        self._trace = trace
        self._stages = stages
        self._runs: list[_Run] = []
        whole, sources = keeps_input(self._passes), pipeline.sources
        self._records = {
            name: _Records.decode(self.input, sources, name, whole, self._keeps_time) for name in sources
        }
        # A pass and the version of its table -> the rows of the keys that it expects.
        self._expected: dict[tuple[str, int], pa.Table] = {}
        self._source_frames: Frames = {}
        # The inputs of a pass -> their emissions in all runs, as frame.
        self._frames: dict[tuple[str, ...], DataFrame] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._keys: dict[str, KeyTypes] = {}

    def run_all(self, cuts: Sequence[Sequence[int]] = ((),)) -> list[Outcome]:
        """Return for each of `cuts` the outcome if a batch ends before each record number in it; ticks always
        end a batch.

        Raises PipelineInvalid if an expression cannot be evaluated.
        """
        with changed(self._spark, _FOR_FEW_ROWS):
            return self._guarded(lambda: self._run(cuts))

    def _run(self, cuts: Sequence[Sequence[int]]) -> list[Outcome]:
        number = len(self.input.steps)
        # Each run has turns of its own, so that one frame of Spark evaluates the expressions of all runs.
        self._runs = [
            _Run(cut, [(run * number + start, run * number + end) for start, end in cut.spans])
            for run, cut in enumerate(map(self.input.cut, cuts))
        ]
        # `_guarded` runs again with other expressions
        self._frames = {}
        if not self._reading.selects:
            self._source_frames = {
                name: self._decoded_frame(*records) for name, records in self._records.items()
            }
        for pass_ in self._passes:
            self._run_pass(pass_)
        return [run.outcome for run in self._runs]

    # the source

    @property
    def _firsts(self) -> list[int]:
        """The turn of the first record in each run."""
        return [run * len(self.input.steps) for run in range(len(self._runs))]

    def _decoded_frame(self, decoded: pa.RecordBatch, time: pa.Int64Array | None) -> DataFrame:
        """Return the decoded records of a source, once for each run, with the columns of lookups."""
        if time is not None:
            decoded = decoded.append_column("__time", time)
        filled = decoded.filter(pc.invert(decoded.column("__empty"))).drop_columns(["__empty"])
        # records between two changes of tables are joined with the same rows
        frames = [self._joined_frame(_within(filled, span, "__turn"), span[0]) for span in self._tables.spans]
        return reduce(DataFrame.unionByName, frames)

    def _joined_frame(self, decoded: pa.RecordBatch, turn: int) -> DataFrame:
        """Return decoded records, once for each run, with the columns of lookups as of a turn."""
        frame = self._frame(pa.Table.from_batches([_later(decoded, "__turn", by) for by in self._firsts]))
        for lookup in self._pipeline.lookup:
            frame = joined(frame, lookup, self._tables.of_lookup(lookup, turn), self._pipeline)
        return frame

    def _rejoined_rows(
        self, pass_: KernelPass, stage: StageRun, step: int, first: int, times: Times
    ) -> pa.Table:
        """Return the last records whose looked-up row changes at a step, as rows of the pass that remembers
        them.

        Args:
            pass_: the pass.
            stage: its state.
            step: the number of the change among the inputs.
            first: the turn of the run's first record.
            times: the times of the topic-partitions before the change.
        """
        last = pa.Table.from_struct_array(pc.struct_field(stage.values, "frame")).drop_columns(["__turn"])
        # most runs have the same last records, and a call of Spark takes a while
        for before, before_times, rows in self._rejoined.setdefault(step, []):
            if before_times == times and before.equals(last):
                return moved(rows, first)
        (source,) = pass_.sources
        records = self._input_frames(pass_)[0][source].where(F.lit(False))
        tables = {
            lookup.table: self._tables.of_lookup(lookup, step) for lookup in self._pipeline.reacting_lookups
        }
        changed = self._tables.changed_at(step)
        again = rejoined(self._frame(last), records, self._pipeline, tables, changed, step, times)
        again = again.withColumn("__turn", F.lit(step).cast("long"))
        rows = self._rows([pass_], {source: again}, [])[0].frame.toArrow()
        self._rejoined[step].append((last, times, rows))
        return moved(rows, first)

    def _expected_rows(self, pass_: KernelPass, expected: Expected, schema: pa.Schema, step: int) -> pa.Table:
        """Return the keys of a table at a step as rows of the stage that expects them."""
        key = (pass_.name, self._tables.version(expected.table, step))
        if key not in self._expected:
            table = self._tables.frame(expected.table, expected.key, step)
            types = self._keys[pass_.name]
            rows = expected_rows(table, expected, types, spark_types(schema), (0, pass_.name), max(step, 0))
            self._expected[key] = rows.toArrow().cast(schema)
        return self._expected[key]

    def _source_rows(self, pass_: KernelPass) -> pa.RecordBatch:
        """Return the rows of a stage that are made where records are read, once for each run."""
        stage = self._rows_of_stage(pass_)
        rows = [
            RecordRows((stage,)).of_stage(0, stage.of_records(*self._records_for(pass_, name)))
            for name in pass_.sources
        ]
        return pa.concat_batches([_later(piece, "turn", by) for by in self._firsts for piece in rows])

    def _records_for(self, pass_: KernelPass, source: str) -> _Records:
        """Return the decoded records of a source that a pass gets."""
        level = self._levels[0]
        decoded = for_passes(readers_of_source(source, level), *self._records[source])
        return next(_Records(*rows) for number, rows in decoded if level[number] is pass_)

    def _frame(self, rows: pa.Table) -> DataFrame:
        """Return rows as a frame: no row is a report, and all go to pass 0, the only one of its level."""
        if REPORT not in rows.column_names:
            rows = rows.append_column(REPORT, pa.nulls(rows.num_rows, pa.string()))
            rows = rows.append_column(TO, pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows))
        # exactly one batch: Spark refuses a table without batches, and stops reading at an empty batch
        table = pa.Table.from_batches([_one_batch(rows)])
        return self._spark.createDataFrame(table, spark_types(rows.schema))

    # passes

    def _shape(self, level: Sequence[KernelPass]) -> Shape:
        # The order in a case is the order in the partition, whatever the offsets are.
        return replace(super()._shape(level), ranked=True)

    def _batch(self, pass_: KernelPass) -> kernel.Batch:
        # `StageRun` knows the times and the clock of each batch
        return kernel.Batch({}, trace=self._trace, tables=self._tables_of(pass_))

    def _output(
        self, pass_: KernelPass, rows: pa.Schema, keys: KeyTypes, forwarding: Forwarding, attempt: str
    ) -> StageOutput:
        del rows, keys, attempt
        # It is never opened: a `StageRun` takes what the kernel decides, also in the last pass.
        return TracedOutput(pass_.name, "", False, forwarding)

    def _run_pass(self, pass_: KernelPass) -> None:
        """Apply a pass for all runs."""
        if pass_.reads_source and self._reading.selects:
            records = self._source_rows(pass_)
            rows = LevelRows.of_frame(self._frame(pa.Table.from_batches([records])))
            types = self._source_key(pass_, {})
        else:
            rows, (types,) = self._rows([pass_], *self._input_frames(pass_))
            records = _one_batch(rows.frame.toArrow())
        (task,) = self._tasks([pass_], [Port(0, 0)], rows.columns, [types], "")
        columns = [name for name in ("turn", "part") if name in records.schema.names]
        records = records.sort_by([(name, "ascending") for name in columns])
        self._keys[pass_.name] = types
        self._schemas[pass_.name] = task.output.forwarding.schema
        for run in self._runs:
            emitted = self._decided_batches(pass_, task, records, run)
            run.emissions[pass_.name] = emitted
            may_lack_keys = pass_.stage is not None and self._pipeline.may_lack_keys(pass_.stage)
            if pass_ is self._passes[-1]:
                run.outcome.emissions = emitted_of(emitted, may_lack_keys=may_lack_keys)
            if pass_.name in self._stages:
                run.outcome.stages[pass_.name] = emitted_of(emitted, may_lack_keys=may_lack_keys)

    def _emissions_frame(self, inputs: tuple[str, ...]) -> DataFrame:
        """Return the emissions of all inputs of a pass, numbered in the order of the partitions."""
        if inputs not in self._frames:  # a frame takes a while, and branches share it
            schema = _sides_schema([self._schemas[name] for name in inputs])
            tables, number = [schema.empty_table()], 0
            for run in self._runs:
                batches = zip(*(run.emissions[name] for name in inputs), strict=False)
                sorted_ = [_sides(batch, schema).sort_by(_EMISSION_ORDER) for batch in batches]
                ends = list(accumulate((table.num_rows for table in sorted_), initial=number))
                run.emitted[inputs], number = list(pairwise(ends)), ends[-1]
                tables += sorted_
            numbered = pa.concat_tables(tables).append_column(_NUMBER, pa.arange(0, number))
            emissions = self._frame(numbered)
            is_filter = any(pass_.is_filter for pass_ in self._passes if pass_.name in inputs)
            self._frames[inputs] = unpacked(emissions) if is_filter else emissions
        return self._frames[inputs]

    def _input_frames(self, pass_: KernelPass) -> tuple[Frames, list[KeyTypes]]:
        """Return the frames of a pass, in the order of the partitions, and the columns of its key."""
        if "" in pass_.inputs:
            return {name: self._usable_by(pass_, name) for name in pass_.sources}, []
        frame = self._emissions_frame(pass_.inputs)
        if pass_.reads_source:
            # Only the first pass gets records that cannot be used.
            return dict.fromkeys(pass_.sources, frame.where(F.col("__reason").isNull())), []
        keys = [self._keys[name] for name in pass_.inputs]
        ports = [Port(0, side, side) for side in range(len(pass_.inputs))]
        frame, (types,) = emission_frame(frame, keys, [pass_], ports, F.col(_NUMBER))
        require_usable_key(self._pipeline.pipeline, pass_.name, types)
        return {"": changes(frame, retracting([pass_]))}, [types]

    def _usable_by(self, pass_: KernelPass, source: str) -> DataFrame:
        """Return the records of a source that a pass gets: others than its first reader no unusable ones."""
        frame, level = self._source_frames[source], self._levels[0]
        is_first = level[readers_of_source(source, level)[0]] is pass_
        return frame if is_first else frame.where(F.col("__reason").isNull())

    def _decided_batches(
        self, pass_: KernelPass, task: KernelTask, records: pa.RecordBatch, run: _Run
    ) -> list[pa.Table]:
        """Apply a pass for one run, batch after batch, and return the emissions of each, up to a batch that
        fails.

        Args:
            pass_: the pass.
            task: its task.
            records: its rows of all runs.
            run: the run.
        """
        emitted: list[pa.Table] = []
        if run.outcome.error is not None:
            return emitted
        stage, times = StageRun(task), StreamTimes()
        # Records that an earlier pass has dropped advance stream time, too.
        arrivals = self._arrivals(pass_.sources) if pass_.reads_source else None
        spans = run.spans if pass_.reads_source else run.emitted[pass_.inputs]
        expected = None if pass_.stage is None else pass_.stage.expected
        try:
            first = self._firsts[self._runs.index(run)]
            for span, clock in zip(spans, run.cut.clocks, strict=True):
                batch = _within(records, span)
                step = run.spans[len(emitted)][0] - first
                if pass_.remembers_records and set(self._tables.changed_at(step)) & self._changing:
                    again = self._rejoined_rows(pass_, stage, step, first, times.now)
                    batch = _one_batch(pa.concat_tables([again.cast(records.schema), pa.table(batch)]))
                is_fed = not any(at >= 0 for at in times.now.values()) or bool(
                    expected and expected.table in self._tables.changed_at(step)
                )
                starts = times.now
                if self._keeps_time:
                    before = times.advance(batch if arrivals is None else _within(arrivals, span))
                    batch = batch if arrivals is not None else with_column(batch, "time", before)
                if expected is not None and is_fed:
                    fed = self._expected_rows(pass_, expected, records.schema, step)
                    batch = _one_batch(pa.concat_tables([fed, pa.table(batch)]))
                    starts = {**times.firsts, **starts}
                    stage.feed(starts, {topic_of(expected.table): expected.table})
                stage, decided = self._next_batch(stage, batch, times.now, clock)
                emitted.append(decided)
        except TidegateError as error:
            # Only this run has failed. The others go on: every cut must fail in the same way.
            run.outcome.error = error
        run.outcome.include(task.name, stage)
        if late_name(task.name) in self._stages:
            run.outcome.stages[late_name(task.name)] = emitted_of(stage.late, "value")
        return emitted

    def _arrivals(self, sources: Sequence[str]) -> pa.RecordBatch:
        """Return the rows of sources that advance time, in the order of their turns."""
        arrivals = pa.concat_batches([self._records[name].arrivals(self._firsts) for name in sources])
        return arrivals.sort_by("turn")

    def _next_batch(
        self, stage: StageRun, rows: pa.RecordBatch, times: Times, clock: int | None
    ) -> tuple[StageRun, pa.Table]:
        """Apply a batch, as `compute_batch` does: first without the records that repeat others, if they are
        dropped where they are read.
        """
        reading = self._reading.stages.get(stage.name)
        if reading is not None and reading.compared is not None:
            dropped, attempt = kernel.Counts(), stage.copy()
            emitted = attempt.apply(without_repeats(rows, reading.compared, dropped), times, clock)
            if not has_hidden_values(attempt.counts - stage.counts):
                attempt.counts.include(dropped)
                return attempt, emitted
        return stage, stage.apply(rows, times, clock)


class _Records(NamedTuple):
    """The decoded records of a case, and the stream time before each; None: time is not kept."""

    decoded: pa.RecordBatch
    time: pa.Int64Array | None

    @classmethod
    def decode(
        cls, case_input: CaseInput, sources: Sources, source: str, keeps_input: bool, keeps_time: bool
    ) -> _Records:
        """Decode the records of a source in a case."""
        decoded = case_input.decoded(sources, source, keeps_input)
        return cls(decoded, StreamTimes().advance(_arrivals(decoded)) if keeps_time else None)

    def arrivals(self, firsts: Sequence[int]) -> pa.RecordBatch:
        """Return the rows that advance time, for runs whose turns begin with `firsts`."""
        arrivals = _arrivals(self.decoded)
        return pa.concat_batches([_later(arrivals, "turn", first) for first in firsts])


def _nowhere(pipeline: Pipeline, records: int) -> tuple[Plan, Lake]:
    """Return a plan of so many records and a lake, for a computation that reads and writes no files."""
    stream = Stream(pipeline.pipeline, pipeline.generation)
    ranges = (OffsetRange("", 0, 0, records),)
    return Plan(stream, 1, "", 0, 0, ranges, {}, "", ""), Lake("/", stream.pipeline, stream.generation)


def _arrivals(decoded: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of decoded records that advance time, in columns of the kernel's rows."""
    usable = decoded.column("__reason").is_null()
    kind = pc.if_else(usable, pa.scalar(kernel.RECORD, pa.int8()), pa.scalar(kernel.QUARANTINED, pa.int8()))
    names = ("turn", "topic", "partition", "timestamp")
    return pa.RecordBatch.from_pydict({"kind": kind} | {name: decoded.column(f"__{name}") for name in names})


def _sides_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of the emissions of several passes: each has one for its values."""
    first, *further = schemas
    values = [
        pa.field(value_column(side), schema.field(value_column(0)).type)
        for side, schema in enumerate(further, 1)
    ]
    return pa.schema([*first, *values])


def _sides(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the emissions of several passes together, with the number of the pass as the port."""
    together = [schema.empty_table()]
    for side, table in enumerate(tables):
        columns = dict(zip(table.column_names, table.columns, strict=True))
        columns[value_column(side)] = columns.pop(value_column(0))
        columns[TO] = pa.repeat(pa.scalar(side, pa.int32()), table.num_rows)
        arrays = [columns.get(field.name, pa.nulls(table.num_rows, field.type)) for field in schema]
        together.append(pa.table(arrays, schema=schema))
    return pa.concat_tables(together)


def _later(rows: pa.RecordBatch, turn: str, by: int) -> pa.RecordBatch:
    """Return the rows with their turns increased."""
    return with_column(rows, turn, pc.add(rows.column(turn), pa.scalar(by, pa.int64())))


def _within(rows: pa.RecordBatch, span: Span, turn: str = "turn") -> pa.RecordBatch:
    """Return the rows of a span; rows are in the order of their turns, which are in the column `turn`."""
    start, end = np.searchsorted(rows.column(turn).to_numpy(), span)
    return rows.slice(start, end - start)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    # `concat_batches` refuses an empty list, and a table without rows may have no batches.
    return pa.concat_batches([pa.RecordBatch.from_pylist([], rows.schema), *rows.to_batches()])
