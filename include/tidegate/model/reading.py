"""The work that tasks do where they read records, instead of Spark: they compute `select` and `where` of the
stages that read the source, and drop records that repeat the one before them. The pipeline alone decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.expressions import Expression
from tidegate.model.kernel_stages import deduplication_stage, kernel_stage, sequence_stage
from tidegate.model.mistakes import listed
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage

_REPEATED = 4
"""Where repetitions are dropped, at most one record of so many is expected to have another value: otherwise
`change` would be of little use.
"""


@dataclass(frozen=True)
class StageReading:
    """The work that is done for one stage where records are read.

    Args:
        values: column -> its expression.
        filter: the condition that removes records; None: there is none.
        where: the condition on a record's own value; None: there is none.
        compared: the columns by which a record repeats the one of its key before it; then it is dropped.
            None: no record is dropped.
    """

    values: Mapping[str, Expression] = field(default_factory=dict)
    filter: Expression | None = None
    where: Expression | None = None
    compared: tuple[str, ...] | None = None

    def rows(self, records: int) -> int:
        """Estimate how many of the records go on to Spark as rows."""
        return records // _REPEATED if self.compared is not None else records


@dataclass(frozen=True)
class Reading:
    """The work that is done where records are read.

    Args:
        stages: the stages that read the source, by name, with their work; empty: Spark computes all values.
        obstacle: why Spark computes the values; empty if it does not.
        in_batches: whether the rows go to their tasks in row batches, so that Spark converts none of them.
            Those of a bounded buffer do not: they go in the order of their positions.
        forwarded: the stages among them whose emissions other stages read.
    """

    stages: Mapping[str, StageReading] = field(default_factory=dict)
    obstacle: str = ""
    in_batches: bool = False
    forwarded: tuple[str, ...] = ()

    @property
    def selects(self) -> bool:
        """Whether the values are computed where records are read."""
        return bool(self.stages)

    @property
    def drops(self) -> tuple[str, ...]:
        """The stages for which repeated records are dropped."""
        return tuple(name for name, stage in self.stages.items() if stage.compared is not None)

    @property
    def keeping_all(self) -> Reading:
        """This work, except that no record is dropped."""
        stages = {name: replace(stage, compared=None) for name, stage in self.stages.items()}
        return replace(self, stages=stages)

    def rows(self, records: int) -> int:
        """Estimate how many rows Spark converts for a batch of so many records: those of records, or of
        emissions if the others go in row batches.
        """
        if not self.stages:
            return records
        stages = self.forwarded if self.in_batches else self.stages
        return sum(self.stages[name].rows(records) for name in stages)

    @property
    def described(self) -> str:
        """A sentence for people on where the columns are computed."""
        if not self.selects:
            return f"Spark computes the first stage's columns: {self.obstacle}."
        columns = (
            "the first stage's columns" if len(self.stages) == 1 else f"the columns of {listed(self.stages)}"
        )
        computed = f"The tasks that read records compute {columns}"
        if not self.drops:
            return f"{computed}."
        of_some = "" if len(self.drops) == len(self.stages) else f" for {listed(self.drops)}"
        return f"{computed}, and drop repeated values{of_some}."


def reading_of(pipeline: Pipeline) -> Reading:
    """Return what is computed where the pipeline's records are read."""
    obstacle = _obstacle(pipeline)
    if obstacle:
        return Reading(obstacle=obstacle)
    stages = {stage.name: _stage_reading(pipeline, stage) for stage in pipeline.source_stages}
    in_batches = all(stage.emit.bound is None for stage in pipeline.source_stages)
    inputs = {name for stage in pipeline.stages if not stage.reads_source for name in stage.inputs}
    return Reading(stages, in_batches=in_batches, forwarded=tuple(name for name in stages if name in inputs))


def _stage_reading(pipeline: Pipeline, stage: Stage) -> StageReading:
    ignores = kernel_stage(pipeline, stage).ignores_repeats
    compared = stage.emit.compared if ignores else None
    return StageReading(dict(stage.expressions), stage.filter_condition, stage.record_condition, compared)


def _obstacle(pipeline: Pipeline) -> str:
    """Return what Spark has to do before the stages that read the source; empty if there is nothing."""
    if pipeline.lookup:
        return "lookups come before them"
    if deduplication_stage(pipeline) is not None or sequence_stage(pipeline) is not None:
        return "a filter of the source comes before them"
    return next((obstacle for stage in pipeline.source_stages if (obstacle := _stage_obstacle(stage))), "")


def _stage_obstacle(stage: Stage) -> str:
    if stage.key is not None:
        return f"`{stage.name}` has a key of its own"
    if stage.late is not None:
        return f"`{stage.name}` emits late records, whole"
    only_in_spark = [sql for name, sql in stage.values.items() if name not in stage.expressions]
    if stage.filter is not None and stage.filter_condition is None:
        only_in_spark.append(stage.filter)
    if stage.where_of_record is not None and stage.record_condition is None:
        only_in_spark.append(stage.where_of_record)
    return f"`{only_in_spark[0]}` is not among the expressions of a condition" if only_in_spark else ""
