"""One drawn pipeline on drawn records: uncut, cut, in the data plane and in the model; what differs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from tests.fuzz.grammar import drawn_pipeline
from tests.fuzz.naive import Modelled, NotCovered, modelled
from tests.fuzz.records import COMPUTED, RecordDrawing
from tests.fuzz.tables import PlayedTable, Rows, are_drawn
from tests.spark.played import Played
from tidegate.errors import BufferFull, TidegateError, Transient
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import Reading, reading_of
from tidegate.spark.case_parts import Outcome
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord, CaseStep, LookupRows, Tick
from tidegate.yaml.tree import read_exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOINED_WINDOWS = 10
FEATURES = (
    "expected keys",
    "joins",
    "joins of several sources",
    "lookups",
    "lookups that emit",
    "records in quarantine",
    "retractions",
    "several sources",
    "times to live",
    "unions",
)
"""What `features` yields."""
_WITH_A_RECORD = ("new", "changed", "deleted", "count", "until")
"""Reasons of emissions that a record makes with it, and that are its fate."""
Input: TypeAlias = CaseStep
ByKey: TypeAlias = Mapping[str, list[tuple[Any, ...]]]


@dataclass
class Batch:
    """Records, the clock that is applied after them, and the tables that have other rows from here on."""

    records: list[CaseRecord] = field(default_factory=list)
    clock: int | None = None
    changes: dict[str, Rows] = field(default_factory=dict)


def differences(
    spark: SparkSession,
    seed: int,
    folder: Path,
    tally: Counter[str] | None = None,
    feature: str | None = None,
) -> Iterator[str]:
    """Yield what is wrong with the pipeline of a seed: nothing if all ways to compute it agree.

    `tally` counts the pipelines that were computed, and those that the naive model covers. With `feature`,
    only pipelines that have it are computed.
    """
    tally = Counter() if tally is None else tally
    dice = random.Random(seed)
    drawn = drawn_pipeline(dice, folder, feature)
    if drawn is None or not is_computable(drawn[0]):
        return
    pipeline, text = drawn
    if feature is not None and feature not in features(pipeline):
        return
    tally["computed"] += 1
    records = RecordDrawing(dice, pipeline, folder)
    inputs = records.inputs()
    tally.update(features(pipeline))
    tables = records.tables.first
    cuts = _cuts(dice, inputs) if records.can_be_cut else []
    uncut, *cut = _replayed(spark, pipeline, inputs, cuts, tables)
    tally["emitting joins"] += uncut.error is None and any(
        emission.reason in ("matched", "unmatched")
        for emitted in (uncut.emissions, *uncut.stages.values())
        for emission in emitted
    )
    tally["failed"] += uncut.error is not None
    for outcome in (uncut, *cut):
        if isinstance(outcome.error, Transient):
            yield f"it fails with an error that a retry does not mend: {outcome.error!r}"
    for places, outcome in zip(["each record", "random places"], cut, strict=False):
        yield from _differing(f"cut at {places}", uncut, outcome)
    if reading_of(pipeline).selects:
        tally["selected where records are read"] += 1
        obstacle = Reading(obstacle="a test asks for Spark")
        (in_spark,) = _replayed(spark, pipeline, inputs, [], tables, obstacle)
        yield from _differing("with all expressions in Spark", uncut, in_spark)
        if uncut.error is None and in_spark.error is None and uncut.counts != in_spark.counts:
            yield f"with all expressions in Spark: counts {in_spark.counts}, uncut {uncut.counts}"
    yield from _differing_traced(uncut, _traced(spark, pipeline, inputs, tables), pipeline)
    model = model_of(pipeline, text, inputs)
    tally["in the model"] += model is not None
    if model is not None:
        yield from _differing_model(uncut, model)
    for title, batches in _ways(inputs, records.can_be_cut).items():
        batches[0].changes = {**tables, **batches[0].changes}
        outcome = _played(spark, pipeline, batches, folder / title.replace(" ", "-"))
        yield from _differing(f"in the data plane, {title}", uncut, outcome)


def is_computable(pipeline: Pipeline) -> bool:
    """Return whether records can be drawn for it, and no other system is asked."""
    texts = all(
        source.format in COMPUTED and source.key_format in ("text", "json")
        for source in pipeline.sources.values()
    )
    windows = max((stage.window.windows_per_record for stage in pipeline.stages if stage.window), default=1)
    joins = any(stage.join is not None for stage in pipeline.stages)
    is_small = windows <= _JOINED_WINDOWS or not joins  # each emission of a window is a record of the join
    asks = pipeline.sources.registries or pipeline.checks
    return texts and is_small and are_drawn(pipeline) and not asks


def features(pipeline: Pipeline) -> Iterator[str]:
    """Yield what a pipeline has beside one source and stages one after the other."""
    if len(pipeline.sources) > 1:
        yield "several sources"
    if pipeline.lookup:
        yield "lookups"
    if pipeline.reacting_lookups:
        yield "lookups that emit"
    for stage in pipeline.stages:
        if len(stage.sources) > 1:
            yield "unions"
        if stage.join is not None:
            yield "joins"
        if stage.expected is not None:
            yield "expected keys"
        if stage.retract:
            yield "retractions"
        if stage.ttl is not None:
            yield "times to live"
        if stage.on_error == "quarantine":
            yield "records in quarantine"
        if len(pipeline.inputs_of(stage)) > 1 and len(pipeline.sources_of(stage)) > 1:
            yield "joins of several sources"


def _replayed(
    spark: SparkSession,
    pipeline: Pipeline,
    records: Sequence[Input],
    cuts: Sequence[Sequence[int]],
    tables: Mapping[str, Rows],
    reading: Reading | None = None,
) -> list[Outcome]:
    try:
        stages = [stage.name for stage in pipeline.stages[:-1]]
        return CaseRun(spark, pipeline, records, tables, reading=reading, stages=stages).run_all([[], *cuts])
    except TidegateError as error:
        return [Outcome(error=error)]


def _traced(
    spark: SparkSession, pipeline: Pipeline, records: Sequence[Input], tables: Mapping[str, Rows]
) -> Outcome:
    """Return the outcome with the fate of each record, which is decided record by record."""
    stages = [stage.name for stage in pipeline.stages]
    try:
        return CaseRun(spark, pipeline, records, tables, trace=True, stages=stages).run_all()[0]
    except TidegateError as error:
        return Outcome(error=error)


def _differing_traced(uncut: Outcome, traced: Outcome, pipeline: Pipeline) -> Iterator[str]:
    """Yield how an explanation differs from what happened: in emissions, in counts, and in the records that
    are said to have caused an emission.
    """
    yield from _differing("with a trace", uncut, traced)
    if uncut.error is not None or traced.error is not None:
        return
    if uncut.counts != traced.counts:
        yield f"with a trace: counts {traced.counts}, uncut {uncut.counts}"
    for stage in pipeline.stages:
        emitted = {(emission.source, emission.reason) for emission in traced.stages[stage.name]}
        fates = {(fate.source, fate.fate) for fate in traced.fates if fate.pass_name == stage.name}
        # a record also makes sliding windows that it is not in, and that are not its fate
        differ = fates - emitted if stage.window is not None and stage.window.slides else fates ^ emitted
        for source, reason in differ:
            if reason in _WITH_A_RECORD:
                yield f"with a trace, {stage.name}: only a fate or an emission of {source} is `{reason}`"


def model_of(pipeline: Pipeline, text: str, inputs: Sequence[Input]) -> Modelled | None:
    """Return what the naive model gives of a pipeline file, or None if it does not cover it."""
    try:
        return modelled(pipeline, yaml.safe_load(text), inputs)
    except NotCovered:
        return None


def _differing_model(uncut: Outcome, model: Modelled) -> Iterator[str]:
    """Yield how the model differs. It knows no error but that a buffer is full."""
    is_full = isinstance(uncut.error, BufferFull)
    if is_full or model.emissions is None:
        if is_full != (model.emissions is None):
            yield f"in the model, the buffer is {'not ' * is_full}full: uncut {uncut.error!r}"
        return
    if uncut.error is None:
        expected, actual = _plain(uncut), dict(model.emissions)
        if not model.ordered:
            expected, actual = (
                {key: sorted(rows, key=repr) for key, rows in emissions.items()}
                for emissions in (expected, actual)
            )
        yield from _differing_keys("in the model", expected, actual)


def _cuts(dice: random.Random, inputs: Sequence[Input]) -> list[list[int]]:
    """Return two ways to cut; none where ticks and tables say already where batches end."""
    if not all(isinstance(entry, CaseRecord) for entry in inputs):
        return []
    places = range(1, len(inputs))
    return [list(places), sorted(dice.sample(places, dice.randint(1, len(places))))]


def _ways(inputs: Sequence[Input], can_be_cut: bool) -> dict[str, list[Batch]]:
    """Return the ways to make batches for the data plane: by ticks and changes of tables; without them one
    batch, and three where the result must be the same.
    """
    if not all(isinstance(entry, CaseRecord) for entry in inputs):
        return {"batches by ticks": _batches(inputs)}
    records = [entry for entry in inputs if isinstance(entry, CaseRecord)]
    ways = {"one batch": [Batch(records)]}
    if can_be_cut:
        size = -(-len(records) // 3)
        thirds = [Batch(records[start : start + size]) for start in range(0, len(records), size)]
        ways["three batches"] = thirds
    return ways


def _batches(inputs: Sequence[Input]) -> list[Batch]:
    """Return batches that end at ticks, and without a clock before changes of tables."""
    batches = [Batch()]
    ended = False
    for entry in inputs:
        if ended or (isinstance(entry, LookupRows) and batches[-1] != Batch()):
            batches.append(Batch())
        ended = isinstance(entry, Tick)
        if isinstance(entry, Tick):
            batches[-1].clock = entry.clock_ms
        elif isinstance(entry, LookupRows):
            batches[-1].changes[entry.table] = entry.rows
        else:
            batches[-1].records.append(entry)
    return batches


def _played(spark: SparkSession, pipeline: Pipeline, batches: Sequence[Batch], folder: Path) -> Outcome:
    played = Played(spark, pipeline, folder)
    every: dict[str, list[Mapping[str, Any]]] = {}
    for batch in batches:
        for table, rows in batch.changes.items():
            every.setdefault(table, []).extend(rows)
    tables: dict[str, PlayedTable] = {}
    try:
        for batch in batches:
            tables |= {table: PlayedTable(rows, tuple(every[table])) for table, rows in batch.changes.items()}
            played.before = replace(played.before, lookups=tables, changed_tables=frozenset(batch.changes))
            played.batch(batch.records, batch.clock)
    except TidegateError as error:
        return Outcome(error=error)
    outcome = Outcome(counts=played.counts)
    outcome.emissions = played.emissions()  # type: ignore[assignment]
    return outcome


def _differing(title: str, uncut: Outcome, outcome: Outcome) -> Iterator[str]:
    if uncut.error is not None or outcome.error is not None:
        if uncut.error is None or outcome.error is None:
            yield f"{title}: {outcome.error!r}, uncut {uncut.error!r}"
        return
    yield from _differing_keys(title, _plain(uncut), _plain(outcome))
    for stage in uncut.stages.keys() & outcome.stages.keys():
        yield from _differing_keys(f"{title}, {stage}", _plain(uncut, stage), _plain(outcome, stage))


def _differing_keys(title: str, expected: ByKey, actual: ByKey) -> Iterator[str]:
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) != actual.get(key):
            yield f"{title}: key {key!r}: {actual.get(key)}, uncut {expected.get(key)}"


def _plain(outcome: Outcome, stage: str | None = None) -> ByKey:
    """Return the emissions by key of a stage (None: the last one), as they can be compared: value, timestamp,
    window and reason.
    """
    if isinstance(outcome.emissions, Mapping):
        return {key: [_row(row) for row in rows] for key, rows in outcome.emissions.items() if rows}
    return {
        key: [
            (repr(emission.value), emission.timestamp, emission.window, emission.reason)
            for emission in emitted
        ]
        for key, emitted in outcome.by_key(stage).items()
    }


def _row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["text"] is None else read_exactly(row["text"])
    return repr(value), row["timestamp"], window, row["reason"]
