"""A stage in Spark: its rows through the kernel, and its emissions as the frame of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

from tidegate import core
from tidegate.engine.errors import told_to_driver
from tidegate.engine.rows import output_schema
from tidegate.engine.source import NO_KEY, QUARANTINED_SCHEMA, canonical_key, key_parts, to_json
from tidegate.failpoints import failpoint

KeyTypes = Mapping[str, DataType]
"""The columns that a key is made of, in order; none when it is the record's own."""


def apply_kernel(rows: DataFrame, logic: core.Stage, batch: core.Batch, partitions: int) -> DataFrame:
    """Rows of whole groups, sorted, through the kernel. Gives rows of `core.output_schema`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told_to_driver(), failpoint("compute.kernel"):
            yield from core.decide(logic, batches, batch)

    # Quarantined rows may have no key: they are spread by position instead of meeting in one partition.
    spread = [F.coalesce(F.col("key"), F.concat_ws("/", "topic", "partition", "offset"))]
    together = [F.col(name) for name in core.groups(logic)] if logic.bound else spread
    decided = (
        rows.repartition(partitions, *together)
        .sortWithinPartitions(*core.order(logic))
        .mapInArrow(run, output_schema(rows, logic))
    )
    return _numbered(decided) if logic.bound else decided


def _numbered(decided: DataFrame) -> DataFrame:
    """Emissions of a key that several partitions made, numbered as one sequence."""
    order = Window.partitionBy("kind", "key").orderBy("at", "topic", "partition", "ordinal")
    number = F.when(F.col("kind") == core.EMISSION, F.row_number().over(order) - 1)
    return decided.withColumn("ordinal", number.cast("long"))


def emission_frame(
    emissions: DataFrame,
    keys: KeyTypes,
    regrouped: Sequence[str] | None,
    runs: Sequence[str] = (),
    batch: str = "",
) -> tuple[DataFrame, KeyTypes]:
    """Emissions as the frame that the next stage reads, and the columns of its key.

    Its columns are the emitted ones, the key's, `window_start` and `window_end`. `runs` names columns that
    tell apart what is computed side by side, and `batch` the number of the batch; they are kept.
    """
    value = emissions.schema["value"].dataType
    assert isinstance(value, StructType)
    emitted = {name: F.col("value")[name] for name in value.names}
    of_key = key_columns(keys)
    known = {
        name: F.coalesce(emitted[name], part) if name in emitted else part for name, part in of_key.items()
    }
    known = emitted | known
    key, new_keys = F.col("key"), keys
    if regrouped is not None:
        key = canonical_key({name: known[name] for name in regrouped})
        new_keys = {name: value[name].dataType if name in emitted else keys[name] for name in regrouped}
    window = {name: F.col(name) for name in ("window_start", "window_end") if name not in known}
    return emissions.select(
        *[F.col(name).alias(f"__{name}") for name in ("topic", "partition", "offset", "timestamp")],
        _turn(runs, batch).alias("__turn"),
        F.lit(0).alias("__part"),
        key.alias("__key"),
        F.col("value").isNull().alias("__tombstone"),
        F.col("source").alias("__chain"),
        *_unkeyed(key),
        *[name for name in (*runs, batch) if name],
        *[column.alias(name) for name, column in (window | known).items()],
    ), new_keys


def _turn(runs: Sequence[str], batch: str) -> Column:
    """The place of an emission among those of its partition: when it happened; at one time, timers first.

    It depends on nothing but the emission itself, so that it is the same wherever the log is cut.
    """
    order = ("at", F.col("waited").desc(), "offset", "key", "ordinal")
    window = Window.partitionBy(*runs, "topic", "partition").orderBy(*((batch,) if batch else ()), *order)
    return F.row_number().over(window).cast("long")


def _unkeyed(key: Column) -> list[Column]:
    """`__reason` and `__input` of an emission whose key is null."""
    unkeyed = key.isNull()
    whole = F.struct(
        F.col("key").cast("binary"),
        to_json("value").cast("binary"),
        F.lit(None).cast("array<struct<key: string, value: binary>>"),
        F.lit(NO_KEY),
    )
    return [
        F.when(unkeyed, F.lit(NO_KEY)).alias("__reason"),
        F.when(unkeyed, whole.cast(QUARANTINED_SCHEMA)).alias("__input"),
    ]


def key_columns(keys: KeyTypes) -> dict[str, Column]:
    """The columns that a canonical key was made of."""
    if not keys:
        return {}
    if len(keys) == 1:
        name, type_ = next(iter(keys.items()))
        return {name: F.col("key").cast(type_)}
    ddl = StructType()
    for name, type_ in keys.items():
        ddl = ddl.add(name, type_)
    whole = key_parts("key", ddl)
    return {name: whole[name] for name in keys}
