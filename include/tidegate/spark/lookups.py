"""The tables that a batch reads, or other pipelines' states, as they were when it was planned: the columns of
lookups, and the rows that tables bring into a batch.

A changed table brings the last records of the keys whose looked-up row has changed. The state of the pass
before the stages has each last record with the columns that it was joined with. It is compared with the
tables of the plan, so no older version of a table is needed, which may be gone, and skipped versions make no
difference. A table of expected keys brings its keys.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType, TimestampType

from tidegate import kernel
from tidegate.errors import LookupAmbiguous, PipelineInvalid, Problem
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import INTEGERS
from tidegate.kernel.tables import topic_of
from tidegate.model.columns import parse_type
from tidegate.model.lookup import KEY, Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.model.tables import Expected, missing_column
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.outbox import KeyColumns
from tidegate.spark.shuffle import REPORT, TO, HashRange, Slots, Times, value_column
from tidegate.spark.source import frame_of
from tidegate.spark.steps import KeyTypes, canonical_key, to_json
from tidegate.storage.datafile import stored_schema
from tidegate.storage.delta import delta_errors, file_system, open_table
from tidegate.storage.evolution import NO_ALIASES, Aliases
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import HASH, LIVE, NEWNESS
from tidegate.storage.state import StateReader
from tidegate.storage.store import Store

_ROWS_PER_PART = 1_000_000
_BROADCAST_BYTES = 32 * 1024 * 1024
_ENTRY = [
    pa.field("key", pa.string()),
    pa.field("window_start", pa.int64()),
    pa.field("window_end", pa.int64()),
]


@dataclass(frozen=True)
class DeltaVersion:
    """A Delta table as of the version that the plan pinned: a retry joins the same rows."""

    path: str
    version: int

    @cached_property
    def parts(self) -> int:
        """The number of tasks that read it. Raises LakeUnavailable."""
        rows: int = pc.sum(self._files["num_records"]).as_py() or 0
        files: int = self._files.num_rows
        return max(1, min(files, rows // _ROWS_PER_PART + 1))

    @cached_property
    def _files(self) -> pa.Table:
        with delta_errors(self.path):
            return pa.table(self._table.get_add_actions(flatten=True))

    @cached_property
    def _table(self) -> DeltaTable:
        with delta_errors(self.path):
            return open_table(self.path, self.version)

    def open(self, spark: SparkSession) -> DataFrame:
        """Return all of its rows. Raises LakeUnavailable."""
        with delta_errors(self.path):
            schema = self._dataset().schema
        # a copy: an open table cannot travel to a task
        readers = [_DeltaPart(replace(self), part, self.parts) for part in range(self.parts)]
        return _small(frame_of(spark, schema, readers), pc.sum(self._files["size_bytes"]).as_py() or 0)

    def read(self, part: int, parts: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of every `parts`-th file. Raises LakeUnavailable."""
        with delta_errors(self.path):
            dataset = self._dataset()
            # Each task lists the files itself: only a fixed order divides them between tasks.
            for fragment in sorted(dataset.get_fragments(), key=lambda file: file.path)[part::parts]:
                yield from fragment.to_batches(schema=dataset.schema)

    def _dataset(self) -> pa.dataset.Dataset:
        return self._table.to_pyarrow_dataset(filesystem=file_system(self.path))


@dataclass(frozen=True)
class StateVersion:
    """A stage's state after a batch.

    Args:
        files: the files that it is read from, those of the newest batch last.
        aliases: the older names of its columns, by that batch's plan.
        columns: the columns of its key and values, by that plan: a state without rows is an empty table.
        reads: the columns that somebody reads.
        value: the type of the values; None: what the files have.
    """

    store: Store
    files: tuple[DataFile, ...]
    aliases: Aliases = NO_ALIASES
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    reads: frozenset[str] = frozenset()
    value: pa.StructType | None = None

    @property
    def parts(self) -> int:
        """The number of tasks that read it."""
        return sum(file.rows for file in self.files) // _ROWS_PER_PART + 1

    def open(self, spark: SparkSession) -> DataFrame:
        """Return the value of each key, and of each of its windows, in columns beside key and window.

        The columns of the key are there, too, if one is read: to parse them takes time. Raises LakeDamaged,
        LakeUnavailable, SchemaChanged.
        """
        if not self.files:
            return frame_of(spark, pa.schema([*_ENTRY, *_without(self.columns, _ENTRY)]), [_no_rows])
        value = self._stored_schema().field("value").type
        own = _without(self._keys.schema, [*_ENTRY, *value])
        schema = pa.schema([*_ENTRY, *own, *value])
        slots = Slots(self.parts)
        parts = [_StatePart(self, slots.range(slot)) for slot in range(slots.number)]
        return _small(frame_of(spark, schema, parts), sum(file.bytes for file in self.files))

    def read(self, hashes: HashRange) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a range of hashes that have a value. Raises LakeDamaged, LakeUnavailable,
        SchemaChanged.
        """
        schema = self._stored_schema()
        with StateReader(
            self.store, self.files, schema, first_hash=hashes.first, aliases=self.aliases
        ) as state:
            for rows in state.scan():
                # Rows come in the order of hashes: what follows the last hash belongs to other tasks.
                end = int(np.searchsorted(rows[HASH].to_numpy(), hashes.last, side="right"))
                yield from _value_columns(rows.slice(0, end), self._keys)
                if end < rows.num_rows:
                    return

    @cached_property
    def _keys(self) -> KeyColumns:
        """The columns of the key, if one of them is read."""
        types = json.loads(self.files[-1].key_types or "{}")
        if not self.reads & types.keys():
            return KeyColumns(pa.schema([]))
        # Files of before may have whole numbers of another width, which have the same text.
        texts = {name: "bigint" if type_ in INTEGERS else type_ for name, type_ in types.items()}
        schema = pa.schema([(name, arrow_type(parse_type(text))) for name, text in texts.items()])
        # no text of a number or a time stands for no key, and any other text may be a key
        return KeyColumns(schema, may_lack_keys=not pa.types.is_string(schema.field(0).type))

    def _stored_schema(self) -> pa.Schema:
        stored = stored_schema(self.store, self.files, self.aliases)
        names = (HASH, *(field.name for field in _ENTRY), LIVE, "value", *NEWNESS)
        fields = {name: stored.field(name) for name in names}
        if self.value is not None:
            fields["value"] = pa.field("value", self.value)
        return pa.schema([*fields.values()])


def _no_rows() -> Iterator[pa.RecordBatch]:
    """Yield no rows: the state has none yet."""
    yield from ()


def _without(fields: Iterable[pa.Field], taken: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the fields whose names are not taken."""
    names = {field.name for field in taken}
    return [field for field in fields if field.name not in names]


def _value_columns(rows: pa.Table, keys: KeyColumns) -> Iterator[pa.RecordBatch]:
    """Yield key, window, and the columns of the key and of the value, of rows that have one."""
    valued = rows.filter(rows["value"].is_valid())
    columns = {field.name: valued[field.name] for field in _ENTRY}
    value = valued["value"].combine_chunks()
    if own := _without(keys.schema, [*_ENTRY, *value.type]):
        parsed = keys.parsed(valued["key"].combine_chunks())
        columns |= {field.name: pc.struct_field(parsed, field.name) for field in own}
    columns |= {field.name: pc.struct_field(value, field.name) for field in value.type}
    yield from pa.table(columns).combine_chunks().to_batches()


PinnedTable = DeltaVersion | StateVersion
PinnedTables = Mapping[str, PinnedTable]
"""The table of each lookup, by its text in the pipeline file."""


@dataclass(frozen=True)
class _DeltaPart:
    table: DeltaVersion
    part: int
    parts: int

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            yield from self.table.read(self.part, self.parts)


@dataclass(frozen=True)
class _StatePart:
    state: StateVersion
    hashes: HashRange

    def __call__(self) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            yield from self.state.read(self.hashes)


def _small(frame: DataFrame, size: int) -> DataFrame:
    """Broadcast a small table: Spark does not know the size of a Python source, and would sort both sides of
    a join.
    """
    return F.broadcast(frame) if size <= _BROADCAST_BYTES else frame


def enrich(frame: DataFrame, pipeline: Pipeline, spark: SparkSession, tables: PinnedTables) -> DataFrame:
    """Return the frame with each lookup's columns; null if its table has no row. Raises LookupAmbiguous."""
    for lookup in pipeline.lookup:
        frame = joined(frame, lookup, tables[lookup.table].open(spark), pipeline, lookup.finds_one_row)
    return frame


def joined(
    frame: DataFrame, lookup: Lookup, table: DataFrame, pipeline: Pipeline, unique: bool = False
) -> DataFrame:
    """The frame with the columns of one lookup. Raises LookupAmbiguous, PipelineInvalid.

    `unique`: the table is known to have one row for each value of the columns `on`.
    """
    if (missing := missing_column(lookup, table.columns)) is not None:
        raise PipelineInvalid([Problem(pipeline.pipeline, 1, "lookup", *missing)])
    _require_same_kind(frame, lookup, table, pipeline)
    # Other names than those of the records: Spark refuses an ambiguous column after the join.
    on = [F.col(name).alias(f"__on_{name}") for name in lookup.on]
    selected = table.select(*on, *[F.col(name).alias(name) for name in lookup.columns])
    if not unique:
        _require_unique(selected, lookup)
    record_columns = {name: F.col("__key" if name == KEY else name) for name in lookup.on}
    same = [record_columns[name] == F.col(f"__on_{name}") for name in lookup.on]
    return frame.join(selected, same, "left").drop(*[f"__on_{name}" for name in lookup.on])


def _require_same_kind(frame: DataFrame, lookup: Lookup, table: DataFrame, pipeline: Pipeline) -> None:
    """Raise PipelineInvalid if a text would be compared with a timestamp: Spark would read it as a time of
    today.
    """
    records, rows = frame.schema, table.schema
    for name in lookup.on:
        types = {rows[name].dataType, records["__key" if name == KEY else name].dataType}
        if types == {StringType(), TimestampType()}:
            message = (
                f"`{name}` is a text on one side of the table {lookup.table}, and a timestamp on the other"
            )
            raise PipelineInvalid([Problem(pipeline.pipeline, 1, "lookup", message, "Give them one type.")])


def _require_unique(table: DataFrame, lookup: Lookup) -> None:
    """Raise LookupAmbiguous if several rows have the same values in the columns `on`; this is a Spark job."""
    on = [f"__on_{name}" for name in lookup.on]
    # A null equals nothing in a join, so rows with a null can never duplicate a record.
    complete = table.dropna(subset=on)
    duplicates = complete.groupBy(*on).count().where(F.col("count") > 1).limit(1).collect()
    if duplicates:
        value = ", ".join(f"{name} = {duplicates[0][f'__on_{name}']!r}" for name in lookup.on)
        raise LookupAmbiguous(
            f"The table {lookup.table} has {duplicates[0]['count']} rows with {value}",
            "Let it have one row for each, or add columns to `on`.",
        )


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
        last: the last record of each key, with the columns and types of `records`.
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
            frame = frame.withColumn(f"{_BEFORE}{name}", F.col(f"`{name}`")).drop(name)
        frame = joined(frame, lookup, tables[lookup.table], pipeline, lookup.finds_one_row)
        differing.append(F.when(_differs(lookup), F.lit(lookup.table)))
    frame = frame.withColumn(_TABLE, F.coalesce(*differing)).where(F.col(_TABLE).isNotNull())
    rows = frame.withColumns(_place(lookups, seq, times)).drop(
        _TABLE, *[f"{_BEFORE}{name}" for lookup in lookups for name in lookup.columns]
    )
    return records.unionByName(rows, allowMissingColumns=True)


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
        # A record that was joined again before has the table's place, and so the time of all partitions.
        of_all = F.greatest(F.col("__time"), F.lit(min(times.values())).cast("long"))
        columns["__time"] = F.coalesce(before[own], of_all)
    return columns


def expected_rows(
    table: DataFrame,
    expected: Expected,
    keys: KeyTypes,
    schema: StructType,
    pass_: tuple[int, str],
    seq: int,
) -> DataFrame:
    """Return a row for each key of a table, without nulls. Its value has nulls in all columns.

    Args:
        table: the rows of the table.
        expected: the columns that make the key.
        keys: the types of the columns of the stage's key.
        schema: the columns of the kernel's rows.
        pass_: the number and the name of the pass of the stage.
        seq: the number of the batch.

    Raises PipelineInvalid if the table has no such column.
    """
    number, stage = pass_
    if (missing := missing_column(expected, table.columns)) is not None:
        raise PipelineInvalid([Problem(stage, 1, f"stages.{stage}.expected", *missing)])
    columns = [F.col(f"`{name}`") for name in expected.key]
    types = zip(keys.items(), columns, strict=False)
    parts = {name: column.cast(type_) for (name, type_), column in types} or {"key": columns[0]}
    value = schema[value_column(number)].dataType
    assert isinstance(value, StructType)
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in value]
    everything = {
        "kind": F.lit(kernel.RECORD),
        "hash": F.xxhash64("key"),
        "key": F.col("key"),
        "topic": F.lit(topic_of(expected.table)),
        "partition": F.lit(0),
        "offset": F.lit(seq),
        "timestamp": F.lit(0),
        "passes": F.lit(True),
        value_column(number): F.struct(*nulls),
        REPORT: F.lit(None),
        TO: F.lit(number),
    }
    rows = table.select(canonical_key(parts).alias("key")).where(F.col("key").isNotNull()).distinct()
    return rows.select(
        *[everything.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in schema]
    )
