"""Why a key was emitted, or not: a committed batch decided again, for one key. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate import core
from tidegate.core.emit.in_sequence import described_mark, mark
from tidegate.engine.batch import Before, Computation
from tidegate.engine.canonical import KeyTypes
from tidegate.engine.errors import translated
from tidegate.engine.kernel_task import StageOutput
from tidegate.engine.reports import TraceReport
from tidegate.engine.source import RecordSource
from tidegate.engine.steps import KernelPass
from tidegate.engine.traced import TracedOutput
from tidegate.lake.layout import Lake
from tidegate.ledger.records import Plan
from tidegate.spec import Pipeline
from tidegate.spec.kernel import DEDUPLICATION, SEQUENCE

_FILTER_NAMES = {DEDUPLICATION: "deduplicate", SEQUENCE: "sequence"}
"""What people call the passes that only let records through or not: as the source's field."""

Position = tuple[str, int, int]


@dataclass(frozen=True)
class TraceEvent:
    """One thing that happened to a key in a stage, in the order in which it happened.

    A `record` came in: `value` is what the stage selects of it, `fate` what became of it, and `known` what
    was known before, a mapping for each entry (`window`, what was last `emitted`, how many records were
    `held`, when it was `due`). An `emission` went out: `value` is what did (None: a deletion), `fate` the
    reason. A `refused` value would have gone out, and breaks the expectations that are its fate; it is in
    quarantine. A `quarantined` record has the reason as its fate. `source` is the record's position;
    `timestamp`, and `at`, when it happened, are epoch ms.
    """

    stage: str
    what: Literal["record", "emission", "refused", "quarantined"]
    source: Position
    timestamp: int | None
    at: int | None
    value: Any
    fate: str
    known: Sequence[Mapping[str, Any]] = ()
    window: tuple[int, int] | None = None


def explain_batch(
    spark: SparkSession,
    plan: Plan,
    pipeline: Pipeline,
    records: RecordSource,
    lake: Lake,
    before: Before,
    stage: str | None,
    key: str,
) -> list[TraceEvent]:
    """What a committed batch did with a key, in one stage or (None) in each, on what those before it left.

    Quarantined records have no key: those whose Kafka key is its text are told, too. Raises what
    `compute_batch` raises while it decides.
    """
    with translated(pipeline):
        return Explanation(spark, plan, pipeline, lake, before, stage, key).events(records)


class Explanation(Computation):
    """A computation that tells of one key what it decides, and writes nothing."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        pipeline: Pipeline,
        lake: Lake,
        before: Before,
        stage: str | None,
        key: str,
    ) -> None:
        super().__init__(spark, plan, pipeline, lake, before)
        self._key = key
        if stage is not None:
            names = [pass_.name for pass_ in self._passes]
            self._passes = self._passes[: names.index(stage) + 1]
        # the stages before are computed all the same: the stage asked for reads their emissions
        self._traced_passes = {
            pass_.name for pass_ in self._passes if stage is None or pass_.is_filter or pass_.name == stage
        }

    def events(self, records: RecordSource) -> list[TraceEvent]:
        """What happened, in the order of the passes; of stages, in the one that was asked for or in all."""
        reports = [report for report in self.run(records, "") if isinstance(report, TraceReport)]
        return [
            event
            for pass_ in self._passes
            if pass_.name in self._traced_passes
            for event in _in_order(
                [row for report in reports if report.stage == pass_.name for row in report.rows], pass_
            )
        ]

    def _batch(self, pass_: KernelPass) -> core.Batch:
        return replace(super()._batch(pass_), trace=pass_.name in self._traced_passes)

    def _output(
        self, pass_: KernelPass, following: KernelPass | None, rows: pa.Schema, keys: KeyTypes, attempt: str
    ) -> StageOutput:
        del keys, attempt
        forwarding = self._forwarding(pass_, following, rows)
        return TracedOutput(
            pass_.name, self._key, pass_.is_deduplication, forwarding, emissions=not pass_.is_filter
        )


def _in_order(rows: Sequence[Mapping[str, Any]], pass_: KernelPass) -> list[TraceEvent]:
    """Quarantined records, then each emission, or refused value, after the record that it is from; before
    all, if an earlier batch had that."""
    unusable = [_quarantined(pass_, row) for row in rows if row["kind"] == core.QUARANTINED]
    records = [_record(pass_, row) for row in rows if row["kind"] == core.TRACE]
    emitted = sorted(
        (row for row in rows if row["kind"] == core.EMISSION), key=lambda row: int(row["ordinal"])
    )
    emitted += [row for row in rows if row["kind"] == core.REFUSED]
    places = {record.source: place for place, record in enumerate(records)}
    events = list(enumerate(records))
    events += [(places.get(event.source, -1), event) for event in (_emission(pass_, row) for row in emitted)]
    return unusable + [event for _, event in sorted(events, key=lambda pair: pair[0])]


def in_words_of_the_file(pass_name: str, key: str, value: Any) -> tuple[str, str, Any]:
    """Stage, key and value of a record, as a trace has them, in the words of the pipeline file."""
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
    name, _, value = in_words_of_the_file(pass_.name, "", trace["value"])
    return TraceEvent(
        name, "record", _source(row), row["timestamp"], row["at"], value, row["reason"], trace["known"]
    )


def _emission(pass_: KernelPass, row: Mapping[str, Any]) -> TraceEvent:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["value"] is None else json.loads(row["value"])
    what: Literal["emission", "refused"] = "emission" if row["kind"] == core.EMISSION else "refused"
    return TraceEvent(
        pass_.name, what, _source(row), row["timestamp"], row["at"], value, row["reason"], window=window
    )


def _quarantined(pass_: KernelPass, row: Mapping[str, Any]) -> TraceEvent:
    name = _FILTER_NAMES.get(pass_.name, pass_.name)
    return TraceEvent(name, "quarantined", _source(row), row["timestamp"], None, row["text"], row["unusable"])


def _source(row: Mapping[str, Any]) -> Position:
    return row["topic"], row["partition"], row["offset"]
