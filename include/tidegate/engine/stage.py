"""Bringing rows to the kernel and taking what it gives back. The decisions are in `core`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate import core
from tidegate.engine.source import QUARANTINED_SCHEMA
from tidegate.errors import PipelineInvalid, Problem, SchemaChanged
from tidegate.spec import ChangeEmit, Pipeline, Stage

_OUTPUT = (
    "kind byte, key string, ordinal bigint, topic string, partition int, offset bigint, "
    "timestamp bigint, source string, reason string, counts string"
)
_ORDER = ("key", "kind", "updated_seq", "topic", "partition", "offset")


def kernel_stage(stage: Stage) -> core.Stage:
    """The part of a stage's description that the kernel acts on."""
    if isinstance(stage.emit, ChangeEmit):
        return core.Stage(core.Change(stage.emit.compared))
    return core.Stage(core.Update())


def stage_rows(decoded: DataFrame, stage: Stage, *extra: Column) -> DataFrame:
    """Decoded records as kernel rows, with `extra` columns. Spark evaluates the stage's expressions here."""
    internals = [name for name in decoded.columns if name.startswith("__")]
    selected = decoded.select(*internals, *[F.expr(sql).alias(name) for name, sql in stage.select.items()])
    passes = F.coalesce(F.expr(stage.where), F.lit(False)) if stage.where else F.lit(True)
    used = F.col("__reason").isNull()
    value = F.struct(*[F.col(f"`{name}`") for name in stage.select])
    record = F.col("__record")
    quarantined = F.struct(
        record["key"], record["value"], record["headers"], F.col("__reason").alias("reason")
    )
    return selected.select(
        F.when(used, core.RECORD).otherwise(core.QUARANTINED).cast("byte").alias("kind"),
        F.when(used, F.col("__key")).alias("key"),
        F.lit(0).cast("long").alias("updated_seq"),
        record["topic"].alias("topic"),
        record["partition"].alias("partition"),
        record["offset"].alias("offset"),
        F.col("__timestamp").alias("timestamp"),
        F.col("__chain").alias("source"),
        (passes | F.col("__tombstone")).alias("passes"),
        F.when(used & ~F.col("__tombstone"), value).alias("value"),
        F.when(F.lit(False), value).alias("emitted"),
        F.when(~used, quarantined).cast(QUARANTINED_SCHEMA).alias("input"),
        *extra,
    )


def require_deterministic(rows: DataFrame, pipeline: Pipeline) -> None:
    """A second look, by Spark itself, at what `spec` has checked by name. Raises PipelineInvalid."""
    if not rows._jdf.queryExecution().analyzed().deterministic():
        message = "An expression gives another value each time it is evaluated"
        fix = "A retry must compute the same bytes: use deterministic functions only."
        raise PipelineInvalid([Problem(pipeline.pipeline, 1, "stages", message, fix)])


def state_rows(state: DataFrame, rows: DataFrame) -> DataFrame:
    """State as kernel rows beside `rows`. Raises SchemaChanged when its columns do not fit theirs."""
    target = rows.schema["value"].dataType
    return state.select(
        F.lit(core.STATE).cast("byte").alias("kind"),
        "key",
        "updated_seq",
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.lit(None).cast("string").alias("source"),
        F.lit(True).alias("passes"),
        _conformed(state, "value", target).alias("value"),
        _conformed(state, "emitted", target).alias("emitted"),
        F.lit(None).cast(QUARANTINED_SCHEMA).alias("input"),
    )


def _conformed(state: DataFrame, name: str, target: StructType) -> Column:
    """A stored value with the stage's columns of today: new ones are null; others must not differ."""
    stored = {field.name: field.dataType for field in state.schema[name].dataType}
    wanted = {field.name: field.dataType for field in target}
    for column in stored.keys() | wanted.keys():
        if column in stored and stored[column] != wanted.get(column):
            now = wanted[column].simpleString() if column in wanted else "gone"
            raise SchemaChanged(
                f"The column {column} was {stored[column].simpleString()} in the state and is {now}",
                "Raise `generation` in the pipeline file: it starts with a state of its own.",
            )
    parts = [
        F.col(name)[column] if column in stored else F.lit(None).cast(type_)
        for column, type_ in wanted.items()
    ]
    fields = [part.alias(column) for part, column in zip(parts, wanted, strict=True)]
    return F.when(F.col(name).isNotNull(), F.struct(*fields))


def apply_kernel(rows: DataFrame, stage: Stage, partitions: int) -> DataFrame:
    """Rows of whole keys, sorted, through the kernel. Gives rows of `core.output_schema`."""
    logic = kernel_stage(stage)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return core.decide(logic, batches)

    types = {name: rows.schema[name].dataType for name in ("value", "emitted", "input")}
    schema = StructType.fromDDL(_OUTPUT)
    for name, type_ in types.items():
        schema = schema.add(name, type_)
    # Quarantined rows have no key: they are spread by position instead of meeting in one partition.
    spread = F.coalesce(F.col("key"), F.concat_ws("/", "topic", "partition", "offset"))
    return rows.repartition(partitions, spread).sortWithinPartitions(*_ORDER).mapInArrow(run, schema)
