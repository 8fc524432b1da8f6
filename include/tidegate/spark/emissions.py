"""Turn a stage's emissions into the frame that the next stage reads."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate import kernel
from tidegate.formats import EMISSION
from tidegate.spark.canonical import KeyTypes, canonical_key, key_columns, to_json
from tidegate.spark.rows import INPUT
from tidegate.spark.shuffle import REPORT, SLOT

NO_KEY = "null_key_column"
"""The reason of an emission whose key has a null column."""

_FORWARDED = (
    *("hash", "key", "ordinal", "topic", "partition", "offset", "timestamp", "at", "instant", "turn", "part"),
    *("source", "reason", "value", "window_start", "window_end"),
)
_REPORTS = [pa.field(REPORT, pa.string()), pa.field(SLOT, pa.int32())]
REPORTS_ONLY = pa.schema(_REPORTS)
"""The output of tasks that forward no emissions."""


def forwarded_schema(logic: kernel.Stage, rows: pa.Schema) -> pa.Schema:
    """Return the output columns of tasks that forward emissions.

    Args:
        logic: the emitting stage.
        rows: the schema of the kernel's input.
    """
    emitted = kernel.output_schema(logic, rows)
    return pa.schema([*(emitted.field(name) for name in _FORWARDED), *_REPORTS])


def emission_frame(
    emissions: DataFrame,
    keys: KeyTypes,
    regrouped: Sequence[str] | None,
    takes_deletions: bool,
    turn: Column | None = None,
) -> tuple[DataFrame, KeyTypes]:
    """Return emissions as a frame, and the columns of its key.

    The frame has the emitted columns, the key's, `window_start` and `window_end`. A `TimeTask` sets `__time`,
    and `__turn`, unless `turn` gives it.

    Args:
        emissions: rows of `forwarded_schema`.
        keys: the columns of the emitting stage's key.
        regrouped: the columns of the next stage's key; None: it keeps the key.
        takes_deletions: the next stage gets deletions, too.
        turn: the column `__turn`.
    """
    if not takes_deletions:
        # Reports have no value either, and must pass.
        emissions = emissions.where(F.col("value").isNotNull() | F.col(REPORT).isNotNull())
    value = emissions.schema["value"].dataType
    assert isinstance(value, StructType)
    emitted = {name: F.col("value")[name] for name in value.names}
    key_parts = key_columns(keys)
    # A deletion emits no value, so the columns of its key come from the key itself.
    columns = emitted | {
        name: F.coalesce(emitted[name], part) if name in emitted else part for name, part in key_parts.items()
    }
    key, new_keys = F.col("key"), keys
    if regrouped is not None:
        key = canonical_key({name: columns[name] for name in regrouped})
        new_keys = {name: value[name].dataType if name in emitted else keys[name] for name in regrouped}
    window = {name: F.col(name) for name in ("window_start", "window_end") if name not in columns}
    return emissions.select(
        *[F.col(name).alias(f"__{name}") for name in ("topic", "partition", "offset", "timestamp")],
        (F.lit(None).cast("long") if turn is None else turn).alias("__turn"),
        F.lit(None).cast("long").alias("__time"),
        _rank().alias("__rank"),
        key.alias("__key"),
        F.col("value").isNull().alias("__tombstone"),
        F.col("source").alias("__chain"),
        *_unkeyed(key),
        REPORT,
        SLOT,
        *[column.alias(name) for name, column in (window | columns).items()],
    ), new_keys


def _rank() -> Column:
    """Return `core.RANK` of an emission; null for reports."""
    rank = F.struct(*[F.col(field.name) for field in kernel.RANK])
    return F.when(F.col(REPORT).isNull(), rank)


def _unkeyed(key: Column) -> list[Column]:
    """Return `__reason` and `__input` of an emission whose key is null."""
    unkeyed = key.isNull() & F.col(REPORT).isNull()
    unusable = F.struct(
        F.col("key").cast("binary"),
        to_json("value").cast("binary"),
        F.lit(None).cast("binary"),
        F.lit(NO_KEY),
        F.lit(EMISSION),
        F.lit(None).cast("long"),
    )
    return [
        F.when(unkeyed, F.lit(NO_KEY)).alias("__reason"),
        F.when(unkeyed, unusable.cast(INPUT)).alias("__input"),
    ]
