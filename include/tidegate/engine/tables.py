"""What a batch writes: changelogs, outboxes and quarantine, as Delta tables partitioned by attempt."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate import core
from tidegate.engine.rows import STATE_NAMES
from tidegate.engine.source import to_json
from tidegate.engine.stage import KeyTypes, key_columns
from tidegate.failpoints import failpoint
from tidegate.spec import KafkaSink, Pipeline, Stage


@dataclass(frozen=True)
class Table:
    """Rows for a table, and how many: an empty one is not written. `kind`: state, outbox or quarantine."""

    kind: str
    path: str
    frame: DataFrame
    rows: int


def write_all(tables: Sequence[Table], attempt: str) -> None:
    """Append all, side by side, under the attempt's name."""
    wanted = [table for table in tables if table.rows]
    if wanted:
        with ThreadPoolExecutor(len(wanted)) as pool:
            writes = [pool.submit(_append, table, attempt) for table in wanted]
        for write in writes:
            write.result()


def _append(table: Table, attempt: str) -> None:
    with failpoint(f"compute.write_{table.kind}"):
        append(table.frame, table.path, attempt)


def append(frame: DataFrame, path: str, attempt: str) -> None:
    """Append rows to a table under a name, as a partition of their own."""
    named = frame.withColumn("attempt", F.lit(attempt))
    writer = named.write.format("delta").mode("append").partitionBy("attempt").option("mergeSchema", "true")
    writer.save(path)


def changelog(decided: DataFrame, logic: core.Stage, seq: int) -> DataFrame:
    """State rows, as the table keeps them."""
    values = [F.col("held").alias("value"), F.col("emitted")] if logic.keeps_values else []
    if logic.remembers_hashes:
        values = values[:1]
    return decided.where(F.col("kind") == core.STATE).select(
        *["key", *values, "topic", "partition", "offset", "timestamp", "source", *STATE_NAMES],
        F.lit(seq).alias("updated_seq"),
    )


def outbox(decided: DataFrame, pipeline: Pipeline, stage: Stage, keys: KeyTypes, seq: int) -> DataFrame:
    """Emissions of a stage, with what its sinks send."""
    texts = {_PAYLOAD[with_key]: text for with_key, text in payloads(decided, pipeline, stage, keys).items()}
    parts = key_columns(keys) or {"key": F.col("key")}
    return decided.where(F.col("kind") == core.EMISSION).select(
        *["key", "ordinal", "reason", "value"],
        F.struct(*[part.alias(name) for name, part in parts.items()]).alias("key_columns"),
        *[text.alias(name) for name, text in texts.items()],
        *["window_start", "window_end", "timestamp", "at"],
        hops().alias("source"),
        F.lit(seq).alias("seq"),
    )


def hops() -> Column:
    """The chain of positions that an emission comes from, this hop's included."""
    return F.concat_ws(";", "source", F.concat_ws("/", "topic", "partition", "offset"))


_PAYLOAD = {False: "payload", True: "payload_with_key"}


def payloads(decided: DataFrame, pipeline: Pipeline, stage: Stage, keys: KeyTypes) -> dict[bool, Column]:
    """What Kafka sinks send, as JSON text: by `with_key`, as far as sinks want it."""
    sinks = [sink for sink in pipeline.sinks if pipeline.stage_of(sink) == stage]
    wanted = {sink.with_key for sink in sinks if isinstance(sink, KafkaSink)}
    value = decided.schema["value"].dataType
    assert isinstance(value, StructType)
    texts = {}
    if False in wanted:
        texts[False] = to_json("value")
    if True in wanted:
        window = ("window_start", "window_end") if stage.window is not None else ()
        added = key_columns(keys) | {name: F.col(name) for name in window}
        columns = {name: part for name, part in added.items() if name not in value.names}
        columns |= {name: F.col("value")[name] for name in value.names}
        whole = F.struct(*[part.alias(name) for name, part in columns.items()])
        texts[True] = F.when(F.col("value").isNotNull(), to_json(whole))
    return texts


def quarantine(decided: DataFrame, seq: int) -> DataFrame:
    """Unusable input, whole."""
    position = ("topic", "partition", "offset", "timestamp")
    return decided.where(F.col("kind") == core.QUARANTINED).select(
        *position, "input.key", "input.value", "input.headers", "input.reason", F.lit(seq).alias("seq")
    )
