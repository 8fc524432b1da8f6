"""A pipeline on records that are given, without Kafka, ledger or tables: for case files and `simulate`.

Spark decodes and evaluates the expressions, as in production; then the kernel is called directly, batch
after batch, however the input is cut. Several ways to cut are computed side by side, so that Spark is asked
once per step of the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.engine.errors import translated
from tidegate.engine.lookups import enrich
from tidegate.engine.rows import arrivals, record_rows, timed
from tidegate.engine.semantics import pin_semantics
from tidegate.engine.source import RECORD_SCHEMA, decode, to_json
from tidegate.engine.stage import KeyTypes, emission_frame
from tidegate.engine.steps import (
    Step,
    forwarded,
    keeps_input,
    packed,
    repeated_columns,
    source_keys,
    steps_of,
    typed,
    unpacked,
    with_following,
)
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.spec import CaseRecord, Pipeline, Tick
from tidegate.spec.lookup import Lookup

Position = tuple[str, int, int]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Emitted:
    """One emission: `value` as its JSON object, null for a deletion; why it went out, and when (`at`)."""

    key: str
    value: Any
    timestamp: int
    window: tuple[int, int] | None
    reason: str
    at: int
    source: Position


@dataclass(frozen=True)
class Fate:
    """What became of a record in a step."""

    step: str
    key: str
    source: Position
    timestamp: int
    fate: str
    at: int
    told: Any


@dataclass
class Outcome:
    """All emissions of the last stage, in order per key, and what became of the records; or why it failed."""

    emissions: list[Emitted] = field(default_factory=list)
    counts: core.Counts = field(default_factory=core.Counts)
    fates: list[Fate] = field(default_factory=list)
    error: TidegateError | None = None

    def by_key(self) -> dict[str, list[Emitted]]:
        """Key -> its emissions, in order."""
        found: dict[str, list[Emitted]] = {}
        for each in self.emissions:
            found.setdefault(each.key, []).append(each)
        return found


@dataclass
class _Run:
    """One way to cut the input: where batches end, their clocks, and what has come of it so far."""

    spans: list[tuple[int, int]]
    clocks: list[int | None]
    outcome: Outcome = field(default_factory=Outcome)


class Replay:
    """A pipeline with its input, to be run under any cut into batches. `tables`: rows of lookup tables."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        steps: Sequence[CaseRecord | Tick],
        tables: Mapping[str, Rows] | None = None,
        trace: bool = False,
    ) -> None:
        self._spark = _session_for_few_rows(spark)
        self._pipeline = pipeline
        self._tables = tables or {}
        self._trace = trace
        self._arrivals: pa.Table | None = None
        self._given = steps
        self.records = [step for step in steps if isinstance(step, CaseRecord)]
        self.ticks = [number for number, _ in _ticks(steps)]

    def run(self, cuts: Sequence[int] = ()) -> Outcome:
        """The outcome when a batch ends before each record number in `cuts`; ticks always end one."""
        return self.run_all([cuts])[0]

    def run_all(self, cuts: Sequence[Sequence[int]]) -> list[Outcome]:
        """The outcomes of several cuts. Raises PipelineInvalid when an expression cannot be evaluated."""
        runs = [self._cut(each) for each in cuts]
        with translated(self._pipeline):
            frame = self._source(runs)
            keys = source_keys(self._pipeline, frame)
            for step, following in with_following(steps_of(self._pipeline)):
                frame, keys = self._step(step, following, frame, keys, runs)
        return [run.outcome for run in runs]

    # input

    def _cut(self, cuts: Sequence[int]) -> _Run:
        """Batches end at cuts, which have no clock, and at ticks, whose clock is theirs."""
        ends: list[tuple[int, int | None]] = [(at, None) for at in cuts if 0 < at < len(self.records)]
        ends += _ticks(self._given)
        ends.sort(key=lambda end: end[0])
        if not ends or ends[-1][0] < len(self.records):
            ends.append((len(self.records), None))
        starts = [0, *(at for at, _ in ends)]
        spans = [(start, end) for start, (end, _) in zip(starts, ends, strict=False)]
        return _Run(spans, [clock for _, clock in ends])

    def _source(self, runs: Sequence[_Run]) -> DataFrame:
        """The decoded records, once for each run; `run` and `batch` say which and where."""
        clocks = _clock_of_records(self._given)
        given = [
            {**_kafka_record(record), "__clock": clock, "__arrival": number}
            for number, (record, clock) in enumerate(zip(self.records, clocks, strict=True))
        ]
        schema = f"{RECORD_SCHEMA}, __clock bigint, __arrival bigint"
        records = self._spark.createDataFrame(given, schema)
        believed_until, arrival = F.col("__clock") + core.FUTURE_MS, F.col("__arrival")
        whole = keeps_input(steps_of(self._pipeline))
        frame = decode(records, self._pipeline.source, believed_until, arrival, whole=whole)
        # the order in which records are given is that of their partition, whatever offsets they are given
        frame = timed(frame.withColumn("__turn", F.col("__arrival")), {})
        frame = enrich(frame, self._pipeline, self._open)
        batches = [
            (run, batch, first, last)
            for run, each in enumerate(runs)
            for batch, (first, last) in enumerate(each.spans)
        ]
        cut = self._spark.createDataFrame(batches, "run int, batch int, first bigint, last bigint")
        inside = (F.col("__arrival") >= F.col("first")) & (F.col("__arrival") < F.col("last"))
        return frame.join(F.broadcast(cut), inside).drop("first", "last", "__arrival")

    def _open(self, lookup: Lookup) -> DataFrame:
        rows = self._tables.get(lookup.table)
        if rows is None:
            raise SettingsInvalid(
                f"There are no rows for the lookup table {lookup.table}",
                f"Write them into the case: `tables: {{{lookup.table}: [{{…}}]}}`.",
            )
        names = [*lookup.on, *lookup.columns]
        return self._spark.createDataFrame(pa.table({n: [row.get(n) for row in rows] for n in names}))

    # steps

    def _step(
        self, step: Step, following: Step | None, frame: DataFrame, keys: KeyTypes, runs: Sequence[_Run]
    ) -> tuple[DataFrame, KeyTypes]:
        """One step for all runs; gives the frame of the next one."""
        whole = frame
        if "__empty" in frame.columns:
            frame = frame.where(~F.col("__empty")).drop("__empty")
            whole = frame
        if step.is_deduplication:
            self._arrivals = arrivals(frame, "run", "batch").toArrow()
            frame = packed(frame, repeated_columns(self._pipeline))
        rows = (
            record_rows(frame, step.values, step.where, step.logic, "run", "batch").toArrow().combine_chunks()
        )
        step = typed(step, rows.schema, keys)
        arrived = rows if self._arrivals is None else self._arrivals
        if not step.is_deduplication:
            self._arrivals = None  # also what is dropped as repeated is time to the first stage, not later
        emitted = [self._run_step(step, number, run, rows, arrived) for number, run in enumerate(runs)]
        if following is None:
            self._finish(step, pa.concat_tables(emitted), runs)
            return frame, keys
        emissions = self._spark.createDataFrame(pa.concat_tables(emitted).combine_chunks())
        if step.is_deduplication:
            return unpacked(emissions, whole, repeated_columns(self._pipeline)), keys
        following_frame, keys = emission_frame(
            forwarded(emissions, following), keys, following.key, ("run",), "batch"
        )
        return timed(following_frame, {}, ("run",)), keys

    def _run_step(self, step: Step, number: int, run: _Run, rows: pa.Table, arrived: pa.Table) -> pa.Table:
        """One run of a step, batch after batch. Gives its emissions, with the numbers of run and batch.

        `arrived`: the records that time is made of, those that a step before has dropped included.
        """
        mine = rows.filter(pc.equal(rows["run"], number))
        arrived = arrived.filter(pc.equal(arrived["run"], number))
        applied = _Batches(step, mine.schema.remove(mine.schema.get_field_index("run")), self._trace)
        emitted = [applied.none]
        for batch, clock in enumerate(run.clocks):
            if run.outcome.error is None:
                inside = mine.filter(pc.equal(mine["batch"], batch)).drop_columns(["run", "batch"])
                try:
                    applied.advance(arrived.filter(pc.equal(arrived["batch"], batch)))
                    emitted.append(applied.apply(batch, inside, clock, run.outcome))
                except TidegateError as error:
                    run.outcome.error = error
        table = pa.concat_tables(emitted)
        return table.append_column("run", pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))

    def _finish(self, step: Step, emitted: pa.Table, runs: Sequence[_Run]) -> None:
        """The last step's emissions, with values as production writes them: Spark's JSON."""
        texts = self._as_json(emitted)
        for row, text in zip(emitted.drop_columns(["value"]).to_pylist(), texts, strict=True):
            window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
            source = (row["topic"], row["partition"], row["offset"])
            value = None if text is None else json.loads(text)
            runs[row["run"]].outcome.emissions.append(
                Emitted(row["key"], value, row["timestamp"], window, row["reason"], row["at"], source)
            )

    def _as_json(self, emitted: pa.Table) -> list[str | None]:
        if not emitted.num_rows:
            return []
        numbered = pa.table({"number": pa.arange(0, emitted.num_rows), "value": emitted["value"]})
        frame = self._spark.createDataFrame(numbered.combine_chunks())
        texts = frame.select("number", to_json("value").alias("text"))
        return [row["text"] for row in sorted(texts.collect(), key=lambda row: row["number"])]


class _Batches:
    """One step of one run: state and times from batch to batch."""

    def __init__(self, step: Step, schema: pa.Schema, trace: bool) -> None:
        self._step = step
        self._trace = trace
        self._schema = schema.remove(schema.get_field_index("batch"))
        self._state = self._schema.empty_table()
        self._times: dict[tuple[str, int], int] = {}
        self._floor = -1
        output = core.output_schema(step.logic, schema)
        self.none = output.empty_table().append_column("batch", pa.array([], pa.int32()))

    def apply(self, batch: int, rows: pa.Table, clock: int | None, outcome: Outcome) -> pa.Table:
        """One batch; gives its emissions."""
        logic = self._step.logic
        runs = logic.clock == "run"
        known = core.Batch(
            self._times, clock if runs else None, self._floor if runs else -1, trace=self._trace
        )
        all_rows = pa.concat_tables([self._state, rows.select(self._schema.names)])
        order = [(name, "ascending") for name in core.order(logic)]
        sorted_rows = all_rows.take(pc.sort_indices(all_rows.select(core.order(logic)), sort_keys=order))
        batches = sorted_rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], self._schema)]
        decided = pa.Table.from_batches(core.decide(logic, batches, known))
        self._note(decided, outcome)
        self._keep(decided.filter(pc.equal(decided["kind"], core.STATE)), batch)
        self._floor = max(self._floor, -1 if clock is None else clock)
        emitted = decided.filter(pc.equal(decided["kind"], core.EMISSION))
        return emitted.append_column("batch", pa.repeat(pa.scalar(batch, pa.int32()), emitted.num_rows))

    def advance(self, rows: pa.Table) -> None:
        """The stream times after a batch, from its records."""
        records = rows.filter(pc.equal(rows["kind"], core.RECORD)).select(["topic", "partition", "timestamp"])
        newest = records.group_by(["topic", "partition"]).aggregate([("timestamp", "max")])
        for row in newest.to_pylist():
            place = (row["topic"], row["partition"])
            self._times[place] = max(row["timestamp_max"], self._times.get(place, -1))

    def _note(self, decided: pa.Table, outcome: Outcome) -> None:
        for text in decided["counts"].drop_null().to_pylist():
            outcome.counts.include(json.loads(text))
        told = decided.filter(pc.equal(decided["kind"], core.TRACE))
        names = ["key", "topic", "partition", "offset", "timestamp", "reason", "at", "told"]
        for row in told.select(names).to_pylist():
            source = (row["topic"], row["partition"], row["offset"])
            known = json.loads(row["told"])
            fate = Fate(
                self._step.name, row["key"], source, row["timestamp"], row["reason"], row["at"], known
            )
            outcome.fates.append(fate)

    def _keep(self, states: pa.Table, batch: int) -> None:
        """State rows that the kernel gave, as rows that it takes."""
        rows = states.num_rows
        columns = {name: states[name] for name in self._schema.names if name in states.column_names}
        columns["updated_seq"] = pa.repeat(pa.scalar(batch, pa.int64()), rows)
        columns["turn"] = pa.repeat(pa.scalar(-1, pa.int64()), rows)
        columns["part"] = pa.repeat(pa.scalar(0, pa.int32()), rows)
        columns["passes"] = pa.repeat(True, rows)
        for field_ in self._schema:
            if field_.name not in columns or field_.name == "value":
                columns[field_.name] = pa.nulls(rows, field_.type)
        kept = pa.table([columns[name] for name in self._schema.names], schema=self._schema)
        self._state = pa.concat_tables([self._state, kept])


def _session_for_few_rows(spark: SparkSession) -> SparkSession:
    """A session of its own on the same Spark, in which compiling code would take longer than running it."""
    session = spark.newSession()
    pin_semantics(session)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def _ticks(steps: Sequence[CaseRecord | Tick]) -> list[tuple[int, int]]:
    """How many records came before each tick, and its clock."""
    found, seen = [], 0
    for step in steps:
        if isinstance(step, Tick):
            found.append((seen, step.clock_ms))
        else:
            seen += 1
    return found


def _clock_of_records(steps: Sequence[CaseRecord | Tick]) -> Iterator[int | None]:
    """Per record, the clock of the tick that ends its batch; none after the last tick."""
    clocks: list[int | None] = []
    clock: int | None = None
    for step in reversed(steps):
        if isinstance(step, Tick):
            clock = step.clock_ms
        else:
            clocks.append(clock)
    return reversed(clocks)


def _kafka_record(record: CaseRecord) -> dict[str, Any]:
    return {
        "key": None if record.key is None else record.key.encode(),
        "value": record.payload,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp / 1000, tz=timezone.utc),
        "headers": [{"key": name, "value": text.encode()} for name, text in record.headers],
    }
