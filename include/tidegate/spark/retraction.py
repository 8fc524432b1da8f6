"""The rows of a stage that retracts: an emission becomes what it takes back, and what it adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel

BEFORE = "__before"
"""The columns of what an emission replaces, and its key in the next stage; null if it replaces nothing."""
_VARYING = ("__key", "__tombstone", "__reason", "__input")


def before_column(replaced: Column, key: Column, columns: Mapping[str, Column]) -> Column:
    """Return the column `BEFORE` of a frame of emissions.

    Args:
        replaced: the value before, null if there was none.
        key: its key in the next stage.
        columns: its columns by name.
    """
    parts = [key.alias("__key"), *(column.alias(name) for name, column in columns.items())]
    return F.when(replaced.isNotNull() & key.isNotNull(), F.struct(*parts)).alias(BEFORE)


def changes(frame: DataFrame) -> DataFrame:
    """Return a frame of emissions as rows of a table that change their groups, with `__change` and `__part`.

    What an emission takes back comes before what it adds. Both have its position and time.
    """
    columns = [name for name in frame.columns if not name.startswith("__")]
    fixed = [name for name in frame.columns if name.startswith("__") and name not in (*_VARYING, BEFORE)]
    before, deleted = F.col(BEFORE), F.col("__tombstone")
    stays = F.col("__reason").isNull() & (F.col("__key") == before["__key"])
    change = F.when(deleted, kernel.DELETED).when(stays, kernel.REPLACED).otherwise(kernel.MOVED)
    taken_back = _row(frame, columns, change, 0, [before["__key"], F.lit(False), None, None], before)
    # A deletion of a row without a group has no key; it changes nothing, but counts.
    key = F.when(deleted, F.coalesce("__key", F.lit(""))).otherwise(F.col("__key"))
    own = [key, deleted, F.col("__reason"), F.col("__input")]
    added = _row(frame, columns, F.lit(kernel.ADDED), 1, own, None)
    both = F.when(before.isNull(), F.array(added)).when(deleted, F.array(taken_back))
    rows = frame.withColumn("__row", F.explode(both.otherwise(F.array(taken_back, added))))
    return rows.select(*[F.col(f"`{name}`") for name in fixed], "__row.*")


def _row(
    frame: DataFrame,
    columns: Sequence[str],
    change: Column,
    part: int,
    varying: Sequence[Column | None],
    before: Column | None,
) -> Column:
    own = [
        (F.lit(None) if column is None else column).cast(frame.schema[name].dataType).alias(name)
        for name, column in zip(_VARYING, varying, strict=True)
    ]
    values = [(F.col(f"`{name}`") if before is None else before[name]).alias(name) for name in columns]
    numbers = [change.cast("byte").alias("__change"), F.lit(part).cast("int").alias("__part")]
    return F.struct(*own, *numbers, *values)
