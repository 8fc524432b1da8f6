"""Make the frames that the passes of a level read: of decoded records, and of the emissions of the level
before.

A frame has internal columns (see `decoding`), and structs with the columns that expressions may name. Each
row goes to one of the passes, whose number is in `__to`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType, TimestampType

from tidegate import kernel
from tidegate.formats import EMISSION
from tidegate.spark.retraction import before_column
from tidegate.spark.rows import INPUT, by_pass, internals_of
from tidegate.spark.shuffle import REPORT, TO, emitted_column, value_column
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    canonical_key,
    column_at,
    is_removed,
    key_columns,
    to_json,
)

WINDOW = ("window_start", "window_end")
NO_KEY = "null_key_column"
"""The reason of an emission whose key has a null column."""
_FORWARDED = (
    *("hash", "key", "ordinal", "topic", "partition", "offset", "timestamp", "at", "instant", "turn", "part"),
    *("source", "reason", "window_start", "window_end", kernel.RECORDED),
)
_PLACED = ("topic", "partition", "offset", "timestamp", kernel.RECORDED)
_REPORTS = [pa.field(REPORT, pa.string()), pa.field(TO, pa.int32())]
REPORTS_ONLY = pa.schema(_REPORTS)
"""The output of tasks that forward no emissions."""


def source_frame(frame: DataFrame, level: Sequence[KernelPass]) -> DataFrame:
    """Return decoded records as the frame of the passes that read them: their columns become the fields of
    `__columns0` for the first pass, and so on, beside internal columns.
    """
    names = [name for name in frame.columns if not name.startswith("__")]
    for number, pass_ in enumerate(level):
        if pass_.key is not None:
            frame = _regrouped(frame, number, pass_)
    scopes = []
    for number, pass_ in enumerate(level):
        fields = [column_at(path).alias(name) for name, path in (pass_.key or {}).items() if name != path]
        scopes.append(F.struct(*[F.col(f"`{name}`") for name in names], *fields).alias(f"__columns{number}"))
    return frame.select(*internals_of(frame), *scopes)


def _regrouped(frame: DataFrame, number: int, pass_: KernelPass) -> DataFrame:
    """Set the key of the records that go to a pass with a key of its own. Deletions have no columns."""
    is_own = (F.col(TO) == number) & F.col(REPORT).isNull()
    if not pass_.takes_deletions:
        frame = frame.where(F.col(REPORT).isNotNull() | ~(is_own & F.col("__tombstone")))
    used = is_own & F.col("__reason").isNull()
    columns = {name: column_at(path) for name, path in (pass_.key or {}).items()}
    names = [name for name in frame.columns if not name.startswith("__")]
    key = canonical_key(columns)
    record = to_json(F.struct(*[F.col(f"`{name}`") for name in names]))
    unkeyed = used & key.isNull() & ~is_removed(frame)
    return frame.withColumns(
        {
            "__input": F.when(unkeyed, _unusable(record)).otherwise(F.col("__input").cast(INPUT)),
            "__reason": F.when(unkeyed, F.lit(NO_KEY)).otherwise(F.col("__reason")),
            "__key": F.when(used, key).otherwise(F.col("__key")),
            "__hash": F.when(used & key.isNotNull(), F.xxhash64(key)).otherwise(F.col("__hash")),
        }
    )


def forwarded_schema(level: Sequence[tuple[kernel.Stage, pa.Schema]]) -> pa.Schema:
    """Return the output columns of tasks that forward emissions.

    Args:
        level: the emitting stages, each with the schema of the kernel's input.
    """
    emitted = [kernel.output_schema(logic, rows) for logic, rows in level]
    values = []
    for number, ((logic, _), schema) in enumerate(zip(level, emitted, strict=True)):
        values.append(pa.field(value_column(number), schema.field("value").type))
        if logic.tells_before:
            values.append(pa.field(emitted_column(number), schema.field("emitted").type))
    forwarded = [emitted[0].field(name) for name in _FORWARDED if name in emitted[0].names]
    return pa.schema([*forwarded, *values, *_REPORTS])


@dataclass(frozen=True)
class _Input:
    """The emissions of a pass as another pass reads them.

    Args:
        key: the key.
        types: the columns of the key.
        unkeyed: whether the key is missing.
        columns: the struct `__columns` of the reader, and what the emissions replace if it retracts.
    """

    key: Column
    types: KeyTypes
    unkeyed: Column
    columns: tuple[Column, ...]


def emission_frame(
    emissions: DataFrame,
    keys: Sequence[KeyTypes],
    following: Sequence[KernelPass],
    inputs: Sequence[int],
    turn: Column | None = None,
) -> tuple[DataFrame, list[KeyTypes]]:
    """Return emissions as a frame, and the columns of the keys of the passes that read it.

    The emitted columns, those of the key, and `window_start` and `window_end` as timestamps, are fields of
    `__columns0` for the first of these passes, and so on. A `TimeTask` sets `__time`, and `__turn`, unless
    `turn` gives it. For a pass that retracts, the frame also has what the emissions replace.

    Args:
        emissions: rows of `forwarded_schema`.
        keys: for each emitting pass, the columns of its key.
        following: the passes that read the emissions.
        inputs: pass by pass, the number of the pass whose emissions it reads.
        turn: the column `__turn`.
    """
    is_report = F.col(REPORT).isNotNull()
    for number, (reader, input_) in enumerate(zip(following, inputs, strict=True)):
        if not reader.takes_deletions:
            deleted = (F.col(TO) == number) & F.col(value_column(input_)).isNull()
            emissions = emissions.where(is_report | ~deleted)
    readers = [
        _input(emissions, number, reader, input_, keys[input_])
        for number, (reader, input_) in enumerate(zip(following, inputs, strict=True))
    ]
    values = [F.col(value_column(input_)) for input_ in inputs]
    unkeyed = by_pass([reader.unkeyed for reader in readers]) & ~is_report
    record = by_pass([to_json(value) for value in values])
    return emissions.select(
        *[F.col(name).alias(f"__{name}") for name in _PLACED if name in emissions.columns],
        (F.lit(None).cast("long") if turn is None else turn).alias("__turn"),
        F.lit(None).cast("long").alias("__time"),
        _rank().alias("__rank"),
        by_pass([reader.key for reader in readers]).alias("__key"),
        by_pass([value.isNull() for value in values]).alias("__tombstone"),
        F.col("source").alias("__chain"),
        F.when(unkeyed, F.lit(NO_KEY)).alias("__reason"),
        F.when(unkeyed, _unusable(record, F.col("key"))).alias("__input"),
        REPORT,
        TO,
        *[column for reader in readers for column in reader.columns],
    ), [reader.types for reader in readers]


def _input(emissions: DataFrame, number: int, reader: KernelPass, input_: int, keys: KeyTypes) -> _Input:
    """Return the emissions of pass `input_`, whose key is `keys`, for the pass with this number."""
    name = value_column(input_)
    value = emissions.schema[name].dataType
    assert isinstance(value, StructType)
    key_parts = key_columns(keys)
    emitted = _with_key({field: F.col(name)[field] for field in value.names}, key_parts)
    window = {field: F.timestamp_millis(field) for field in WINDOW if field not in emitted}
    key, columns = _grouped(reader, window | emitted)
    unkeyed = key.isNull()
    before = []
    if reader.retracts:
        # A deletion that takes a row back needs no key of its own.
        unkeyed &= F.col(name).isNotNull()
        last = F.col(emitted_column(input_))
        replaced = window | _with_key({field: last[field] for field in value.names}, key_parts)
        group, replaced = _grouped(reader, replaced)
        before = [before_column(number, last, group, replaced)]
    # A key of other passes may have no value of the types of this one's key.
    struct = F.struct(*[column.alias(field) for field, column in columns.items()])
    packed = F.when(F.col(TO) == number, struct).alias(f"__columns{number}")
    types = dict.fromkeys(window, TimestampType()) | dict(keys)
    types |= {field.name: field.dataType for field in value}
    if reader.key is not None:
        keys = {field: _field_type(types, path) for field, path in reader.key.items()}
    return _Input(key, keys, unkeyed, (packed, *before))


def _grouped(reader: KernelPass, columns: Mapping[str, Column]) -> tuple[Column, dict[str, Column]]:
    """Return the key of emissions with these columns for a reader, and the columns with those of its key."""
    if reader.key is None:
        return F.col("key"), dict(columns)
    parts = {name: _field(columns, path) for name, path in reader.key.items()}
    return canonical_key(parts), {**columns, **parts}


def _field(columns: Mapping[str, Column], path: str) -> Column:
    name, *fields = path.split(".")
    return reduce(lambda outer, field: outer[field], fields, columns[name])


def _field_type(types: Mapping[str, DataType], path: str) -> DataType:
    name, *fields = path.split(".")
    return reduce(lambda outer, field: outer[field].dataType, fields, types[name])


def _with_key(emitted: Mapping[str, Column], key_parts: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of an emission with those of its key. A deletion emits no value, so the columns of
    its key come from the key itself.
    """
    key = {
        name: F.coalesce(emitted[name], part) if name in emitted else part for name, part in key_parts.items()
    }
    return {**emitted, **key}


def _rank() -> Column:
    """Return `kernel.RANK` of an emission; null for reports."""
    rank = F.struct(*[F.col(field.name) for field in kernel.RANK])
    return F.when(F.col(REPORT).isNull(), rank)


def _unusable(record: Column, key: Column | None = None) -> Column:
    """Return the quarantine form of a record without a key: its columns as JSON, and the key that it had."""
    unusable = F.struct(
        (F.lit(None) if key is None else key).cast("binary"),
        record.cast("binary"),
        F.lit(None).cast("binary"),
        F.lit(NO_KEY),
        F.lit(EMISSION),
        F.lit(None).cast("long"),
        F.lit(None).cast("byte"),
    )
    return unusable.cast(INPUT)
