"""`lookup`: columns from a table, or from another pipeline's state, as they were at planning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate.engine.rows import read_state_rows
from tidegate.errors import LookupAmbiguous, PipelineInvalid, Problem
from tidegate.lake import Lake
from tidegate.spec import Pipeline
from tidegate.spec.lookup import KEY, Lookup

Open = Callable[[Lookup], DataFrame]
"""Gives a lookup's table, as the plan pinned it."""


def enrich(frame: DataFrame, pipeline: Pipeline, open_table: Open) -> DataFrame:
    """The frame with each lookup's columns; null where its table has no row. Raises LookupAmbiguous."""
    for lookup in pipeline.lookup:
        frame = _joined(frame, lookup, open_table(lookup), pipeline)
    return frame


def _joined(frame: DataFrame, lookup: Lookup, table: DataFrame, pipeline: Pipeline) -> DataFrame:
    missing = [name for name in (*lookup.on, *lookup.columns) if name not in table.columns]
    if missing:
        message = f"the table {lookup.table} has no column `{missing[0]}`"
        fix = f"Its columns are {', '.join(table.columns)}."
        raise PipelineInvalid([Problem(pipeline.pipeline, 1, "lookup", message, fix)])
    on = [F.col(name).alias(f"__on_{name}") for name in lookup.on]
    wanted = table.select(*on, *[F.col(name).alias(name) for name in lookup.columns])
    _require_unique(wanted, lookup)
    mine = {name: F.col("__key" if name == KEY else name) for name in lookup.on}
    same = [mine[name] == F.col(f"__on_{name}") for name in lookup.on]
    return frame.join(wanted, same, "left").drop(*[f"__on_{name}" for name in lookup.on])


def _require_unique(wanted: DataFrame, lookup: Lookup) -> None:
    on = [f"__on_{name}" for name in lookup.on]
    complete = wanted.dropna(subset=on)
    twice = complete.groupBy(*on).count().where(F.col("count") > 1).limit(1).collect()
    if twice:
        value = ", ".join(f"{name} = {twice[0][f'__on_{name}']!r}" for name in lookup.on)
        raise LookupAmbiguous(
            f"The table {lookup.table} has {twice[0]['count']} rows with {value}",
            "Let it have one row for each, or add columns to `on`.",
        )


def planned_tables(
    spark: SparkSession, pinned: Mapping[str, Any], attempts: Mapping[str, Sequence[str]], root: str
) -> Open:
    """Opens tables as the plan pinned them: a version of a Delta table, or a pipeline's state after a batch.

    `attempts`: those that such a state is read through, by the lookup's text.
    """

    def open_table(lookup: Lookup) -> DataFrame:
        pin = pinned[lookup.table]
        if "version" in pin:
            return spark.read.format("delta").option("versionAsOf", pin["version"]).load(lookup.table)
        lake = Lake(root, pin["pipeline"], pin["generation"])
        return _state_table(spark, lake.state(pin["stage"]), attempts[lookup.table])

    return open_table


def _state_table(spark: SparkSession, path: str, attempts: Sequence[str]) -> DataFrame:
    """The newest value of each key, and of each window of it: its columns beside those of the entry."""
    rows = read_state_rows(spark, path, attempts)
    entry = ("key", "window_start", "window_end")
    if rows is None:
        return spark.createDataFrame([], "key string, window_start bigint, window_end bigint")
    newest = rows.groupBy(*entry).agg(F.max_by("value", "updated_seq").alias("value"))
    return newest.where(F.col("value").isNotNull()).select(*entry, "value.*")
