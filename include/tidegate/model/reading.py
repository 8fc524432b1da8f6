"""The work that tasks do where they read records, instead of Spark: they compute `select` and `where` of the
first stage, and drop records that repeat the one before them. The pipeline alone decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.expressions import Expression
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.keys import DeduplicateColumns
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage

_REPEATED = 4
"""Where repetitions are dropped, at most one record of so many is expected to have another value: otherwise
`change` would be of little use.
"""


@dataclass(frozen=True)
class Reading:
    """The work that is done where records are read.

    Args:
        values: column -> its expression; empty: Spark computes them.
        filter: the condition that removes records; None: there is none.
        where: the condition on a record's own value; None: there is none.
        compared: the columns by which a record repeats the one of its key before it; then it is dropped.
            None: no record is dropped.
        obstacle: why Spark computes the values; empty if it does not.
    """

    values: Mapping[str, Expression] = field(default_factory=dict)
    filter: Expression | None = None
    where: Expression | None = None
    compared: tuple[str, ...] | None = None
    obstacle: str = ""

    @property
    def selects(self) -> bool:
        """Whether the values are computed where records are read."""
        return bool(self.values)

    @property
    def keeping_all(self) -> Reading:
        """This work, except that no record is dropped."""
        return replace(self, compared=None)

    def rows(self, records: int) -> int:
        """Estimate how many of the records go on to Spark as rows."""
        return records // _REPEATED if self.compared is not None else records

    @property
    def described(self) -> str:
        """A sentence for people on where the columns are computed."""
        if not self.selects:
            return f"Spark computes the first stage's columns: {self.obstacle}."
        computed = "The tasks that read records compute the first stage's columns"
        return f"{computed}, and drop repeated values." if self.compared is not None else f"{computed}."


def reading_of(pipeline: Pipeline) -> Reading:
    """Return what is computed where the pipeline's records are read."""
    stage = pipeline.stages[0]
    obstacle = _obstacle(pipeline, stage)
    if obstacle:
        return Reading(obstacle=obstacle)
    ignores = kernel_stage(pipeline, stage).ignores_repeats
    compared = stage.emit.compared if ignores else None
    return Reading(dict(stage.expressions), stage.filter_condition, stage.record_condition, compared)


def _obstacle(pipeline: Pipeline, stage: Stage) -> str:
    """Return what Spark has to do before the first stage; empty if there is nothing."""
    if pipeline.lookup:
        return "lookups come before them"
    if isinstance(pipeline.source.deduplicate, DeduplicateColumns) or pipeline.source.sequence is not None:
        return "a filter of the source comes before them"
    only_in_spark = [sql for name, sql in stage.values.items() if name not in stage.expressions]
    if stage.filter is not None and stage.filter_condition is None:
        only_in_spark.append(stage.filter)
    if stage.where_of_record is not None and stage.record_condition is None:
        only_in_spark.append(stage.where_of_record)
    return f"`{only_in_spark[0]}` is not among the expressions of a condition" if only_in_spark else ""
