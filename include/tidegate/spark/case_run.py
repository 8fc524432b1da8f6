"""Run a pipeline on the records of a case file, without Kafka, ledger or files: for case files and
`simulate`.

Records are decoded, and Spark evaluates the expressions, as in production; then the kernel is called
directly, batch after batch, however the input is cut. Several ways to cut are computed together, so that
Spark is called once per pass of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.model.lookup import Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.spark.case_parts import CaseInput, Cut, Outcome, Span, StageRun, StreamTimes
from tidegate.spark.errors import translated
from tidegate.spark.kernel_task import complete, forwarded
from tidegate.spark.lookups import joined
from tidegate.spark.rows import Shape, emission_frame, forwarded_schema, kernel_schema, record_rows
from tidegate.spark.semantics import pin_semantics
from tidegate.spark.session import changed, prepare
from tidegate.spark.shuffle import REPORT, SLOT
from tidegate.spark.source import spark_types
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    keeps_input,
    keeps_time,
    packed,
    passes_of,
    require_usable_key,
    source_keys,
    typed,
)
from tidegate.yaml.cases import CaseRecord, Tick

Rows = Sequence[Mapping[str, Any]]
_EMISSION_ORDER = [(name, "ascending") for name in ("topic", "partition", *kernel.RANK.names)]
"""`time_task.ORDER`, by the names that emissions have before they are a frame."""
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
    """One way to cut the input, and its outcome so far."""

    cut: Cut
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(frozen=True)
class _Input:
    """The input of a pass, for all runs in one frame: `__turn` says to which batch of which run a row
    belongs.

    `spans` has the turns of each batch of each run. `arrivals` are the rows that advance stream time, in
    columns of the kernel's rows, if they are not the rows of the frame: records that an earlier pass has
    dropped advance time, too.
    """

    frame: DataFrame
    keys: KeyTypes
    spans: Sequence[Sequence[Span]]
    arrivals: pa.RecordBatch | None = None


@dataclass(frozen=True)
class _Decided:
    """The result of a pass: the emissions of each batch of each run, up to a batch that failed.

    `bypassing` are the records that a pass which drops repeated values does not see.
    """

    kernel_pass: KernelPass
    rows: pa.Schema
    emissions: Sequence[Sequence[pa.Table]]
    bypassing: pa.StructArray

    @property
    def emitted(self) -> list[pa.Table]:
        """The emissions of all batches, run after run."""
        return [table for tables in self.emissions for table in tables]


class CaseRun:
    """A pipeline with its input, to be run under any cut into batches. `tables`: rows of lookup tables.

    Example: `CaseRun(spark, pipeline, inputs).run([2])` ends a batch before record 2.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        case_inputs: Sequence[CaseRecord | Tick],
        tables: Mapping[str, Rows] | None = None,
        trace: bool = False,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._tables = tables or {}
        self._trace = trace
        self._passes = passes_of(pipeline)
        self._keeps_time = keeps_time(self._passes)
        self.input = CaseInput(case_inputs)

    def run(self, cuts: Sequence[int] = ()) -> Outcome:
        """Return the outcome if a batch ends before each record number in `cuts`; ticks always end a batch.

        Raises PipelineInvalid if an expression cannot be evaluated.
        """
        return self.run_all([cuts])[0]

    def run_all(self, cuts: Sequence[Sequence[int]]) -> list[Outcome]:
        """Return the outcomes of several cuts. Raises PipelineInvalid if an expression cannot be
        evaluated.
        """
        runs = [_Run(self.input.cut(places)) for places in cuts]
        pin_semantics(self._spark)
        prepare(self._spark, len(self.input.records))
        with translated(self._pipeline), changed(self._spark, _FOR_FEW_ROWS):
            read = self._source([run.cut for run in runs])
            for pass_, following in zip(self._passes, [*self._passes[1:], None], strict=True):
                decided = self._decide(pass_, read, runs)
                if following is None:
                    _finish(runs, decided)
                elif pass_.is_filter:
                    read = self._unrepeated(read, decided)
                else:
                    read = self._following(decided, read.keys, following)
        return [run.outcome for run in runs]

    # the source

    def _source(self, cuts: Sequence[Cut]) -> _Input:
        """Return the decoded records, once for each run."""
        decoded = self.input.decoded(self._pipeline.source, keeps_input(self._passes))
        arrivals = _arrivals(decoded)
        if self._keeps_time:
            decoded = decoded.append_column("__time", StreamTimes().advance(arrivals))
        number = len(self.input.records)
        # Each run has turns of its own, so that one frame of Spark evaluates the expressions of all runs.
        firsts = [run * number for run in range(len(cuts))]
        filled = decoded.filter(pc.invert(decoded.column("__empty"))).drop_columns(["__empty"])
        frame = self._frame(pa.Table.from_batches([_later(filled, "__turn", first) for first in firsts]))
        return _Input(
            self._enriched(frame),
            source_keys(self._pipeline, frame),
            [
                [(first + start, first + end) for start, end in cut.spans]
                for first, cut in zip(firsts, cuts, strict=True)
            ],
            pa.concat_batches([_later(arrivals, "turn", first) for first in firsts]),
        )

    def _frame(self, rows: pa.Table) -> DataFrame:
        """Return rows as a frame, with the columns of reports, which are null."""
        for name, type_ in ((REPORT, pa.string()), (SLOT, pa.int32())):
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, type_))
        # exactly one batch: Spark refuses a table without batches, and stops reading at an empty batch
        table = pa.Table.from_batches([_one_batch(rows)])
        return self._spark.createDataFrame(table, spark_types(rows.schema))

    def _enriched(self, frame: DataFrame) -> DataFrame:
        for lookup in self._pipeline.lookup:
            frame = joined(frame, lookup, self._table(lookup), self._pipeline)
        return frame

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

    def _decide(self, pass_: KernelPass, read: _Input, runs: Sequence[_Run]) -> _Decided:
        """Apply one pass for all runs."""
        frame = read.frame
        if pass_.is_filter:
            frame = packed(frame, pass_, self._pipeline)
        exploded = read.arrivals is not None and self._pipeline.source.explode is not None
        shape = Shape(self._keeps_time, exploded, ranked=True)
        selected = record_rows(frame, pass_, shape, self._pipeline.pipeline)
        schema = kernel_schema(selected, pass_.logic)
        pass_ = typed(pass_, schema.field("value").type, read.keys)
        rows = _one_batch(selected.toArrow())
        bypassing = rows.slice(0, 0)
        if "bypasses" in rows.schema.names:
            bypassing, rows = (
                rows.filter(rows.column("bypasses")),
                rows.filter(pc.invert(rows.column("bypasses"))),
            )
        rows = complete(rows, schema).sort_by([("turn", "ascending"), ("part", "ascending")])
        emitted = [
            self._run_pass(pass_, rows, read.arrivals, spans, run)
            for spans, run in zip(read.spans, runs, strict=True)
        ]
        return _Decided(pass_, schema, emitted, bypassing.column("value"))

    def _run_pass(
        self,
        pass_: KernelPass,
        rows: pa.RecordBatch,
        arrivals: pa.RecordBatch | None,
        spans: Sequence[Span],
        run: _Run,
    ) -> list[pa.Table]:
        """Apply a pass for one run, batch after batch, and return the emissions of each.

        Without `arrivals`, the rows themselves advance time, and get it here.
        """
        emitted: list[pa.Table] = []
        if run.outcome.error is not None:
            return emitted
        stage, times = StageRun(pass_.logic, rows.schema, self._trace), StreamTimes()
        try:
            for span, clock in zip(spans, run.cut.clocks, strict=True):
                batch = _within(rows, span)
                if self._keeps_time:
                    before = times.advance(batch if arrivals is None else _within(arrivals, span))
                    batch = batch if arrivals is not None else _with_time(batch, before)
                emitted.append(stage.apply(batch, times.now, clock))
        except TidegateError as error:
            # Only this run has failed. The others go on: every cut must fail in the same way.
            run.outcome.error = error
        run.outcome.include(pass_.name, stage)
        return emitted

    # between passes

    def _unrepeated(self, read: _Input, decided: _Decided) -> _Input:
        """Return the records that repeat none, and those that nothing can repeat, unchanged."""
        values = [chunk for table in decided.emitted for chunk in table["value"].chunks]
        records = pa.chunked_array(
            [pc.struct_field(value, "frame") for value in (*values, decided.bypassing)]
        )
        return replace(read, frame=self._frame(pa.Table.from_struct_array(records)))

    def _following(self, decided: _Decided, keys: KeyTypes, following: KernelPass) -> _Input:
        """Return emissions as the next pass's input, in the order of their partition."""
        schema = forwarded_schema(decided.kernel_pass.logic, decided.rows)
        ordered = [
            forwarded(part, schema)
            for table in decided.emitted
            for part in table.sort_by(_EMISSION_ORDER).to_batches()
        ]
        rows = pa.Table.from_batches(ordered, schema)
        rows = rows.append_column(_NUMBER, pa.arange(0, rows.num_rows))
        frame, keys = emission_frame(
            self._frame(rows), keys, following.key, following.takes_deletions, turn=F.col(_NUMBER)
        )
        require_usable_key(self._pipeline.pipeline, following.name, keys)
        return _Input(frame, keys, _spans(decided.emissions))


def _finish(runs: Sequence[_Run], decided: _Decided) -> None:
    for run, emissions in zip(runs, decided.emissions, strict=True):
        for table in emissions:
            run.outcome.emit(table)


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


def _spans(emissions: Sequence[Sequence[pa.Table]]) -> list[list[Span]]:
    """Return the numbers of each batch's emissions, for each run."""
    spans: list[list[Span]] = []
    end = 0
    for tables in emissions:
        spans.append([])
        for table in tables:
            spans[-1].append((end, end + table.num_rows))
            end += table.num_rows
    return spans
