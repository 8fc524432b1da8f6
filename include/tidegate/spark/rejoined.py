"""The last records of keys whose looked-up row has changed, joined with the row as it is.

The state of the pass before the stages has each last record with the columns that it was joined with. It is
compared with the tables of the plan, so no older version of a table is needed, which may be gone, and skipped
versions make no difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate.kernel.tables import topic_of
from tidegate.model.lookup import KEY, Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.spark.lookups import joined
from tidegate.spark.shuffle import REPORT, TO, Times
from tidegate.spark.steps import to_json

_BEFORE = "__before_"
"""Begins the name of a column as the record was joined with it last."""
_TABLE = "__table"


def rejoined(
    last: DataFrame,
    records: DataFrame,
    pipeline: Pipeline,
    tables: Mapping[str, DataFrame],
    changed: Collection[str],
    seq: int,
    times: Times,
) -> DataFrame:
    """Return the last records whose looked-up columns differ from what they were joined with, as records of
    the batch.

    Each has its timestamp, and the position of the table's change: the topic of the table, and the batch's
    number. It comes at the time that its partition has before the batch.

    Args:
        last: the last record of each key, with the columns of `records`.
        records: the records of the batch, joined.
        pipeline: the pipeline.
        tables: table -> its rows.
        changed: the tables that may have other rows than before.
        seq: the number of the batch.
        times: the times of the topic-partitions before the batch.
    """
    lookups = [lookup for lookup in pipeline.reacting_lookups if lookup.table in changed]
    frame, differing = last, []
    for lookup in lookups:
        for name in lookup.columns:
            # a column that was added to the lookup since is null in the state
            before = F.col(f"`{name}`") if name in frame.columns else F.lit(None)
            frame = frame.withColumn(f"{_BEFORE}{name}", before).drop(name)
        # in a state, only entries are unique: several keys can have equal values
        unique = lookup.state is not None and KEY in lookup.on
        frame = joined(frame, lookup, tables[lookup.table], pipeline, unique)
        differing.append(F.when(_differs(lookup), F.lit(lookup.table)))
    frame = frame.withColumn(_TABLE, F.coalesce(*differing)).where(F.col(_TABLE).isNotNull())
    rows = frame.withColumns(_place(lookups, seq, times)).drop(
        _TABLE, *[f"{_BEFORE}{name}" for lookup in lookups for name in lookup.columns]
    )
    present = rows.select(*[name for name in rows.columns if name in records.columns])
    return records.unionByName(present, allowMissingColumns=True)


def _differs(lookup: Lookup) -> Column:
    """Return whether a column of the lookup is no longer what the record was joined with. As texts, values of
    any type can be compared.
    """
    before = to_json(F.struct(*[F.col(f"{_BEFORE}{name}").alias(name) for name in lookup.columns]))
    now = to_json(F.struct(*[F.col(f"`{name}`") for name in lookup.columns]))
    return before != now


def _place(lookups: Collection[Lookup], seq: int, times: Times) -> dict[str, Column]:
    """Return the columns of the position and the time of a row."""
    topic = F.coalesce(
        *[F.when(F.col(_TABLE) == lookup.table, F.lit(topic_of(lookup.table))) for lookup in lookups]
    )
    columns = {
        "__topic": topic,
        "__partition": F.lit(0),
        "__offset": F.lit(seq).cast("long"),
        "__chain": F.lit(None).cast("string"),
        REPORT: F.lit(None).cast("string"),
        TO: F.lit(0),
    }
    if times:
        texts = [part for (topic_, partition), at in times.items() for part in (f"{topic_}/{partition}", at)]
        before = F.create_map(*map(F.lit, texts))
        own = F.concat_ws("/", "__topic", "__partition")
        columns["__time"] = F.coalesce(before[own], F.col("__time"))
    return columns
