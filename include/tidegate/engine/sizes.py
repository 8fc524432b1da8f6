"""Emissions too large for a Kafka sink: found before the commit, in the job that gathers the counts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.engine.source import QUARANTINED_SCHEMA, to_json
from tidegate.engine.stage import KeyTypes
from tidegate.engine.tables import hops, payloads
from tidegate.errors import RecordTooLarge
from tidegate.spec import KafkaSink, Pipeline, Stage

TOO_LARGE = "too_large"
"""The reason of an emission in quarantine."""

Sizes = Mapping[str, Column]
"""A sink's `too_large` -> bytes of an emission as the largest record that such sinks get of it."""


def sizes_of(decided: DataFrame, pipeline: Pipeline, stage: Stage, keys: KeyTypes) -> Sizes:
    """How large a stage's emissions are for its Kafka sinks; none for others."""
    texts = payloads(decided, pipeline, stage, keys)
    wanted: dict[str, dict[bool, Column]] = {}
    for sink in pipeline.sinks:
        if isinstance(sink, KafkaSink) and pipeline.stage_of(sink) == stage:
            wanted.setdefault(sink.too_large, {})[sink.with_key] = F.octet_length(texts[sink.with_key])
    beside = F.octet_length("key") + F.octet_length(hops())
    return {declared: beside + F.greatest(F.lit(0), *of.values()) for declared, of in wanted.items()}


def gathered(decided: DataFrame, sizes: Sizes) -> core.Counts:
    """What a step counted, its emissions that are too large among it. Raises RecordTooLarge.

    Runs one Spark job, whatever there is to be found out.
    """
    told, emitted = F.col("kind") == core.COUNTS, F.col("kind") == core.EMISSION
    sought = [F.collect_list("counts").alias("counts")]
    if "halt" in sizes:
        largest = F.max(F.when(emitted, F.struct(sizes["halt"].alias("bytes"), "key")))
        sought.append(largest.alias("halt"))
    if "quarantine" in sizes:
        sought.append(F.count_if(emitted & (sizes["quarantine"] > MAX_RECORD_BYTES)).alias("quarantine"))
    found = decided.where(told | emitted if sizes else told).agg(*sought).collect()[0]
    if "halt" in sizes and found["halt"] is not None:
        _require_small(found["halt"]["key"], found["halt"]["bytes"])
    counts = core.Counts()
    for part in found["counts"]:
        counts.include(json.loads(part))
    if "quarantine" in sizes:
        counts["emitted-too-large"] = found["quarantine"]
    return counts


def _require_small(key: str, size: int) -> None:
    if size > MAX_RECORD_BYTES:
        raise RecordTooLarge(
            f"The emission of key {key[:100]!r} has {size} bytes; a Kafka sink takes {MAX_RECORD_BYTES}",
            "Select fewer columns in the stage, send to a table sink, or let such emissions be quarantined "
            "(`too_large: quarantine` at the sink); nothing was published.",
        )


def split(decided: DataFrame, sizes: Sizes) -> tuple[DataFrame, DataFrame]:
    """What goes out, and the emissions that are quarantined for their size, in the form of unusable input."""
    large = (F.col("kind") == core.EMISSION) & (sizes["quarantine"] > MAX_RECORD_BYTES)
    whole = F.struct(
        F.col("key").cast("binary"),
        to_json("value").cast("binary"),
        F.lit(None).cast("array<struct<key: string, value: binary>>"),
        F.lit(TOO_LARGE),
    )
    unusable = decided.where(large).withColumns(
        {
            "kind": F.lit(core.QUARANTINED).cast("byte"),
            "input": whole.cast(QUARANTINED_SCHEMA),
        }
    )
    return decided.where(~large), unusable
