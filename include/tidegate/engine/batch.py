"""One batch in Spark: read the planned ranges, decide, write everything under the attempt's own name."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from tidegate import core
from tidegate.broker.config import KafkaConfig
from tidegate.engine.errors import translated
from tidegate.engine.source import decode, read_ranges
from tidegate.engine.stage import apply_kernel, require_deterministic, stage_rows, state_rows
from tidegate.errors import CountMismatch, RecordTooLarge
from tidegate.failpoints import failpoint
from tidegate.lake import Lake, attempt_files
from tidegate.ledger.records import Plan
from tidegate.spec import KafkaSink, Pipeline, Stage

# Up to this many offsets, the batch's keys are broadcast to filter the state before it is shuffled;
# a larger batch shuffles the state with it, since its keys would not fit into a broadcast.
BROADCAST_SPAN = 500_000
_ROWS_PER_PARTITION = 500_000
# Kafka's default message.max.bytes is 1 MiB, batch overhead included.
MAX_RECORD_BYTES = 1_000_000


def compute_batch(
    spark: SparkSession,
    plan: Plan,
    pipeline: Pipeline,
    kafka: KafkaConfig,
    lake: Lake,
    committed: Sequence[str],
    attempt: str,
) -> core.Counts:
    """Compute a planned batch under the name `attempt`, on the state of the `committed` attempts.

    Nothing that it writes is visible before the ledger commits the attempt. Raises CountMismatch,
    RecordTooLarge, SchemaChanged, and what `engine.errors` makes of Spark's exceptions.
    """
    stage = pipeline.stages[0]
    with translated(pipeline):
        read = Observation("read")
        records = read_ranges(spark, kafka, plan.ranges).observe(read, F.count(F.lit(1)).alias("records"))
        rows = stage_rows(decode(records, pipeline.source, F.lit(plan.believed_until_ms)), stage)
        require_deterministic(rows, pipeline)
        state = read_state_rows(spark, lake.state(stage.name), committed)
        decided = _with_state(rows, state, stage, plan.span).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = _collect_counts(decided)
            _check_counts(counts, int(read.get["records"]))
            _write_all(decided, lake, pipeline, plan.seq, attempt, counts)
        finally:
            decided.unpersist()
            rows.unpersist()
    return counts


def read_state_rows(spark: SparkSession, path: str, committed: Sequence[str]) -> DataFrame | None:
    """The state rows of committed attempts, or None when there are none."""
    # Straight from the files: the ledger says which count, so Delta's log need not be replayed in Spark.
    found = attempt_files(path, committed)
    if found is None:
        return None
    schema = StructType.fromJson(json.loads(found.schema_json))
    return spark.read.schema(schema).parquet(*found.paths)


def _with_state(rows: DataFrame, state: DataFrame | None, stage: Stage, span: int) -> DataFrame:
    if state is not None:
        earlier = state_rows(state, rows)
        if span <= BROADCAST_SPAN:
            rows.persist(StorageLevel.MEMORY_AND_DISK)
            keys = rows.where(F.col("key").isNotNull()).select("key")
            earlier = earlier.join(F.broadcast(keys), "key", "left_semi").select(rows.columns)
        rows = rows.unionByName(earlier)
    return apply_kernel(rows, stage, _partitions(rows, span))


def _partitions(rows: DataFrame, span: int) -> int:
    """Enough that each fits in memory, and work for every core when there is work."""
    parallelism = rows.sparkSession.sparkContext.defaultParallelism
    wanted = max(math.ceil(span / _ROWS_PER_PARTITION), min(parallelism, math.ceil(span / 10_000)), 1)
    return int(wanted)


def _collect_counts(decided: DataFrame) -> core.Counts:
    counts = core.Counts()
    for row in decided.where(F.col("kind") == core.COUNTS).select("counts").collect():
        counts.update(json.loads(row["counts"]))
    failpoint("compute.decided")
    return counts


def _check_counts(counts: core.Counts, read: int) -> None:
    counts["read"] = read
    if counts.accounted != read:
        raise CountMismatch(
            f"{read} records were read, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['quarantined']} quarantined + "
            f"{counts['deduplicated']} deduplicated)",
            "Run again; if it stays, please report it with the pipeline file.",
        )


def _write_all(
    decided: DataFrame, lake: Lake, pipeline: Pipeline, seq: int, attempt: str, counts: core.Counts
) -> None:
    """State, outbox and quarantine, each only when it has rows, side by side."""
    stage = pipeline.stages[0]
    tables = [
        (lake.state(stage.name), _changelog(decided, seq), counts["state-rows-changed"]),
        (lake.outbox(stage.name), _outbox(decided, pipeline, seq), counts["emitted"]),
        (lake.quarantine, _quarantine(decided, seq), counts["quarantined"]),
    ]
    _check_sizes(tables[1][1], counts)
    with ThreadPoolExecutor(len(tables)) as pool:
        writes = [pool.submit(_append, frame, path, attempt) for path, frame, rows in tables if rows]
    for write in writes:
        write.result()
    failpoint("compute.written")


def _append(frame: DataFrame, path: str, attempt: str) -> None:
    failpoint("compute.write")
    named = frame.withColumn("attempt", F.lit(attempt))
    writer = named.write.format("delta").mode("append").partitionBy("attempt").option("mergeSchema", "true")
    writer.save(path)


def _changelog(decided: DataFrame, seq: int) -> DataFrame:
    columns = ("key", "value", "emitted", "topic", "partition", "offset", "timestamp")
    return decided.where(F.col("kind") == core.STATE).select(*columns, F.lit(seq).alias("updated_seq"))


def _outbox(decided: DataFrame, pipeline: Pipeline, seq: int) -> DataFrame:
    hop = F.concat_ws("/", "topic", "partition", "offset")
    return decided.where(F.col("kind") == core.EMISSION).select(
        "key",
        "ordinal",
        "reason",
        "value",
        _key_columns(pipeline).alias("key_columns"),
        *_payloads(pipeline),
        "timestamp",
        F.concat_ws(";", "source", hop).alias("source"),
        F.lit(seq).alias("seq"),
    )


def _key_columns(pipeline: Pipeline) -> Column:
    """The key, as the columns that it was made of."""
    names = pipeline.source.key
    if names is None:
        return F.struct(F.col("key"))
    types = {column.name: column.type for column in pipeline.source.columns}
    if len(names) == 1:
        return F.struct(F.col("key").cast(types[names[0]]).alias(names[0]))
    return F.from_json("key", ", ".join(f"`{name}` {types[name]}" for name in names))


def _payloads(pipeline: Pipeline) -> list[Column]:
    """What Kafka sinks send, as JSON text; with the key's columns in it where a sink asks for them."""
    wanted = {sink.with_key for sink in pipeline.sinks if isinstance(sink, KafkaSink)}
    value_names = list(pipeline.stages[0].select)
    options = {"ignoreNullFields": "false"}
    payloads = []
    if False in wanted:
        payloads.append(F.to_json("value", options).alias("payload"))
    if True in wanted:
        keys = [
            _key_columns(pipeline)[name].alias(name)
            for name in pipeline.key_columns
            if name not in value_names
        ]
        whole = F.struct(*keys, *[F.col("value")[name].alias(name) for name in value_names])
        with_key = F.when(F.col("value").isNotNull(), F.to_json(whole, options))
        payloads.append(with_key.alias("payload_with_key"))
    return payloads


def _check_sizes(outbox: DataFrame, counts: core.Counts) -> None:
    texts = [F.length(name) for name in outbox.columns if name.startswith("payload")]
    if not texts or not counts["emitted"]:
        return
    size = F.octet_length("key") + F.greatest(*texts, F.lit(0))
    largest = outbox.orderBy(size.desc()).select("key", size.alias("bytes")).first()
    if largest["bytes"] > MAX_RECORD_BYTES:
        raise RecordTooLarge(
            f"The emission of key {largest['key'][:100]!r} has {largest['bytes']} bytes; "
            f"a Kafka sink takes {MAX_RECORD_BYTES}",
            "Select fewer columns in the stage, or send to a table sink; nothing was published.",
        )


def _quarantine(decided: DataFrame, seq: int) -> DataFrame:
    position = ("topic", "partition", "offset", "timestamp")
    return decided.where(F.col("kind") == core.QUARANTINED).select(
        *position, "input.key", "input.value", "input.headers", "input.reason", F.lit(seq).alias("seq")
    )
