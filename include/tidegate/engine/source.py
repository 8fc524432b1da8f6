"""From Kafka records to rows with columns, a key, and a reason when they cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's users know)
from pyspark.sql.types import StructType

from tidegate.broker.config import KafkaConfig
from tidegate.ledger.records import OffsetRange
from tidegate.spec import Source

RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
QUARANTINED_SCHEMA = (
    "struct<key: binary, value: binary, headers: array<struct<key: string, value: binary>>, reason: string>"
)
_CHAIN = r"^[A-Za-z0-9._-]+/[0-9]{1,9}/[0-9]{1,18}(;|$)"
NO_KEY = "null_key_column"
"""The reason of a record, or of an emission, one of whose key's columns is null."""
SOURCE_HEADER = "tidegate-source"
_JSON = {"ignoreNullFields": "false"} | {
    # without a format Spark cuts what it writes to milliseconds: two times would be one
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_TIMES = {
    # ISO 8601. Without a format Spark takes "10:30" for half past ten today, whenever today is.
    "timestampFormat": "yyyy-MM-dd['T'][ ]HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd['T'][ ]HH:mm:ss[.SSSSSS]",
}
_CORRUPT = "__corrupt"
_ELEMENT = "__element"


def read_ranges(spark: SparkSession, kafka: KafkaConfig, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Exactly these offset ranges, committed records only; fails rather than skips when some are gone."""
    reader = spark.read.format("kafka").options(**kafka.for_spark())
    return reader.options(
        assign=_by_topic(ranges, lambda each: each.partition, as_list=True),
        startingOffsets=_by_topic(ranges, lambda each: each.start),
        endingOffsets=_by_topic(ranges, lambda each: each.end),
        failOnDataLoss="true",
        includeHeaders="true",
        # the client repeats what fails for its own time; Airflow's tries come after that
        **{"fetchOffset.numRetries": "1", "kafka.isolation.level": "read_committed"},
    ).load()


def _by_topic(
    ranges: Sequence[OffsetRange], number: Callable[[OffsetRange], int], as_list: bool = False
) -> str:
    """The JSON that the source's options take: {topic: {partition: number}} or {topic: [numbers]}."""
    topics: dict[str, dict[str, int]] = {}
    for each in ranges:
        topics.setdefault(each.topic, {})[str(each.partition)] = number(each)
    return json.dumps({topic: sorted(of.values()) for topic, of in topics.items()} if as_list else topics)


def decode(
    records: DataFrame, source: Source, believed_until_ms: Column, *extra: Column, whole: bool = False
) -> DataFrame:
    """Parse records (RECORD_SCHEMA) into the source's columns, besides `extra` ones.

    Gives a frame: the source's columns beside internal ones. An internal column starts with two underscores:
    `__topic`, `__partition`, `__offset`: the record's position; `__turn`, its place in the partition, and
    `__part`, its index among those exploded from one record; `__key` (the canonical key), `__timestamp`
    (epoch ms), `__tombstone`, `__chain` (hops before this one), `__reason` (null, or why the record is
    quarantined; its columns are null then), `__input` (the whole of a quarantined record, and with `whole` of
    each, for a stage that may have to put it aside), `__empty` (nothing to explode).
    """
    exploded = _explode(records.select("*", _parse(source).alias("__parsed")), source)
    keyed = exploded.select(
        "*",
        F.col("value").isNull().alias("__tombstone"),
        _key(source).alias("__key"),
        _timestamp_ms(source).alias("__timestamp"),
        _chain().alias("__chain"),
    )
    judged = keyed.withColumn("__reason", _reason(source, believed_until_ms))
    usable = F.col("__reason").isNull()
    columns = [F.when(usable, _column(source, column.name)).alias(column.name) for column in source.columns]
    return judged.select(
        *[F.col(name).alias(f"__{name}") for name in ("topic", "partition", "offset")],
        F.col("offset").alias("__turn"),
        *[F.col(name) for name in ("__part", "__key", "__timestamp", "__tombstone", "__chain", "__reason")],
        F.when(~usable | F.lit(whole), F.struct("key", "value", "headers", F.col("__reason").alias("reason")))
        .cast(QUARANTINED_SCHEMA)
        .alias("__input"),
        (usable & F.col("__empty")).alias("__empty"),
        *extra,
        *columns,
    )


def _explode(parsed: DataFrame, source: Source) -> DataFrame:
    """One row per element of the column that is exploded; one, too, when there is none."""
    if source.explode is None:
        return parsed.withColumns({"__part": F.lit(0), "__empty": F.lit(False)})
    array = F.col("__parsed")[source.explode]
    exploded = parsed.select("*", F.posexplode_outer(array).alias("__position", _ELEMENT))
    return exploded.withColumns(
        {
            "__part": F.coalesce("__position", F.lit(0)),
            "__empty": F.col("__position").isNull() & F.col("value").isNotNull(),
        }
    )


def _column(source: Source, name: str) -> Column:
    """A column of the source: of the record, or, when it is exploded, the element."""
    return F.col(_ELEMENT) if name == source.explode else F.col("__parsed")[name]


def _parse(source: Source) -> Column:
    if source.format == "json":
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in source.columns)
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "allowSingleQuotes": "false",
        } | _TIMES
        return F.from_json(F.col("value").cast("string"), f"{ddl}, {_CORRUPT} string", options)
    value = F.col("value") if source.format == "bytes" else F.col("value").cast("string")
    return F.struct(value.alias("value"))


def _is_one_value() -> Column:
    """Whether a text is one JSON value: `from_json` stops after the first, and would lose the others."""
    in_array = F.concat(F.lit("["), F.col("value").cast("string"), F.lit("]"))
    return F.coalesce(F.json_array_length(in_array) == 1, F.lit(False))


def _is_text(binary: Column) -> Column:
    """Whether bytes are UTF-8; null for null. A cast to `string` keeps them as they are, text or not."""
    return F.is_valid_utf8(binary.cast("string"))


def _key(source: Source) -> Column:
    """The record's key as text: its own, or the canonical one of the key columns.

    A tombstone has no columns: its key is the record's own, in the same canonical form.
    """
    own, tombstone = F.col("key").cast("string"), F.col("value").isNull()
    if source.key is None:
        return own
    key = canonical_key({name: _column(source, name) for name in source.key})
    if len(source.key) == 1:
        return F.coalesce(key, F.when(tombstone, own))
    types = {column.name: column.type for column in source.columns}
    of_tombstone = key_parts(own, ", ".join(f"`{name}` {types[name]}" for name in source.key))
    return F.when(tombstone, canonical_key({name: of_tombstone[name] for name in source.key})).otherwise(key)


def to_json(value: Column | str) -> Column:
    """A struct as JSON text: nulls are written, and times to the microsecond. See `core.json_text`."""
    return F.to_json(value, _JSON)


def key_parts(key: Column | str, schema: str | StructType) -> Column:
    """The columns that a canonical key of several was made of."""
    return F.from_json(key, schema, _TIMES)


def canonical_key(parts: Mapping[str, Column]) -> Column:
    """One column: its text; several: a JSON object, in their order, or null when one of them is."""
    if len(parts) == 1:
        return next(iter(parts.values())).cast("string")
    whole = F.struct(*[part.alias(name) for name, part in parts.items()])
    return F.when(reduce(and_, (part.isNotNull() for part in parts.values())), to_json(whole))


def _timestamp_ms(source: Source) -> Column:
    of_record = F.unix_millis(F.col("timestamp"))
    if source.timestamp == "record":
        return of_record
    declared = next(column for column in source.columns if column.name == source.timestamp)
    value = _column(source, declared.name)
    of_column = value if declared.type == "bigint" else F.unix_millis(value.cast("timestamp"))
    return F.when(F.col("value").isNull(), of_record).otherwise(of_column)


def _chain() -> Column:
    """The hops that the record has behind it, oldest first, from its newest `tidegate-source` header."""
    ours = F.filter(F.col("headers"), lambda header: header["key"] == SOURCE_HEADER)
    return F.when(F.size(ours) > 0, F.element_at(ours, -1)["value"].cast("string"))


def _reason(source: Source, believed_until_ms: Column) -> Column:
    tombstone = F.col("value").isNull()
    parsed, key, timestamp = F.col("__parsed"), F.col("__key"), F.col("__timestamp")
    malformed = ~tombstone & parsed.isNull()
    if source.format != "bytes":  # `from_json` would put U+FFFD in place of what is no text: two values, one
        malformed = malformed | ~F.coalesce(_is_text(F.col("value")), F.lit(True))
    if source.format == "json":
        malformed = malformed | (~tombstone & (parsed[_CORRUPT].isNotNull() | ~_is_one_value()))
    no_key = F.lit("null_key" if source.key is None else NO_KEY)
    chain = F.col("__chain")
    # whatever `deduplicate` says, the chain goes out again with what the record makes
    unrooted = ~F.coalesce(F.is_valid_utf8(chain), F.lit(True))
    if source.deduplicate == "root":
        unrooted = unrooted | (chain.isNotNull() & ~chain.rlike(_CHAIN))
    own_key_counts = tombstone | F.lit(source.key is None)
    key_not_text = own_key_counts & ~F.coalesce(_is_text(F.col("key")), F.lit(True))
    # without an element there is nothing that could have a key
    keyless = key.isNull() & ~F.col("__empty")
    return (
        F.when(malformed, "malformed")
        .when(unrooted, "malformed_source_chain")
        .when(key_not_text, "key_not_text")
        .when(keyless & tombstone & F.lit(source.key is not None), "tombstone_without_key")
        .when(keyless, no_key)
        .when(timestamp.isNull() & ~F.col("__empty"), "no_timestamp")
        .when(timestamp < 0, "negative_timestamp")
        .when(timestamp > believed_until_ms, "future_timestamp")
    )
