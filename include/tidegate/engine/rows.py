"""Frames as the rows that the kernel takes (`core.rows`), and state beside them. The decisions are in `core`.

A frame is what a stage reads: columns beside internal ones (see `source.decode`). The first stage's comes
from Kafka, a later one's from the emissions of the stage before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidegate import core
from tidegate.core.rows import ENTRY
from tidegate.engine.source import QUARANTINED_SCHEMA, to_json
from tidegate.errors import PipelineInvalid, Problem, SchemaChanged
from tidegate.failpoints import failpoint
from tidegate.lake import attempt_files

Times = Mapping[tuple[str, int], int]
"""(topic, partition) -> stream time, epoch ms."""

STATE_NAMES = tuple(field.name for field in ENTRY)
"""The columns that tell of an entry, besides its values."""


def record_rows(
    frame: DataFrame, values: Mapping[str, str], where: str | None, logic: core.Stage, *extra: str
) -> DataFrame:
    """A frame's records as kernel rows, with `extra` columns of it. Spark evaluates the expressions here.

    `where` is that of a value which is the record's own; the kernel evaluates all others.
    """
    internals = [name for name in frame.columns if name.startswith("__")]
    named = {name.lower() for name in values}
    others = [name for name in frame.columns if not name.startswith("__") and name.lower() not in named]
    selected = frame.select(
        *[name for name in internals if name != "__input"],
        _input(frame, logic).alias("__input"),
        *[F.col(name).alias(f"__extra_{name}") for name in extra],
        *[F.expr(sql).alias(name) for name, sql in values.items()],
        *[F.col(f"`{name}`") for name in others],  # the key's columns, which `where` may name
    )
    used = F.col("__reason").isNull()
    value = F.struct(*[F.col(f"`{name}`") for name in values])
    passes = F.coalesce(F.expr(where), F.lit(False)) if where else F.lit(True)
    time = F.col("__time") if "__time" in internals else F.lit(None)
    rows = selected.select(
        F.when(used, core.RECORD).otherwise(core.QUARANTINED).cast("byte").alias("kind"),
        _hash(logic, "__key", "__topic", "__partition"),
        F.when(used, F.col("__key")).alias("key"),
        F.lit(0).cast("long").alias("updated_seq"),
        *[F.col(f"__{name}").alias(name) for name in ("topic", "partition", "offset")],
        F.col("__turn").cast("long").alias("turn"),
        F.col("__part").cast("int").alias("part"),
        F.col("__timestamp").alias("timestamp"),
        time.cast("long").alias("time"),
        F.col("__chain").alias("source"),
        (passes | F.col("__tombstone")).alias("passes"),
        F.when(used & ~F.col("__tombstone"), value).alias("value"),
        F.col("__input").alias("input"),
        *[F.col(f"__extra_{name}").alias(name) for name in extra],
    )
    # one type for a value, wherever it stands: Arrow takes a column that is never null for another type
    anything = nullable(rows.schema["value"].dataType)
    return _with_state_columns(rows.withColumn("value", F.col("value").cast(anything)), logic)


def _hash(logic: core.Stage, key: str, *place: str) -> Column:
    """What is decided together has the same: a key, or in a bounded stage a topic-partition."""
    return F.xxhash64(F.concat_ws("/", *place) if logic.bound else F.col(key)).alias("hash")


def _input(frame: DataFrame, logic: core.Stage) -> Column:
    """What is kept of a record that cannot be used: what came from Kafka, or else what a stage emitted."""
    if logic.on_error == "stop":
        return F.col("__input")
    columns = [F.col(f"`{name}`") for name in frame.columns if not name.startswith("__")]
    emitted = F.struct(
        F.col("__key").cast("binary"),
        to_json(F.struct(*columns)).cast("binary"),
        F.lit(None).cast("array<struct<key: string, value: binary>>"),
        F.lit(None).cast("string"),
    )
    return F.coalesce("__input", emitted.cast(QUARANTINED_SCHEMA))


def nullable(type_: DataType) -> DataType:
    """The type in which everything may be null."""
    if isinstance(type_, StructType):
        return StructType([StructField(each.name, nullable(each.dataType)) for each in type_])
    if isinstance(type_, ArrayType):
        return ArrayType(nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(nullable(type_.keyType), nullable(type_.valueType))
    return type_


def _with_state_columns(rows: DataFrame, logic: core.Stage) -> DataFrame:
    """Nulls for what only state rows have."""
    types = {field.name: field.dataType for field in output_schema(rows, logic)}
    names = ("held", "emitted", *STATE_NAMES)
    return rows.select("*", *[F.lit(None).cast(types[name]).alias(name) for name in names])


def output_schema(rows: DataFrame, logic: core.Stage) -> StructType:
    """`core.output_schema` in Spark's types, for kernel rows, with or without the columns of state rows."""
    return from_arrow_schema(core.output_schema(logic, to_arrow_schema(rows.schema)))


def timed(frame: DataFrame, starts: Times, runs: Sequence[str] = ()) -> DataFrame:
    """The frame with `__time`: the largest timestamp of the partition before each record, from `starts` on.

    DESIGN, "Stream time": quarantined records do not advance it. `runs` names columns that tell apart what is
    computed side by side.
    """
    before = (
        Window.partitionBy(*runs, "__topic", "__partition")
        .orderBy("__turn", "__part")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    seen = F.max(F.when(F.col("__reason").isNull(), F.col("__timestamp"))).over(before)
    start = time_of(starts, F.col("__topic"), F.col("__partition"))
    return frame.withColumn("__time", F.greatest(seen, start, F.lit(-1).cast("long")))


def time_of(times: Times, topic: Column, partition: Column) -> Column:
    """The time of a topic-partition; null when there is none."""
    if not times:
        return F.lit(None).cast("long")
    pairs = [F.lit(part) for (t, p), time in times.items() for part in (f"{t}/{p}", time)]
    place = F.concat_ws("/", topic, partition.cast("string"))
    return F.try_element_at(F.create_map(*pairs), place).cast("long")


def end_times(rows: DataFrame, starts: Times) -> dict[tuple[str, int], int]:
    """The stream time of each partition after the rows. Runs a Spark job."""
    newest = (
        rows.where(F.col("kind") == core.RECORD)
        .groupBy("topic", "partition")
        .agg(F.max("timestamp").alias("newest"))
        .collect()
    )
    ends = dict(starts)
    for row in newest:
        place = (row["topic"], row["partition"])
        ends[place] = max(row["newest"], ends.get(place, -1))
    return ends


def source_times(frame: DataFrame, starts: Times) -> dict[tuple[str, int], int]:
    """The stream time of each partition after all usable records of a frame. Runs a Spark job."""
    return end_times(arrivals(frame), starts)


def arrivals(frame: DataFrame, *extra: str) -> DataFrame:
    """Of a frame's records what time is made of, named as in kernel rows, with `extra` columns of it."""
    kind = F.when(F.col("__reason").isNull(), core.RECORD).otherwise(core.QUARANTINED).cast("byte")
    names = ("topic", "partition", "timestamp")
    return frame.select(kind.alias("kind"), *[F.col(f"__{name}").alias(name) for name in names], *extra)


def read_state_rows(spark: SparkSession, path: str, committed: Sequence[str]) -> DataFrame | None:
    """The state rows of committed attempts, or None when there are none."""
    # Straight from the files: the ledger says which count, so Delta's log need not be replayed in Spark.
    with failpoint("compute.state_files"):
        found = attempt_files(path, committed)
    if found is None:
        return None
    schema = StructType.fromJson(json.loads(found.schema_json))
    return spark.read.schema(schema).parquet(*found.paths)


def state_rows(state: DataFrame, rows: DataFrame, logic: core.Stage) -> DataFrame:
    """State as kernel rows beside `rows`. Raises SchemaChanged when its columns do not fit theirs."""
    known = {field.name for field in state.schema}

    def stored(name: str) -> Column:
        type_ = rows.schema[name].dataType
        return (F.col(name) if name in known else F.lit(None).cast(type_)).alias(name)

    return state.select(
        F.lit(core.STATE).cast("byte").alias("kind"),
        _hash(logic, "key", "topic", "partition"),
        *["key", "updated_seq", "topic", "partition", "offset"],
        F.lit(-1).cast("long").alias("turn"),
        F.lit(0).alias("part"),
        "timestamp",
        F.lit(None).cast("long").alias("time"),
        stored("source"),
        F.lit(True).alias("passes"),
        F.lit(None).cast(rows.schema["value"].dataType).alias("value"),
        F.lit(None).cast(QUARANTINED_SCHEMA).alias("input"),
        _conformed(state, "value", rows.schema["held"].dataType).alias("held"),
        _conformed(state, "emitted", rows.schema["emitted"].dataType).alias("emitted"),
        *[stored(name) for name in STATE_NAMES],
    )


def _conformed(state: DataFrame, name: str, target: StructType) -> Column:
    """A stored value with the stage's columns of today: new ones are null; others must not differ."""
    if name not in state.columns:
        return F.lit(None).cast(target)
    stored = {field.name: field.dataType for field in state.schema[name].dataType}
    wanted = {field.name: field.dataType for field in target}
    for column in stored.keys() | wanted.keys():
        if column in stored and not _same_type(stored[column], wanted.get(column)):
            now = wanted[column].simpleString() if column in wanted else "gone"
            raise SchemaChanged(
                f"The column {column} was {stored[column].simpleString()} in the state and is {now}",
                "Raise `generation` in the pipeline file: it starts with a state of its own. Or give the "
                "column its type back, then `tidegate doctor PIPELINE --drop-plan` and run again.",
            )
    parts = [
        F.col(name)[column] if column in stored else F.lit(None).cast(type_)
        for column, type_ in wanted.items()
    ]
    fields = [part.alias(column) for part, column in zip(parts, wanted, strict=True)]
    return F.when(F.col(name).isNotNull(), F.struct(*fields).cast(target))


def _same_type(stored: DataType, wanted: DataType | None) -> bool:
    """Whether two types differ in nothing but what may be null."""
    return wanted is not None and stored.simpleString() == wanted.simpleString()


def require_deterministic(rows: DataFrame, pipeline: str) -> None:
    """A second look, by Spark itself, at what `spec` has checked by name. Raises PipelineInvalid."""
    if not rows._jdf.queryExecution().analyzed().deterministic():
        message = "An expression gives another value each time it is evaluated"
        fix = "A retry must compute the same bytes: use deterministic functions only."
        raise PipelineInvalid([Problem(pipeline, 1, "stages", message, fix)])
