"""Why a key was emitted, or not: a committed batch decided again, for one key. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.broker.config import KafkaConfig
from tidegate.engine.batch import Before, Computation
from tidegate.engine.errors import translated
from tidegate.engine.rows import Times, read_state_rows, state_rows
from tidegate.engine.source import to_json
from tidegate.engine.stage import KeyTypes, apply_kernel
from tidegate.engine.steps import Step
from tidegate.lake import Lake
from tidegate.ledger.records import Plan
from tidegate.spec import Pipeline
from tidegate.spec.kernel import DEDUPLICATION

TOLD_DEDUPLICATION = "deduplicate"
"""How people are told of the step that drops repeated values."""

Position = tuple[str, int, int]


@dataclass(frozen=True)
class Told:
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
    kafka: KafkaConfig,
    lake: Lake,
    before: Before,
    stage: str | None,
    key: str,
) -> list[Told]:
    """What a committed batch did with a key, in one stage or (None) in each, on what those before it left.

    Quarantined records have no key: those whose Kafka key is its text are told, too. Raises what
    `engine.compute_batch` raises while it decides.
    """
    with ExitStack() as cached, translated(pipeline):
        return _Explanation(spark, plan, pipeline, lake, before, cached, stage, key).run_again(kafka)


class _Explanation(Computation):
    """A computation that tells of one key what it decides, and keeps nothing else."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        pipeline: Pipeline,
        lake: Lake,
        before: Before,
        cached: ExitStack,
        stage: str | None,
        key: str,
    ) -> None:
        super().__init__(spark, plan, pipeline, lake, before, cached)
        self._key = key
        if stage is not None:
            names = [step.name for step in self._steps]
            self._steps = self._steps[: names.index(stage) + 1]
        # what is not asked for is computed all the same: the stage asked for reads its emissions
        self._wanted = {
            step.name for step in self._steps if stage is None or step.is_deduplication or step.name == stage
        }
        self._told: list[Told] = []

    def run_again(self, kafka: KafkaConfig) -> list[Told]:
        """All steps up to the last that is asked for."""
        self._decide_all(kafka, Observation("explained"))
        return self._told

    def _batch(self, step: Step, starts: Times, rows: DataFrame) -> core.Batch:
        return replace(super()._batch(step, starts, rows), trace=step.name in self._wanted)

    def _decide(self, step: Step, rows: DataFrame, batch: core.Batch) -> DataFrame:
        """Only the key's own rows where nothing depends on others: no later step, no shared buffer."""
        if step.name != self._steps[-1].name or step.logic.bound is not None:
            return super()._decide(step, rows, batch)
        state = read_state_rows(self._spark, self._lake.state(step.name), self._before.attempts)
        mine = rows.where((F.col("key") == self._key) | (F.col("kind") == core.QUARANTINED))
        if state is not None:
            mine = mine.unionByName(state_rows(state.where(F.col("key") == self._key), rows, step.logic))
        return apply_kernel(mine, step.logic, batch, 1)

    def _collect(self, step: Step, decided: DataFrame, keys: KeyTypes) -> None:
        """Tell, in place of counting and writing."""
        if step.name not in self._wanted:
            return
        rows = _rows_of(decided, self._key, _key_of(step)).collect()
        records = [_record(step, row) for row in rows if row["kind"] == core.TRACE]
        emissions = [] if step.is_deduplication else [row for row in rows if row["kind"] == core.EMISSION]
        self._told += [_quarantined(step, row) for row in rows if row["kind"] == core.QUARANTINED]
        self._told += _in_order(records, [_emission(step, row) for row in _numbered(emissions)])


def _key_of(step: Step) -> Column:
    """The key of a row. The step that drops repeated values has keys of its own, and the record's within."""
    if step.is_deduplication:
        return F.get_json_object("told", "$.value.frame.__key")
    return F.col("key")


def _rows_of(decided: DataFrame, key: str, key_of_row: Column) -> DataFrame:
    own = F.col("kind").isin(core.TRACE, core.EMISSION) & (key_of_row == key)
    unusable = (F.col("kind") == core.QUARANTINED) & (F.col("input.key").cast("string") == key)
    return decided.where(own | unusable).select(
        *["kind", "ordinal", "topic", "partition", "offset", "timestamp", "at", "reason", "told"],
        *["window_start", "window_end"],
        to_json("value").alias("value"),
        F.col("input.reason").alias("unusable"),
        F.col("input.value").cast("string").alias("text"),
    )


def _numbered(emissions: Iterable[Row]) -> list[Row]:
    return sorted(emissions, key=lambda row: int(row["ordinal"]))


def _in_order(records: Sequence[Told], emissions: Sequence[Told]) -> list[Told]:
    """Each emission after the record that its value is from; before all, if an earlier batch had that."""
    places = {record.source: place for place, record in enumerate(records)}
    told = list(zip(range(len(records)), records, strict=True))
    told += [(places.get(each.source, -1), each) for each in emissions]
    return [each for _, each in sorted(told, key=lambda pair: pair[0])]


def of_people(step: str, key: str, value: Any) -> tuple[str, str, Any]:
    """Stage, key and value of a record, as a trace has them, in the words of the pipeline file."""
    if step != DEDUPLICATION:
        return step, key, value
    columns = {name: each for name, each in value["frame"].items() if not name.startswith("__")}
    return TOLD_DEDUPLICATION, value["frame"]["__key"], columns


def _record(step: Step, row: Row) -> Told:
    told = json.loads(row["told"])
    name, _, value = of_people(step.name, "", told["value"])
    return Told(
        name, "record", _source(row), row["timestamp"], row["at"], value, row["reason"], told["known"]
    )


def _emission(step: Step, row: Row) -> Told:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["value"] is None else json.loads(row["value"])
    return Told(
        step.name,
        "emission",
        _source(row),
        row["timestamp"],
        row["at"],
        value,
        row["reason"],
        window=window,
    )


def _quarantined(step: Step, row: Row) -> Told:
    return Told(
        TOLD_DEDUPLICATION if step.is_deduplication else step.name,
        "quarantined",
        _source(row),
        row["timestamp"],
        None,
        row["text"],
        row["unusable"],
    )


def _source(row: Row) -> Position:
    return row["topic"], row["partition"], row["offset"]
