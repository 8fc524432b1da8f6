"""Emissions that a Kafka sink would refuse, for size or timestamp: found before the commit, in the job that
gathers the counts.
"""

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
from tidegate.ledger.records import Plan
from tidegate.spec import KafkaSink, Pipeline, Stage

TOO_LARGE = "too_large"
REFUSED_TIMESTAMP = "refused_timestamp"
COUNTED = {TOO_LARGE: "emitted-too-large", REFUSED_TIMESTAMP: "emitted-refused-timestamp"}
"""The reasons of emissions in quarantine, and what they are counted as."""

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


def refused_of(sizes: Sizes, plan: Plan, pipeline: Pipeline, stage: Stage) -> Column | None:
    """Why an emission of a stage is quarantined (null: it goes out); None where no sink declares that."""
    too_large = sizes["quarantine"] > MAX_RECORD_BYTES if "quarantine" in sizes else F.lit(False)
    outside = F.lit(False)
    topics = {
        sink.topic
        for sink in pipeline.sinks
        if pipeline.stage_of(sink) == stage and isinstance(sink, KafkaSink)
    }
    allowed = [plan.timestamps[topic] for topic in sorted(topics & plan.timestamps.keys())]
    for earliest, latest in allowed:
        if earliest is not None:
            outside = outside | (F.col("timestamp") < earliest)
        if latest is not None:
            outside = outside | (F.col("timestamp") > latest)
    if "quarantine" not in sizes and not allowed:
        return None
    return F.when(too_large, TOO_LARGE).when(outside, REFUSED_TIMESTAMP)


def gathered(decided: DataFrame, sizes: Sizes, refused: Column | None) -> core.Counts:
    """What a step counted, its emissions that are quarantined among it. Raises RecordTooLarge.

    Runs one Spark job, whatever there is to be found out.
    """
    told, emitted = F.col("kind") == core.COUNTS, F.col("kind") == core.EMISSION
    sought = [F.collect_list("counts").alias("counts")]
    if "halt" in sizes:
        largest = F.max(F.when(emitted, F.struct(sizes["halt"].alias("bytes"), "key")))
        sought.append(largest.alias("halt"))
    if refused is not None:
        sought += [F.count_if(emitted & (refused == reason)).alias(reason) for reason in COUNTED]
    found = decided.where(told | emitted if len(sought) > 1 else told).agg(*sought).collect()[0]
    if "halt" in sizes and found["halt"] is not None:
        _require_small(found["halt"]["key"], found["halt"]["bytes"])
    counts = core.Counts()
    for part in found["counts"]:
        counts.include(json.loads(part))
    if refused is not None:
        counts.update({name: found[reason] for reason, name in COUNTED.items()})
    return counts


def _require_small(key: str, size: int) -> None:
    if size > MAX_RECORD_BYTES:
        raise RecordTooLarge(
            f"The emission of key {key[:100]!r} has {size} bytes; a Kafka sink takes {MAX_RECORD_BYTES}",
            "Select fewer columns in the stage, send to a table sink, or let such emissions be quarantined "
            "(`too_large: quarantine` at the sink); nothing was published.",
        )


def split(decided: DataFrame, refused: Column) -> tuple[DataFrame, DataFrame]:
    """What goes out, and the emissions that are quarantined, in the form of unusable input."""
    is_refused = (F.col("kind") == core.EMISSION) & refused.isNotNull()
    whole = F.struct(
        F.col("key").cast("binary"),
        to_json("value").cast("binary"),
        F.lit(None).cast("array<struct<key: string, value: binary>>"),
        refused,
    )
    unusable = decided.where(is_refused).withColumns(
        {
            "kind": F.lit(core.QUARANTINED).cast("byte"),
            "input": whole.cast(QUARANTINED_SCHEMA),
        }
    )
    return decided.where(~is_refused), unusable
