"""A pipeline as a chain of kernel steps: its stages, and before them what drops repeated values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.engine.source import to_json
from tidegate.engine.stage import KeyTypes
from tidegate.spec import Pipeline, Stage
from tidegate.spec.columns import parse_type
from tidegate.spec.kernel import DEDUPLICATION, deduplication_stage, kernel_stage, over_types


@dataclass(frozen=True)
class Step:
    """One pass through the kernel. `values` and `where` are Spark SQL; `key` regroups what comes in.

    `takes_deletions`: those of the step before reach it, see `Pipeline.takes_deletions`.
    """

    name: str
    logic: core.Stage
    values: Mapping[str, str]
    where: str | None = None
    key: tuple[str, ...] | None = None
    stage: Stage | None = None
    takes_deletions: bool = True

    @property
    def is_deduplication(self) -> bool:
        """Whether it only lets records through or not."""
        return self.stage is None


def steps_of(pipeline: Pipeline) -> list[Step]:
    """The steps, in order."""
    once = deduplication_stage(pipeline)
    first = [] if once is None else [Step(DEDUPLICATION, once, {"frame": "`__packed`"})]
    return first + [
        Step(
            stage.name,
            kernel_stage(pipeline, stage),
            stage.values,
            stage.where_of_record,
            stage.key,
            stage,
            pipeline.takes_deletions(stage),
        )
        for stage in pipeline.stages
    ]


def typed(step: Step, rows: pa.Schema, keys: KeyTypes) -> Step:
    """The step over the types that its rows and its key have. Raises ConditionFailed."""
    of_key = {name: parse_type(type_.simpleString()) for name, type_ in keys.items()}
    emitted = step.logic.reduce.output_type(rows.field("value").type)
    return replace(step, logic=over_types(step.logic, emitted, of_key))


def with_following(steps: Sequence[Step]) -> Iterator[tuple[Step, Step | None]]:
    """Each step with the one after it, if there is one."""
    return zip(steps, [*steps[1:], None], strict=True)


def keeps_time(steps: Sequence[Step]) -> bool:
    """Whether stream time matters: to a stage, to the order between stages, or to what is forgotten."""
    return len(steps) > 1 or any(step.stage is not None and step.stage.timed for step in steps)


def keeps_input(steps: Sequence[Step]) -> bool:
    """Whether the first stage may put a record aside, which travels whole then."""
    first = next(step for step in steps if step.stage is not None)
    return first.logic.on_error == "quarantine"


def repeated_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """The columns whose values are let through once."""
    deduplicate = pipeline.source.deduplicate
    assert not isinstance(deduplicate, str), "only asked where there is such a step"
    return deduplicate.columns


def published_stages(pipeline: Pipeline) -> set[str]:
    """The stages whose emissions are written: those of sinks, and the last."""
    return {pipeline.stages[-1].name, *(pipeline.stage_of(sink).name for sink in pipeline.sinks)}


def source_keys(pipeline: Pipeline, frame: DataFrame) -> KeyTypes:
    """The columns that the source's key is made of."""
    return {name: frame.schema[name].dataType for name in pipeline.source.key or ()}


def passes_by(columns: Sequence[str]) -> Column:
    """Whether a record is its own, which none can repeat: a deletion, or one with a null in `columns`."""
    null = reduce(or_, (F.col(f"`{name}`").isNull() for name in columns))
    return F.col("__tombstone") | (F.col("__reason").isNull() & null)


def packed(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Records as values of the step that drops repeated ones: keyed by `columns`, each whole in `__packed`.

    Those that pass by are left out: `unpacked` puts them back.
    """
    key = to_json(F.struct(*[F.col(f"`{name}`") for name in columns]))
    whole = F.struct(*[F.col(f"`{name}`") for name in frame.columns])
    kept = frame.where(~passes_by(columns))
    return kept.withColumn("__packed", whole).withColumn("__key", F.when(F.col("__reason").isNull(), key))


def forwarded(emissions: DataFrame, following: Step) -> DataFrame:
    """The emissions that the next step reads: without deletions that are none to it."""
    return emissions if following.takes_deletions else emissions.where(F.col("value").isNotNull())


def unpacked(emissions: DataFrame, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The records that were let through, as they were, and those of `frame` that pass by."""
    return emissions.select("value.frame.*").unionByName(frame.where(passes_by(columns)))
