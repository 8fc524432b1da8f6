"""Folding a stream's state: the newest row of each entry, written as one more attempt would be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.engine.rows import read_state_rows
from tidegate.engine.semantics import pin_semantics
from tidegate.engine.steps import steps_of
from tidegate.engine.tables import append
from tidegate.failpoints import failpoint
from tidegate.lake import Lake, on_disk
from tidegate.spec import Pipeline

_ROWS_PER_FILE = 1_000_000
_WINDOW = ("window_start", "window_end")
_PLACE = ("topic", "partition")


def state_steps(pipelines: Sequence[Pipeline]) -> dict[str, list[core.Stage]]:
    """Every step that kept state in one of these pipelines, as each of them has it, the newest last."""
    found: dict[str, list[core.Stage]] = {}
    for pipeline in pipelines:
        for step in steps_of(pipeline):
            found.setdefault(step.name, []).append(step.logic)
    return found


def write_snapshot(
    spark: SparkSession, pipelines: Sequence[Pipeline], lake: Lake, attempts: Sequence[str], name: str
) -> None:
    """Fold these attempts of each step's state into rows under `name`. `pipelines`: all that wrote them.

    Nothing that it writes is visible before the ledger knows the name.
    """
    pin_semantics(spark)
    for step, logics in state_steps(pipelines).items():
        path = lake.state(step)
        with failpoint("compact.read"):
            state = read_state_rows(spark, path, attempts)
        if state is not None:
            folded = fold(state, logics, math.ceil(on_disk(path, attempts).rows / _ROWS_PER_FILE))
            with failpoint("compact.write_state"):
                append(folded, path, name)


def fold(state: DataFrame, logics: Sequence[core.Stage], partitions: int) -> DataFrame:
    """The newest row of each entry, by key, without those of which nothing is left. All columns as they were.

    `logics`: the stage as those had it that wrote the rows. In a bounded one an entry is a topic-partition's.
    """
    place = _PLACE if any(logic.bound for logic in logics) else ()
    entry = ["key", *[name for name in _WINDOW if name in state.columns], *place]
    newest_first = Window.partitionBy(*entry).orderBy(F.desc("updated_seq"), *map(F.desc, _PLACE))
    rows = state.drop("attempt").repartition(max(partitions, 1), "key")
    newest = rows.withColumn("__age", F.row_number().over(newest_first)).where("__age = 1").drop("__age")
    if all(core.forgets_the_gone(logic) for logic in logics):
        newest = newest.where("live")
    return newest
