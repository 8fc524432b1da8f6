"""Why a key was emitted, or not: a committed batch decided again, for one key. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate import core
from tidegate.engine.batch import Before, Computation
from tidegate.engine.canonical import KeyTypes
from tidegate.engine.errors import translated
from tidegate.engine.kernel_task import StageOutput
from tidegate.engine.reports import TraceReport
from tidegate.engine.source import RecordSource
from tidegate.engine.steps import Step
from tidegate.engine.traced import TracedOutput
from tidegate.lake.layout import Lake
from tidegate.ledger.records import Plan
from tidegate.spec import Pipeline
from tidegate.spec.kernel import DEDUPLICATION

DEDUPLICATION_NAME = "deduplicate"
"""What people call the step that drops repeated values."""

Position = tuple[str, int, int]


@dataclass(frozen=True)
class TraceEvent:
    """One thing that happened to a key in a stage, in the order in which it happened.

    A `record` came in: `value` is what the stage selects of it, `fate` what became of it, and `known` what
    was known before, a mapping for each entry (`window`, what was last `emitted`, how many records were
    `held`, when it was `due`). An `emission` went out: `value` is what did (None: a deletion), `fate` the
    reason. A `quarantined` record has the reason as its fate. `source` is the record's position; `timestamp`,
    and `at`, when it happened, are epoch ms.
    """

    stage: str
    what: Literal["record", "emission", "quarantined"]
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
            names = [step.name for step in self._steps]
            self._steps = self._steps[: names.index(stage) + 1]
        # the stages before are computed all the same: the stage asked for reads their emissions
        self._asked_for = {
            step.name for step in self._steps if stage is None or step.is_deduplication or step.name == stage
        }

    def events(self, records: RecordSource) -> list[TraceEvent]:
        """What happened, stage by stage."""
        reports = [report for report in self.run(records, "") if isinstance(report, TraceReport)]
        return [
            event
            for step in self._steps
            if step.name in self._asked_for
            for event in _in_order(
                [row for report in reports if report.stage == step.name for row in report.rows], step
            )
        ]

    def _batch(self, step: Step) -> core.Batch:
        return replace(super()._batch(step), trace=step.name in self._asked_for)

    def _output(
        self, step: Step, following: Step | None, rows: pa.Schema, keys: KeyTypes, attempt: str
    ) -> StageOutput:
        del keys, attempt
        forwarding = self._forwarding(step, following, rows)
        return TracedOutput(step.name, self._key, step.is_deduplication, forwarding)


def _in_order(rows: Sequence[Mapping[str, Any]], step: Step) -> list[TraceEvent]:
    """Quarantined records, then each emission after the record that its value is from; before all, if an
    earlier batch had that."""
    unusable = [_quarantined(step, row) for row in rows if row["kind"] == core.QUARANTINED]
    records = [_record(step, row) for row in rows if row["kind"] == core.TRACE]
    emitted = sorted(
        (row for row in rows if row["kind"] == core.EMISSION), key=lambda row: int(row["ordinal"])
    )
    places = {record.source: place for place, record in enumerate(records)}
    events = list(enumerate(records))
    events += [(places.get(event.source, -1), event) for event in (_emission(step, row) for row in emitted)]
    return unusable + [event for _, event in sorted(events, key=lambda pair: pair[0])]


def in_words_of_the_file(step: str, key: str, value: Any) -> tuple[str, str, Any]:
    """Stage, key and value of a record, as a trace has them, in the words of the pipeline file."""
    if step != DEDUPLICATION:
        return step, key, value
    columns = {name: column for name, column in value["frame"].items() if not name.startswith("__")}
    return DEDUPLICATION_NAME, value["frame"]["__key"], columns


def _record(step: Step, row: Mapping[str, Any]) -> TraceEvent:
    trace = json.loads(row["told"])
    name, _, value = in_words_of_the_file(step.name, "", trace["value"])
    return TraceEvent(
        name, "record", _source(row), row["timestamp"], row["at"], value, row["reason"], trace["known"]
    )


def _emission(step: Step, row: Mapping[str, Any]) -> TraceEvent:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["value"] is None else json.loads(row["value"])
    return TraceEvent(
        step.name, "emission", _source(row), row["timestamp"], row["at"], value, row["reason"], window=window
    )


def _quarantined(step: Step, row: Mapping[str, Any]) -> TraceEvent:
    name = DEDUPLICATION_NAME if step.is_deduplication else step.name
    return TraceEvent(name, "quarantined", _source(row), row["timestamp"], None, row["text"], row["unusable"])


def _source(row: Mapping[str, Any]) -> Position:
    return row["topic"], row["partition"], row["offset"]
