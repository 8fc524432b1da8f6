"""Turn frames into the rows that the kernel takes (`kernel.rows`), and emissions into the next stage's frame.

A frame is a stage's input: columns beside internal ones (see `decoding`). The first stage's frame comes from
Kafka, a later one's from the emissions of the stage before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType, TimestampType

from tidegate import formats, kernel
from tidegate.formats import EMISSION
from tidegate.formats.records import REMOVED
from tidegate.model.conversions import guarded
from tidegate.spark.guard import Guard, nullable
from tidegate.spark.retraction import before_column
from tidegate.spark.semantics import require_functions_of_records
from tidegate.spark.shuffle import LEAST_HASH, REPORT, SLOT
from tidegate.spark.source import spark_types
from tidegate.spark.source_rows import Shape
from tidegate.spark.steps import KernelPass, KeyTypes, canonical_key, is_removed, key_columns, to_json

INPUT: DataType = spark_types(pa.schema([pa.field("input", formats.INPUT)]))["input"].dataType
"""`formats.INPUT` in Spark's types."""
NO_KEY = "null_key_column"
"""The reason of an emission whose key has a null column."""
_FORWARDED = (
    *("hash", "key", "ordinal", "topic", "partition", "offset", "timestamp", "at", "instant", "turn", "part"),
    *("source", "reason", "value", "window_start", "window_end"),
)
_REPORTS = [pa.field(REPORT, pa.string()), pa.field(SLOT, pa.int32())]
REPORTS_ONLY = pa.schema(_REPORTS)
"""The output of tasks that forward no emissions."""


def record_rows(
    frame: DataFrame, pass_: KernelPass, shape: Shape, pipeline: str, guard: Guard | None = None
) -> DataFrame:
    """Return a frame's records as kernel rows, without the columns that all of them have alike
    (`task_rows.complete` adds them). Spark evaluates the expressions here.

    `where` is that of a value which is the record's own; the kernel evaluates all others. With a guard, a
    record that an expression fails on is quarantined, or named by the task that fails. Raises PipelineInvalid
    if the value of an expression depends on chance, or on the day.
    """
    logic, where, internals = pass_.logic, pass_.where, _internals(frame)

    def tested(rows: DataFrame, expressions: Sequence[str], on: Column) -> DataFrame:
        require_functions_of_records(rows, expressions, pipeline)
        return rows if guard is None else guard.quarantine_failing(rows, expressions, on)

    used = F.col("__reason").isNull() & F.col(REPORT).isNull()
    bypasses = "__bypasses" in internals
    valued = used & ~F.col("__tombstone")
    removed = is_removed(frame)
    if pass_.filter:
        frame = tested(frame, [pass_.filter], valued & ~removed)
        passes = F.coalesce(F.when(valued & ~removed, F.expr(guarded(pass_.filter))), F.lit(False))
        frame = frame.withColumn(REMOVED, removed | (valued & ~passes))
        removed = F.col(REMOVED)
    if not pass_.is_filter:
        valued &= ~removed
    if bypasses:
        # A deletion that goes around the pass has a value, too: its whole record.
        valued |= F.col("__bypasses")
    frame = tested(frame, list(pass_.values.values()), valued)
    selected = _selected(frame, pass_, valued)
    if where:
        selected = tested(selected, [where], valued)
    value = F.struct(*[F.col(f"`{name}`") for name in pass_.values])
    rows = selected.select(
        F.when(F.col("__reason").isNotNull(), kernel.QUARANTINED)
        .when(removed, kernel.REMOVED)
        .otherwise(kernel.RECORD)
        .cast("byte")
        .alias("kind"),
        _hash(logic, internals).alias("hash"),
        F.when(used, F.col("__key")).alias("key"),
        *[F.col(f"__{name}").alias(name) for name in ("topic", "partition", "offset")],
        *([F.col("__turn").cast("long").alias("turn")] if shape.ranked else []),
        *([F.col("__part").cast("int").alias("part")] if shape.exploded else []),
        F.col("__timestamp").alias("timestamp"),
        *([F.col("__time").cast("long").alias("time")] if shape.timed else []),
        F.col("__chain").alias("source"),
        *([F.col("__rank").alias("rank")] if "__rank" in frame.columns else []),
        *([F.col("__change").alias("change")] if "__change" in frame.columns else []),
        *([_passes(where, valued)] if where else []),
        F.when(valued, value).alias("value"),
        _with_reason(F.col("__input"), logic).alias("input"),
        *([F.coalesce("__bypasses", F.lit(False)).alias("bypasses")] if bypasses else []),
        REPORT,
        SLOT,
    )
    # make all fields nullable: to Arrow, a column that is never null has another type
    nullable_type = nullable(rows.schema["value"].dataType)
    return rows.withColumn("value", F.col("value").cast(nullable_type))


def _with_reason(record: Column, logic: kernel.Stage) -> Column:
    """Return a record in the form of quarantine with its present reason."""
    return record if logic.on_error == "stop" else record.withField("reason", F.col("__reason"))


def _internals(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("__")]


def _selected(frame: DataFrame, pass_: KernelPass, valued: Column) -> DataFrame:
    """Return the frame with the selected values in place of columns of their names.

    Only records that have a value are asked for it: an expression may fail on the nulls of a tombstone, of a
    record in quarantine or of a report, and Spark computes a column of a projection for each row.
    """
    internals = _internals(frame)
    # Spark compares names without case: see `semantics.PINNED`.
    taken = {name.lower() for name in pass_.values} | {name.lower() for name in internals}
    unselected = [name for name in frame.columns if name.lower() not in taken]
    return frame.select(
        *[name for name in internals if name != "__input"],
        _input(frame, pass_.logic).alias("__input"),
        *[F.when(valued, F.expr(guarded(sql))).alias(name) for name, sql in pass_.values.items()],
        *[F.col(f"`{name}`") for name in unselected],  # the key's columns, which `where` may name
    )


def _passes(where: str, valued: Column) -> Column:
    """Return `where` as a column; deletions pass. Like `select`, it is not evaluated for records without a
    value.
    """
    passes = F.coalesce(F.when(valued, F.expr(guarded(where))), F.lit(False))
    return (passes | F.col("__tombstone")).alias("passes")


def _hash(logic: kernel.Stage, internals: Sequence[str]) -> Column:
    """Return the hash of rows that are decided together: a key, or in a bounded stage a topic-partition."""
    if logic.bound:
        return place_hash()
    if "__hash" in internals:
        return F.col("__hash")
    return key_hash(F.col("__key"), *[F.col(f"__{name}") for name in ("topic", "partition", "offset")])


def place_hash() -> Column:
    """Return the hash of a frame's topic-partitions; reports have the least hash."""
    partition_hash = F.xxhash64(F.concat_ws("/", "__topic", "__partition"))
    return F.when(F.col(REPORT).isNull(), partition_hash).otherwise(F.lit(LEAST_HASH).cast("long"))


def key_hash(key: Column, *position: Column) -> Column:
    """Return the hash of keys. Rows without a key are spread by their position; reports have the
    least hash.

    Args:
        key: the key; null in reports, and in rows that go to quarantine.
        position: topic, partition and offset, over which such rows are spread.
    """
    # The least hash is that of reports, which must come before all other rows.
    elsewhere = F.greatest(F.xxhash64(F.concat_ws("/", *position)), F.lit(LEAST_HASH + 1))
    spread = F.when(F.col(REPORT).isNull(), elsewhere).otherwise(F.lit(LEAST_HASH))
    return F.when(key.isNotNull(), F.xxhash64(key)).otherwise(spread)


def kernel_schema(rows: DataFrame, logic: kernel.Stage) -> pa.Schema:
    """Return `kernel.input_schema` for such rows.

    Args:
        rows: rows of `record_rows`.
        logic: the stage, which decides the types of accumulator and output.
    """
    schema = to_arrow_schema(rows.schema)
    value, input_type = schema.field("value").type, schema.field("input").type
    return kernel.input_schema(
        value,
        logic.reduce.accumulator_type(value),
        logic.reduce.output_type(value),
        input_type,
        later="rank" in schema.names,
        retracts="change" in schema.names,
    )


def _input(frame: DataFrame, logic: kernel.Stage) -> Column:
    """Return the quarantine form of a record: its bytes in Kafka, or else the emission of the
    stage before.
    """
    if not logic.keeps_input:
        return F.col("__input").cast(INPUT)
    columns = [F.col(f"`{name}`") for name in frame.columns if not name.startswith("__")]
    emitted = F.struct(
        F.col("__key").cast("binary"),
        to_json(F.struct(*columns)).cast("binary"),
        F.lit(None).cast("binary"),
        F.lit(None).cast("string"),
        F.lit(formats.EMISSION),
        F.lit(None).cast("long"),
        F.lit(None).cast("byte"),
    )
    return F.coalesce(F.col("__input").cast(INPUT), emitted.cast(INPUT))


def forwarded_schema(logic: kernel.Stage, rows: pa.Schema) -> pa.Schema:
    """Return the output columns of tasks that forward emissions.

    Args:
        logic: the emitting stage.
        rows: the schema of the kernel's input.
    """
    emitted = kernel.output_schema(logic, rows)
    names = (*_FORWARDED, *(("emitted",) if logic.tells_before else ()))
    return pa.schema([*(emitted.field(name) for name in names), *_REPORTS])


def emission_frame(
    emissions: DataFrame,
    keys: KeyTypes,
    regrouped: Mapping[str, str] | None,
    takes_deletions: bool,
    turn: Column | None = None,
    retracts: bool = False,
) -> tuple[DataFrame, KeyTypes]:
    """Return emissions as a frame, and the columns of its key.

    The frame has the emitted columns, the key's, and `window_start` and `window_end` as timestamps. A
    `TimeTask` sets `__time`, and `__turn`, unless `turn` gives it.

    Args:
        emissions: rows of `forwarded_schema`.
        keys: the columns of the emitting stage's key.
        regrouped: column -> path of the next stage's key; None: it keeps the key.
        takes_deletions: the next stage gets deletions, too.
        turn: the column `__turn`.
        retracts: the next stage takes back what an emission replaces: the frame has `retraction.BEFORE`.
    """
    if not takes_deletions:
        # Reports have no value either, and must pass.
        emissions = emissions.where(F.col("value").isNotNull() | F.col(REPORT).isNotNull())
    value = emissions.schema["value"].dataType
    assert isinstance(value, StructType)
    emitted = {name: F.col("value")[name] for name in value.names}
    key_parts = key_columns(keys)
    columns = _with_key(emitted, key_parts)
    window = {
        name: F.timestamp_millis(name) for name in ("window_start", "window_end") if name not in columns
    }
    columns = window | columns
    key, new_keys = F.col("key"), keys
    if regrouped is not None:
        parts = {name: _field(columns, path) for name, path in regrouped.items()}
        key = canonical_key(parts)
        types = (
            dict.fromkeys(window, TimestampType())
            | dict(keys)
            | {field.name: field.dataType for field in value}
        )
        new_keys = {name: _field_type(types, path) for name, path in regrouped.items()}
        columns |= parts
    before: list[Column] = []
    if retracts:
        replaced = window | _with_key({name: F.col("emitted")[name] for name in value.names}, key_parts)
        group = F.col("key")
        if regrouped is not None:
            parts = {name: _field(replaced, path) for name, path in regrouped.items()}
            group = canonical_key(parts)
            replaced |= parts
        before = [before_column(F.col("emitted"), group, replaced)]
    return emissions.select(
        *[F.col(name).alias(f"__{name}") for name in ("topic", "partition", "offset", "timestamp")],
        (F.lit(None).cast("long") if turn is None else turn).alias("__turn"),
        F.lit(None).cast("long").alias("__time"),
        _rank().alias("__rank"),
        key.alias("__key"),
        F.col("value").isNull().alias("__tombstone"),
        F.col("source").alias("__chain"),
        *_unkeyed(key, retracts),
        *before,
        REPORT,
        SLOT,
        *[column.alias(name) for name, column in columns.items()],
    ), new_keys


def _field(columns: Mapping[str, Column], path: str) -> Column:
    name, *fields = path.split(".")
    return reduce(lambda outer, field: outer[field], fields, columns[name])


def _field_type(types: Mapping[str, DataType], path: str) -> DataType:
    name, *fields = path.split(".")
    return reduce(lambda outer, field: outer[field].dataType, fields, types[name])


def _with_key(emitted: Mapping[str, Column], key_parts: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of an emission with those of its key. A deletion emits no value, so the columns of
    its key come from the key itself.
    """
    key = {
        name: F.coalesce(emitted[name], part) if name in emitted else part for name, part in key_parts.items()
    }
    return {**emitted, **key}


def _rank() -> Column:
    """Return `kernel.RANK` of an emission; null for reports."""
    rank = F.struct(*[F.col(field.name) for field in kernel.RANK])
    return F.when(F.col(REPORT).isNull(), rank)


def _unkeyed(key: Column, retracts: bool) -> list[Column]:
    """Return `__reason` and `__input` of an emission whose key is null. A deletion that takes a row back
    needs no key of its own.
    """
    unkeyed = key.isNull() & F.col(REPORT).isNull()
    if retracts:
        unkeyed &= F.col("value").isNotNull()
    unusable = F.struct(
        F.col("key").cast("binary"),
        to_json("value").cast("binary"),
        F.lit(None).cast("binary"),
        F.lit(NO_KEY),
        F.lit(EMISSION),
        F.lit(None).cast("long"),
        F.lit(None).cast("byte"),
    )
    return [
        F.when(unkeyed, F.lit(NO_KEY)).alias("__reason"),
        F.when(unkeyed, unusable.cast(INPUT)).alias("__input"),
    ]
