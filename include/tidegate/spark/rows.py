"""Turn the frames that the passes of a level read into the rows that the kernel takes (`kernel.rows`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

from tidegate import formats, kernel
from tidegate.formats.records import REMOVED
from tidegate.kernel.keys import LEAST_HASH
from tidegate.model.conversions import guarded
from tidegate.spark.guard import Guard, nullable
from tidegate.spark.semantics import require_functions_of_records
from tidegate.spark.shuffle import REPORT, TO, record_column, value_column
from tidegate.spark.source import spark_types
from tidegate.spark.source_rows import Shape
from tidegate.spark.steps import KernelPass, is_removed, to_json

INPUT: DataType = spark_types(pa.schema([pa.field("input", formats.INPUT)]))["input"].dataType
"""`formats.INPUT` in Spark's types."""
Tested = Callable[[DataFrame, Sequence[str], Column], DataFrame]
"""Takes a frame, expressions, and the records that they are computed for; returns the frame, whose records
have been tested if there is a guard.
"""


def by_pass(columns: Mapping[int, Column]) -> Column:
    """Return the column of the pass that a row goes to.

    Args:
        columns: the number of a pass -> its column.
    """
    (_, chosen), *later = columns.items()
    for number, column in later:
        chosen = F.when(F.col(TO) == number, column).otherwise(chosen)
    return chosen


def record_rows(
    frame: DataFrame,
    level: Mapping[int, KernelPass],
    shape: Shape,
    pipeline: str,
    guards: Mapping[str, Guard],
) -> DataFrame:
    """Return a frame's records as kernel rows, without the columns that all of them have alike
    (`kernel_task.Completion` adds them). Spark evaluates the expressions here.

    `where` is that of a value which is the record's own; the kernel evaluates all others. With a guard, a
    record that an expression fails on is quarantined, or named by the task that fails. Raises PipelineInvalid
    if the value of an expression depends on chance, or on the day.

    Args:
        frame: a `source_frame` or `emission_frame`.
        level: the passes that read it, by their number in the level.
        shape: the optional columns.
        pipeline: the name of the pipeline.
        guards: pass -> its guard; empty unless an expression has failed in the batch.
    """

    def tested(pass_: KernelPass, rows: DataFrame, expressions: Sequence[str], on: Column) -> DataFrame:
        require_functions_of_records(rows, expressions, pipeline)
        guard = guards.get(pass_.name)
        return rows if guard is None else guard.quarantine_failing(rows, expressions, on)

    # a record of a source without `explode` is a single part
    part = F.col("__part") if "__part" in frame.columns else F.lit(None)
    ranked, bypasses = "__rank" in frame.columns, "__bypasses" in frame.columns
    used = F.col("__reason").isNull() & F.col(REPORT).isNull()
    frame = frame.withColumns({REMOVED: is_removed(frame), "__passes": F.lit(True)})
    for number, pass_ in level.items():
        frame = _with_values(frame, number, pass_, partial(tested, pass_))
    return frame.select(
        F.when(F.col("__reason").isNotNull(), kernel.QUARANTINED)
        .when(F.col(REMOVED), kernel.REMOVED)
        .otherwise(kernel.RECORD)
        .cast("byte")
        .alias("kind"),
        _hash(level, internals_of(frame)).alias("hash"),
        F.when(used, F.col("__key")).alias("key"),
        *[F.col(f"__{name}").alias(name) for name in ("topic", "partition", "offset")],
        *([F.col("__turn").cast("long").alias("turn")] if shape.ranked else []),
        *([F.coalesce(part, F.lit(0)).cast("int").alias("part")] if shape.exploded else []),
        *([F.col("__change").alias("change")] if "__change" in frame.columns else []),
        F.col("__timestamp").alias("timestamp"),
        *([F.col("__time").cast("long").alias("time")] if shape.timed else []),
        *([F.col("__recorded").alias(kernel.RECORDED)] if shape.recorded else []),
        F.col("__chain").alias("source"),
        *([F.col("__rank").alias("rank")] if ranked else []),
        *([F.col("__passes").alias("passes")] if shape.tested else []),
        *[F.col(f"__{value_column(number)}").alias(value_column(number)) for number in level],
        *[F.col(f"__{name}").alias(name) for name in _record_columns(level)],
        F.col("__input").alias("input"),
        *([F.coalesce("__bypasses", F.lit(False)).alias("bypasses")] if bypasses else []),
        REPORT,
        TO,
    )


def _record_columns(level: Mapping[int, KernelPass]) -> list[str]:
    return [record_column(number) for number, pass_ in level.items() if pass_.late_columns]


def internals_of(frame: DataFrame) -> list[str]:
    """Return the names of the internal columns."""
    return [name for name in frame.columns if name.startswith("__")]


def _with_values(frame: DataFrame, number: int, pass_: KernelPass, tested: Tested) -> DataFrame:
    """Add the values of the records that go to a pass, what its filter and `where` say of them, and how it
    would quarantine them.

    Only records that have a value are asked for it: an expression may fail on the nulls of a tombstone, of a
    record in quarantine or of a report, and Spark computes a column of a projection for each row.
    """
    is_own = (F.col(TO) == number) & F.col(REPORT).isNull()
    valued = is_own & F.col("__reason").isNull() & ~F.col("__tombstone")
    columns = frame.select("*", f"__columns{number}.*")
    if pass_.filter:
        columns = tested(columns, [pass_.filter], valued & ~F.col(REMOVED))
        fulfils = F.coalesce(F.when(valued & ~F.col(REMOVED), F.expr(guarded(pass_.filter))), F.lit(False))
        columns = columns.withColumn(REMOVED, F.col(REMOVED) | (valued & ~fulfils))
    if not pass_.is_filter:
        valued &= ~F.col(REMOVED)
    if "__bypasses" in frame.columns:
        # A deletion that goes around the pass has a value, too: its whole record.
        valued |= F.col("__bypasses")
    if pass_.late_columns:
        record = F.struct(*[F.col(f"`{name}`") for name in pass_.late_columns])
        types = StructType([columns.schema[name] for name in pass_.late_columns])
        whole = F.when(valued, record.cast(nullable(types)))
        columns = columns.withColumn(f"__{record_column(number)}", whole)
    columns = tested(columns, list(pass_.values.values()), valued)
    selected = _selected(columns, number, pass_, valued)
    passes = F.col("__passes")
    if pass_.where:
        selected = tested(selected, [pass_.where], valued)
        passes = F.when(is_own, _passes(pass_.where, valued)).otherwise(passes)
    # make all fields nullable: to Arrow, a column that is never null has another type
    type_ = nullable(StructType([selected.schema[name] for name in pass_.values]))
    value = F.struct(*[F.col(f"`{name}`") for name in pass_.values]).cast(type_)
    internals = [name for name in internals_of(selected) if name not in ("__passes", "__input")]
    return selected.select(
        *internals,
        passes.alias("__passes"),
        _with_reason(F.col("__input"), is_own, pass_.logic).alias("__input"),
        F.when(valued, value).alias(f"__{value_column(number)}"),
    )


def _with_reason(record: Column, is_own: Column, logic: kernel.Stage) -> Column:
    """Return a record in the form of quarantine with its present reason."""
    if logic.on_error == "stop":
        return record
    return F.when(is_own, record.withField("reason", F.col("__reason"))).otherwise(record)


def _selected(frame: DataFrame, number: int, pass_: KernelPass, valued: Column) -> DataFrame:
    """Return the frame with the selected values in place of columns of their names."""
    internals = internals_of(frame)
    # Spark compares names without case: see `semantics.PINNED`.
    taken = {name.lower() for name in pass_.values} | {name.lower() for name in internals}
    unselected = [name for name in frame.columns if name.lower() not in taken]
    return frame.select(
        *[name for name in internals if name != "__input"],
        _input(frame, number, pass_.logic).alias("__input"),
        *[F.when(valued, F.expr(guarded(sql))).alias(name) for name, sql in pass_.values.items()],
        *[F.col(f"`{name}`") for name in unselected],  # the key's columns, which `where` may name
    )


def _passes(where: str, valued: Column) -> Column:
    """Return `where` as a column; deletions pass. Like `select`, it is not evaluated for records without a
    value.
    """
    passes = F.coalesce(F.when(valued, F.expr(guarded(where))), F.lit(False))
    return passes | F.col("__tombstone")


def _hash(level: Mapping[int, KernelPass], internals: Sequence[str]) -> Column:
    """Return the hash of rows that are decided together: a key, or in a bounded stage a topic-partition."""
    position = [F.col(f"__{name}") for name in ("topic", "partition", "offset")]
    of_key = F.col("__hash") if "__hash" in internals else key_hash(F.col("__key"), *position)
    return by_pass({number: place_hash() if pass_.logic.bound else of_key for number, pass_ in level.items()})


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


def kernel_schema(rows: pa.Schema, number: int, logic: kernel.Stage, retracts: bool) -> pa.Schema:
    """Return `kernel.input_schema` for such rows.

    Args:
        rows: the columns of `record_rows`.
        number: the number of the pass.
        logic: the stage, which decides the types of accumulator and output.
        retracts: whether it takes back what emissions replace.
    """
    value, input_type = rows.field(value_column(number)).type, rows.field("input").type
    record = rows.field(record_column(number)).type if logic.on_late == "emit" else None
    return kernel.input_schema(
        value,
        logic.reduce.accumulator_type(value),
        logic.reduce.output_type(value),
        input_type,
        later="rank" in rows.names,
        retracts=retracts,
        recorded=kernel.RECORDED in rows.names,
        record=record,
    )


def _input(frame: DataFrame, number: int, logic: kernel.Stage) -> Column:
    """Return the quarantine form of a record: its bytes in Kafka, or else the emission that is read."""
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
    own = F.when(F.col(TO) == number, emitted.cast(INPUT))
    return F.coalesce(F.col("__input").cast(INPUT), own)
