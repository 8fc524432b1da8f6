"""The rows of a stage that retracts: an emission becomes what it takes back, and what it adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel
from tidegate.spark.shuffle import TO
from tidegate.spark.steps import KernelPass

_VARYING = ("__key", "__tombstone", "__reason", "__input")


def retracting(level: Sequence[KernelPass]) -> list[int]:
    """Return the numbers of the passes that retract."""
    return [number for number, pass_ in enumerate(level) if pass_.retracts]


def _before(number: int) -> str:
    """Return the column of what an emission replaces, and its key in the pass that reads it; null if it
    replaces nothing.
    """
    return f"__before{number}"


def before_column(number: int, replaces: Column, key: Column, columns: Mapping[str, Column]) -> Column:
    """Return the column of what an emission replaces, for the pass with this number.

    Args:
        number: the number of the pass.
        replaces: whether a row is an emission that goes to the pass, and replaces another one.
        key: its key in the pass.
        columns: its columns by name.
    """
    fields = F.struct(*[column.alias(name) for name, column in columns.items()])
    present = replaces & key.isNotNull()
    return F.when(present, F.struct(key.alias("__key"), fields.alias("columns"))).alias(_before(number))


def changes(frame: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Return a frame of emissions in which those of the passes with these numbers are rows of a table that
    change their groups, with `__change` and `__part`.

    What an emission takes back comes before what it adds. Both have its position and time.
    """
    if not numbers:
        return frame
    varying = (*_VARYING, *(f"__columns{number}" for number in numbers))
    befores = {f"__columns{number}": F.col(_before(number)) for number in numbers}
    fixed = [name for name in frame.columns if name not in (*varying, *map(_before, numbers))]
    key_before = F.coalesce(*[before["__key"] for before in befores.values()])
    is_own = F.col(TO).isin(list(numbers))
    deleted = F.col("__tombstone")
    stays = F.col("__reason").isNull() & (F.col("__key") == key_before)
    change = F.when(deleted, kernel.DELETED).when(stays, kernel.REPLACED).otherwise(kernel.MOVED)
    nothing = dict.fromkeys(_VARYING, F.lit(None))
    taken_back = nothing | {"__key": key_before, "__tombstone": F.lit(False)}
    taken_back |= {name: before["columns"] for name, before in befores.items()}
    # A deletion of a row without a group has no key; it changes nothing, but counts.
    key = F.when(deleted & is_own, F.coalesce("__key", F.lit(""))).otherwise(F.col("__key"))
    added = {name: F.col(name) for name in varying} | {"__key": key}
    first, second = _row(frame, taken_back, change, 0), _row(frame, added, F.when(is_own, kernel.ADDED), 1)
    both = F.when(key_before.isNull(), F.array(second)).when(deleted, F.array(first))
    rows = frame.withColumn("__row", F.explode(both.otherwise(F.array(first, second))))
    return rows.select(*fixed, "__row.*")


def _row(frame: DataFrame, columns: Mapping[str, Column], change: Column, part: int) -> Column:
    own = [column.cast(frame.schema[name].dataType).alias(name) for name, column in columns.items()]
    return F.struct(*own, change.cast("byte").alias("__change"), F.lit(part).cast("int").alias("__part"))
