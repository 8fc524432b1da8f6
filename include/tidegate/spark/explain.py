"""Explain why a key was emitted, or not: decide a committed batch again, for one key. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidegate import kernel
from tidegate.errors import OffsetsLost
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.rows import Position
from tidegate.kernel.strategies.in_sequence import described_mark, mark
from tidegate.model.kernel_stages import DEDUPLICATION, SEQUENCE
from tidegate.spark.computation import Computation, PlannedBatch
from tidegate.spark.errors import translated
from tidegate.spark.kernel_task import Forwarding, StageOutput
from tidegate.spark.shuffle import Report, SliceReport, TraceReport
from tidegate.spark.source import RecordSource
from tidegate.spark.steps import KernelPass, KeyTypes, path_to
from tidegate.stage_names import late_name

_FILTER_NAMES = {DEDUPLICATION: "deduplicate", SEQUENCE: "sequence"}
"""The names for people of the passes that only filter records: the source's fields."""
_COLUMNS = (
    "ordinal",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "at",
    "reason",
    "window_start",
    "window_end",
)


@dataclass(frozen=True)
class TraceEvent:
    """One event of a key in a stage; events are in the order in which they happened.

    Args:
        what: a `record` came in; an `emission` was sent; a `refused` value would have been emitted but breaks
            an expectation, and is in quarantine; an `unsent` value was due, but `where` does not let it
            through, or it is as the last emission; or a `quarantined` record.
        source: the record's position.
        timestamp: epoch ms.
        at: when it happened, epoch ms.
        value: the columns that the stage selects of the record, or the emitted value (None: a deletion).
        fate: what became of the record; the reason of an emission or of quarantine; the broken expectations.
        previous: the state before a record, a mapping per entry (`window`, what was last `emitted`, how many
            records were `held`, when it was `due`).
    """

    stage: str
    what: Literal["record", "emission", "refused", "unsent", "quarantined"]
    source: Position
    timestamp: int | None
    at: int | None
    value: Any
    fate: str
    previous: Sequence[Mapping[str, Any]] = ()
    window: tuple[int, int] | None = None


def explain_batch(
    spark: SparkSession,
    batch: PlannedBatch,
    records: RecordSource,
    stage: str | None,
    key: str,
    counted: float = 0,
) -> list[TraceEvent]:
    """Return the events of a key in a committed batch, in one stage or (None) in all, from the state before
    it.

    Quarantined records have no key: records whose Kafka key is its text are included. Raises OffsetsLost if
    there are fewer records than the batch has `counted`, and the errors of `compute_batch` that occur while
    it decides.
    """
    with translated(batch.pipeline):
        return Explanation(spark, batch, stage, key).events(records, counted)


class Explanation(Computation):
    """A computation that reports its decisions about one key, and writes nothing."""

    _shows_removed: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, batch: PlannedBatch, stage: str | None, key: str) -> None:
        super().__init__(spark, batch)
        self._key = key
        if stage is not None:
            # the stages before are computed, too: the requested stage reads their emissions
            self._passes = path_to(stage, self._passes)
        self._traced_passes = {
            pass_.name
            for pass_ in self._passes
            if (stage is None or pass_.is_filter or pass_.name == stage) and not pass_.remembers_records
        }

    def events(self, records: RecordSource, counted: float = 0) -> list[TraceEvent]:
        """Return the events in the order of the passes; for stages, of the requested one or of all."""
        given = self.run(records, "")
        _require_all(sum(report.records for report in given if isinstance(report, SliceReport)), counted)
        reports = [report for report in given if isinstance(report, TraceReport)]
        return [
            event
            for pass_ in self._passes
            if pass_.name in self._traced_passes
            for event in _in_order(
                [row for report in reports if report.stage == pass_.name for row in report.rows], pass_
            )
        ]

    def _batch(self, pass_: KernelPass) -> kernel.Batch:
        return replace(super()._batch(pass_), trace=pass_.name in self._traced_passes)

    def _output(
        self, pass_: KernelPass, rows: pa.Schema, keys: KeyTypes, forwarding: Forwarding, attempt: str
    ) -> StageOutput:
        del rows, keys, attempt
        return TracedOutput(
            pass_.name, self._key, pass_.is_deduplication, forwarding, emissions=not pass_.is_filter
        )


def _require_all(records: int, counted: float) -> None:
    # Compaction moves neither the begin nor the end of a log.
    if records < counted:
        raise OffsetsLost(
            f"Kafka has only {records} of the {counted:.0f} records that the batch read: the topic is "
            "compacted",
            "`tidegate emissions` still shows what the batch sent.",
        )


def _in_order(rows: Sequence[Mapping[str, Any]], pass_: KernelPass) -> list[TraceEvent]:
    """Return quarantined records, then each emission or refused value after the record that caused it; before
    all records, if an earlier batch had that record.
    """
    unusable = [_quarantined(pass_, row) for row in rows if row["kind"] == kernel.QUARANTINED]
    records = [_record(pass_, row) for row in rows if row["kind"] == kernel.TRACE]
    emitted = sorted(
        (row for row in rows if row["kind"] == kernel.EMISSION), key=lambda row: int(row["ordinal"])
    )
    emitted += [row for row in rows if row["kind"] in (kernel.REFUSED, kernel.LATE)]
    places = {event.source: place for place, event in enumerate(records) if event.what == "record"}
    events = list(enumerate(records))
    events += [(places.get(event.source, -1), event) for event in (_emission(pass_, row) for row in emitted)]
    # The sort is stable: a record stays before the emissions that it caused.
    return unusable + [event for _, event in sorted(events, key=lambda pair: pair[0])]


def pipeline_terms(pass_name: str, key: str | None, value: Any) -> tuple[str, str | None, Any]:
    """Return stage, key and value of a traced record in the words of the pipeline file.

    Args:
        pass_name: the name of a pass; a filter becomes the name of the source's field, such as `deduplicate`.
        key: the key in the pass, such as the repeated values; None if the record could not be read.
        value: the traced value; None for a deletion, too.
    """
    if pass_name not in _FILTER_NAMES:
        return pass_name, key, value
    name = _FILTER_NAMES[pass_name]
    if value is None:
        return name, key, None
    columns = {column: part for column, part in value["frame"].items() if not column.startswith("__")}
    if pass_name == SEQUENCE:
        placed = described_mark(mark(value["sequence"], value["deleted"]))
        columns = placed if value["deleted"] else {**placed, "record": columns}
    return name, value["frame"]["__key"], columns


def _record(pass_: KernelPass, row: Mapping[str, Any]) -> TraceEvent:
    trace = json.loads(row["trace"])
    name, _, value = pipeline_terms(pass_.name, "", trace["value"])
    what: Literal["record", "unsent"] = "unsent" if "unsent" in trace else "record"
    window = None if trace.get("window") is None else (trace["window"][0], trace["window"][1])
    at = row["timestamp"], row["at"]
    return TraceEvent(name, what, _source(row), *at, value, row["reason"], trace["known"], window)


def _emission(pass_: KernelPass, row: Mapping[str, Any]) -> TraceEvent:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["value"] is None else json.loads(row["value"])
    what: Literal["emission", "refused"] = "refused" if row["kind"] == kernel.REFUSED else "emission"
    stage = late_name(pass_.name) if row["kind"] == kernel.LATE else pass_.name
    return TraceEvent(
        stage, what, _source(row), row["timestamp"], row["at"], value, row["reason"], window=window
    )


def _quarantined(pass_: KernelPass, row: Mapping[str, Any]) -> TraceEvent:
    name = _FILTER_NAMES.get(pass_.name, pass_.name)
    return TraceEvent(name, "quarantined", _source(row), row["timestamp"], None, row["text"], row["unusable"])


def _source(row: Mapping[str, Any]) -> Position:
    return row["topic"], row["partition"], row["offset"]


@dataclass(frozen=True)
class TracedOutput:
    """A `StageOutput` that keeps the kernel's rows about a key.

    Args:
        stage: the name of the pass.
        key: the key. Quarantined records have none: records whose Kafka key is its text count.
        packed: the stage drops repeated values; its keys are its own, and the record's key is within its
            value.
        forwarding: the emissions that go on to the next level.
        emissions: whether emissions are kept, too.
    """

    stage: str
    key: str
    packed: bool
    forwarding: Forwarding
    emissions: bool = True

    def open(self, slot: int) -> AbstractContextManager[TracedTask]:
        """Return the output of one try of a task."""
        return nullcontext(TracedTask(self, slot))

    def before_merge(self, forwarding: Forwarding, written: bool) -> TracedOutput:
        """Return an output that forwards to a merge, which reports the emissions unless they are `written`
        before.
        """
        return replace(self, forwarding=forwarding, emissions=self.emissions and written)


class TracedTask:
    """A `TaskOutput` that writes nothing: rows about the key go into its report, all others nowhere."""

    def __init__(self, output: TracedOutput, slot: int) -> None:
        self._output = output
        self._slot = slot
        self._rows: list[dict[str, Any]] = []

    def put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows about the key, and yield emissions for the next level."""
        # A `MergeTask` passes on emissions only, which have no column `kind` any more.
        kind = decided.column("kind")[0].as_py() if "kind" in decided.schema.names else kernel.EMISSION
        if kind == kernel.TRACE:
            self._keep(kind, self._is_about_key(decided), decided)
        elif kind == kernel.REFUSED:
            self._keep(kind, pc.equal(decided.column("key"), self._output.key), decided)
        elif kind == kernel.QUARANTINED:
            keys = pc.struct_field(decided.column("input"), "key")
            self._keep(kind, pc.equal(keys, self._output.key.encode()), decided)
        elif kind == kernel.LATE:
            self._keep(kind, self._is_about_key(decided), kernel.late_emissions(decided))
        elif kind == kernel.EMISSION:
            if self._output.emissions:
                self._keep(kind, self._is_about_key(decided), decided)
            yield from self._output.forwarding.rows(decided)

    def reports(self) -> list[Report]:
        """Return a report of the kept rows."""
        return [TraceReport(self._output.stage, self._slot, tuple(self._rows))]

    def _is_about_key(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        if not self._output.packed:
            return pc.equal(rows.column("key"), self._output.key)
        traces = map(json.loads, rows.column("trace").to_pylist())
        return pa.array(
            [trace["value"]["frame"]["__key"] == self._output.key for trace in traces], pa.bool_()
        )

    def _keep(self, kind: int, mask: pa.BooleanArray, rows: pa.RecordBatch) -> None:
        chosen = rows.filter(pc.fill_null(mask, False))
        if not chosen.num_rows:
            return
        columns = {name: chosen.column(name).to_pylist() for name in _COLUMNS}
        columns["value"] = json_texts(chosen.column("value")).to_pylist()
        columns |= {
            name: chosen.column(name).to_pylist()
            for name in ("trace", "input")
            if name in chosen.schema.names
        }
        for row in pa.RecordBatch.from_pydict(columns).to_pylist():
            self._rows.append({"kind": kind, **_readable(row)})


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without bytes, which JSON does not support."""
    record = row.pop("input", None)
    if record is not None:
        text = record["value"]
        row |= {"unusable": record["reason"], "text": None if text is None else text.decode(errors="replace")}
    return row
