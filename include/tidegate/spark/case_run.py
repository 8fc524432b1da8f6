"""Run a pipeline on the records of a case file, without Kafka, ledger or files: for case files and
`simulate`.

The passes are those of the production `Computation`, and its kernel tasks decide batch after batch, however
the input is cut. Only what surrounds them differs: the records are those of the case, the tasks run in this
process, and their state stays in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.kernel.repeats import has_hidden_values
from tidegate.ledger.records import OffsetRange, Plan, Stream
from tidegate.model.lookup import Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.spark.case_parts import (
    CaseInput,
    Cut,
    Outcome,
    Span,
    StageRun,
    StreamTimes,
    without_repeats,
)
from tidegate.spark.computation import Before, Computation
from tidegate.spark.explain import TracedOutput
from tidegate.spark.kernel_task import Forwarding, KernelTask, StageOutput
from tidegate.spark.lookups import joined
from tidegate.spark.retraction import changes
from tidegate.spark.rows import emission_frame, forwarded_schema
from tidegate.spark.session import changed
from tidegate.spark.shuffle import REPORT, SLOT, Times
from tidegate.spark.source import spark_types
from tidegate.spark.source_rows import Shape
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    keeps_input,
    record_layout,
    require_usable_key,
    source_keys,
)
from tidegate.storage.layout import Lake
from tidegate.yaml.cases import CaseRecord, Tick

Rows = Sequence[Mapping[str, Any]]
_EMISSION_ORDER = [(name, "ascending") for name in ("topic", "partition", *kernel.RANK.names)]
"""`kernel_task.TIME_ORDER`, by the names that emissions have before they are a frame."""
_NUMBER = "__number"
"""The column with an emission's number among those of all batches and runs."""


_FOR_FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    # compiling code would take longer than running it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class _Run:
    """One way to cut the input, and its outcome so far.

    Args:
        spans: the turns of each batch's rows in the frame that the pass reads.
        emitted: the numbers of each batch's emissions in the last pass.
    """

    cut: Cut
    spans: Sequence[Span]
    emitted: Sequence[Span] = ()
    outcome: Outcome = field(default_factory=Outcome)


class CaseRun(Computation):
    """A pipeline with its input, to be run under any cuts into batches. `tables`: rows of lookup tables;
    `reading`: in place of that of the pipeline.

    Calls of Spark take most of the time of a case, so there is one per pass for all batches of all cuts: one
    frame has the rows of all of them, and `__turn` says to which batch of which run a row belongs.

    Example: `CaseRun(spark, pipeline, inputs).run_all([[2]])` ends a batch before record 2.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        case_inputs: Sequence[CaseRecord | Tick],
        tables: Mapping[str, Rows] | None = None,
        trace: bool = False,
        reading: Reading | None = None,
    ) -> None:
        self.input = CaseInput(case_inputs)
        plan, lake = _nowhere(pipeline, len(self.input.records))
        if reading is None and not trace:  # a trace has each record
            reading = reading_of(pipeline)
        super().__init__(spark, plan, pipeline, lake, Before(), reading)
        self._tables = tables or {}
        self._trace = trace
        self._runs: list[_Run] = []
        # Records that an earlier pass has dropped advance stream time, too. None: the rows themselves do.
        self._arrivals: pa.RecordBatch | None = None
        # None: Spark makes the first stage's rows.
        self._source_rows: pa.RecordBatch | None = None

    def run_all(self, cuts: Sequence[Sequence[int]] = ((),)) -> list[Outcome]:
        """Return for each of `cuts` the outcome if a batch ends before each record number in it; ticks always
        end a batch.

        Raises PipelineInvalid if an expression cannot be evaluated.
        """
        with changed(self._spark, _FOR_FEW_ROWS):
            return self._guarded(lambda: self._run(cuts))

    def _run(self, cuts: Sequence[Sequence[int]]) -> list[Outcome]:
        number = len(self.input.records)
        # Each run has turns of its own, so that one frame of Spark evaluates the expressions of all runs.
        self._runs = [
            _Run(cut, [(run * number + start, run * number + end) for start, end in cut.spans])
            for run, cut in enumerate(map(self.input.cut, cuts))
        ]
        frame = self._read()
        keys = source_keys(self._pipeline)
        for place in range(len(self._passes)):
            frame, keys = self._apply_pass(place, frame, keys, "")
        return [run.outcome for run in self._runs]

    # the source

    def _read(self) -> DataFrame:
        """Return the decoded records, once for each run, with the columns of lookups; or already as the rows
        of the first stage.
        """
        decoded = self.input.decoded(self._pipeline.source, keeps_input(self._passes))
        arrivals = _arrivals(decoded)
        time = StreamTimes().advance(arrivals) if self._keeps_time else None
        firsts = [run * len(self.input.records) for run in range(len(self._runs))]
        self._arrivals = pa.concat_batches([_later(arrivals, "turn", first) for first in firsts])
        maker = self._rows_of_source(record_layout(self._pipeline.source))
        if maker is not None:
            rows = maker.of_records(decoded, time)
            self._source_rows = pa.concat_batches([_later(rows, "turn", first) for first in firsts])
            return self._frame(pa.Table.from_batches([self._source_rows]))
        if time is not None:
            decoded = decoded.append_column("__time", time)
        filled = decoded.filter(pc.invert(decoded.column("__empty"))).drop_columns(["__empty"])
        frame = self._frame(pa.Table.from_batches([_later(filled, "__turn", first) for first in firsts]))
        for lookup in self._pipeline.lookup:
            frame = joined(frame, lookup, self._table(lookup), self._pipeline)
        return frame

    def _frame(self, rows: pa.Table) -> DataFrame:
        """Return rows as a frame, with the columns of reports, which are null."""
        for name, type_ in ((REPORT, pa.string()), (SLOT, pa.int32())):
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, type_))
        # exactly one batch: Spark refuses a table without batches, and stops reading at an empty batch
        table = pa.Table.from_batches([_one_batch(rows)])
        return self._spark.createDataFrame(table, spark_types(rows.schema))

    def _table(self, lookup: Lookup) -> DataFrame:
        rows = self._tables.get(lookup.table)
        if rows is None:
            raise SettingsInvalid(
                f"There are no rows for the lookup table {lookup.table}",
                f"Write them into the case: `tables: {{{lookup.table}: [{{…}}]}}`.",
            )
        names = [*lookup.on, *lookup.columns]
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        return F.broadcast(self._spark.createDataFrame(table))

    # passes

    def _shape(self, pass_: KernelPass) -> Shape:
        # The order in a case is the order in the partition, whatever the offsets are.
        return replace(super()._shape(pass_), ranked=True)

    def _batch(self, pass_: KernelPass) -> kernel.Batch:
        return kernel.Batch({}, trace=self._trace)  # `StageRun` knows the times and the clock of each batch

    def _output(
        self, pass_: KernelPass, following: KernelPass | None, rows: pa.Schema, keys: KeyTypes, attempt: str
    ) -> StageOutput:
        del following, keys, attempt
        # It is never opened: a `StageRun` takes what the kernel decides, also in the last pass.
        forwarding = Forwarding(forwarded_schema(pass_.logic, rows), emissions=True, slots=1)
        return TracedOutput(pass_.name, "", False, forwarding)

    def _bounded(self, rows: DataFrame, task: KernelTask) -> DataFrame:
        return self._decided(rows, task, task.output.forwarding.schema)

    def _decided(self, rows: DataFrame, task: KernelTask, schema: pa.Schema) -> DataFrame:
        """Apply the kernel for all runs, and return their emissions, in the order of their partition."""
        records, self._source_rows = self._source_rows, None
        if records is None:
            records = _one_batch(rows.toArrow())
        names = [name for name in ("turn", "part") if name in records.schema.names]
        records = records.sort_by([(name, "ascending") for name in names])
        tables: list[pa.Table] = [schema.empty_table()]
        is_last, number = task.name == self._passes[-1].name, 0
        for run in self._runs:
            emitted = self._run_pass(task, records, run)
            ends = list(accumulate((table.num_rows for table in emitted), initial=number))
            run.emitted, number = list(pairwise(ends)), ends[-1]
            tables += [table.sort_by(_EMISSION_ORDER) for table in emitted]
            if is_last:
                run.outcome.emit(emitted)
        if is_last:
            return rows  # no pass reads the emissions of the last one, and a frame of them takes a while
        return self._frame(pa.concat_tables(tables).append_column(_NUMBER, pa.arange(0, number)))

    def _run_pass(self, task: KernelTask, records: pa.RecordBatch, run: _Run) -> list[pa.Table]:
        """Apply a pass for one run, batch after batch, and return the emissions of each, up to a batch that
        fails.
        """
        emitted: list[pa.Table] = []
        if run.outcome.error is not None:
            return emitted
        stage, times, arrivals = StageRun(task), StreamTimes(), self._arrivals
        try:
            for span, clock in zip(run.spans, run.cut.clocks, strict=True):
                batch = _within(records, span)
                if self._keeps_time:
                    before = times.advance(batch if arrivals is None else _within(arrivals, span))
                    batch = batch if arrivals is not None else _with_time(batch, before)
                stage, decided = self._applied(stage, batch, times.now, clock)
                emitted.append(decided)
        except TidegateError as error:
            # Only this run has failed. The others go on: every cut must fail in the same way.
            run.outcome.error = error
        run.outcome.include(task.name, stage)
        return emitted

    def _applied(
        self, stage: StageRun, rows: pa.RecordBatch, times: Times, clock: int | None
    ) -> tuple[StageRun, pa.Table]:
        """Apply a batch, as `compute_batch` does: first without the records that repeat others, if they are
        dropped where they are read.
        """
        compared = self._reading.compared if stage.name == self._passes[0].name else None
        if compared is not None:
            dropped, attempt = kernel.Counts(), stage.copy()
            emitted = attempt.apply(without_repeats(rows, compared, dropped), times, clock)
            if not has_hidden_values(attempt.counts - stage.counts):
                attempt.counts.include(dropped)
                return attempt, emitted
        return stage, stage.apply(rows, times, clock)

    def _following_frame(
        self, decided: DataFrame, keys: KeyTypes, following: KernelPass
    ) -> tuple[DataFrame, KeyTypes]:
        turn = F.col(_NUMBER)
        frame, keys = emission_frame(
            *(decided, keys, following.key, following.takes_deletions, turn), retracts=following.retracts
        )
        if following.retracts:
            frame = changes(frame)
        require_usable_key(self._pipeline.pipeline, following.name, keys)
        self._arrivals = None
        for run in self._runs:
            run.spans = run.emitted
        return frame, keys


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


def _later(rows: pa.RecordBatch, turn: str, by: int) -> pa.RecordBatch:
    """Return the rows with their turns increased."""
    place = rows.schema.get_field_index(turn)
    return rows.set_column(
        place, rows.schema.field(place), pc.add(rows.column(turn), pa.scalar(by, pa.int64()))
    )


def _with_time(rows: pa.RecordBatch, before: pa.Int64Array) -> pa.RecordBatch:
    place = rows.schema.get_field_index("time")
    return rows.set_column(place, rows.schema.field(place), before)


def _within(rows: pa.RecordBatch, span: Span) -> pa.RecordBatch:
    """Return the rows of a span; rows are in the order of their turns."""
    start, end = np.searchsorted(rows.column("turn").to_numpy(), span)
    return rows.slice(start, end - start)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    # `concat_batches` refuses an empty list, and a table without rows may have no batches.
    return pa.concat_batches([pa.RecordBatch.from_pylist([], rows.schema), *rows.to_batches()])
