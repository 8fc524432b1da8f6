"""Make the frames that the passes of a level read: of decoded records, and of the emissions of the level
before.

A frame has internal columns (see `decoding`), and structs with the columns that expressions may name. Each
row goes to one of the passes, whose number is in `__to`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType, TimestampType

from tidegate import kernel
from tidegate.errors import PipelineInvalid, Problem
from tidegate.formats import EMISSION
from tidegate.model.inputs import SIDES
from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source
from tidegate.spark.retraction import before_column
from tidegate.spark.rows import INPUT, by_pass, internals_of
from tidegate.spark.shuffle import REPORT, TO, emitted_column, value_column
from tidegate.spark.source import spark_types
from tidegate.spark.steps import (
    KernelPass,
    KeyTypes,
    Port,
    canonical_key,
    column_at,
    is_removed,
    key_columns,
    record_layout,
    to_json,
)

WINDOW = ("window_start", "window_end")
SIDE = "__side"
"""The column that says which side of a join an emission comes to: 0 in all others."""
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


def source_frame(
    frame: DataFrame, level: Mapping[int, KernelPass], unions: Mapping[int, StructType]
) -> DataFrame:
    """Return the decoded records of a source as the frame of the passes that read them: their columns become
    the fields of `__columns0` for the pass number 0, and so on, beside internal columns.

    Args:
        frame: the records.
        level: the passes that read them, by their number in the level.
        unions: the columns of the records of all sources of each pass; those that this source lacks are null.
    """
    names = [name for name in frame.columns if not name.startswith("__")]
    for number, pass_ in level.items():
        if pass_.key is not None:
            frame = _regrouped(frame, number, pass_)
    scopes = []
    for number, pass_ in level.items():
        fields = [column_at(path).alias(name) for name, path in (pass_.key or {}).items() if name != path]
        lacking = [
            F.lit(None).cast(field.dataType).alias(field.name)
            for field in unions[number]
            if field.name not in names
        ]
        own = [F.col(f"`{name}`") for name in names]
        scopes.append(F.struct(*own, *lacking, *fields).alias(f"__columns{number}"))
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
    """The emissions of a pass as they come through a port.

    Args:
        key: the key.
        types: the columns of the key.
        unkeyed: whether the key is missing.
        columns: the columns that expressions may name, as a struct; null in rows of other ports.
        before: what the emissions replace, if the pass retracts.
    """

    key: Column
    types: KeyTypes
    unkeyed: Column
    columns: Column
    before: tuple[Column, ...]


def emission_frame(
    emissions: DataFrame,
    keys: Sequence[KeyTypes],
    following: Sequence[KernelPass],
    ports: Sequence[Port],
    turn: Column | None = None,
) -> tuple[DataFrame, list[KeyTypes]]:
    """Return emissions as a frame, and the columns of the keys of the passes that read it.

    The emitted columns, those of the key, and `window_start` and `window_end` as timestamps, are fields of
    `__columns0` for the first of these passes, and so on; a pass that joins has them in its fields `left` and
    `right`. A `TimeTask` sets `__time`, and `__turn`, unless `turn` gives it. For a pass that retracts, the
    frame also has what the emissions replace.

    Args:
        emissions: rows of `forwarded_schema`; `__to` is the number of a port.
        keys: for each emitting pass, the columns of its key.
        following: the passes that read the emissions.
        ports: the ways into these passes, in their order.
        turn: the column `__turn`.
    """
    is_report = F.col(REPORT).isNotNull()
    for number, port in enumerate(ports):
        if not following[port.reader].takes_deletions:
            deleted = (F.col(TO) == number) & F.col(value_column(port.input)).isNull()
            emissions = emissions.where(is_report | ~deleted)
    inputs = [
        _input(emissions, number, port, following[port.reader], keys[port.input])
        for number, port in enumerate(ports)
    ]
    values = [F.col(value_column(port.input)) for port in ports]
    unkeyed = by_pass(_numbered(input_.unkeyed for input_ in inputs)) & ~is_report
    record = by_pass(_numbered(to_json(value) for value in values))
    by_reader = [
        [input_ for port, input_ in zip(ports, inputs, strict=True) if port.reader == reader]
        for reader in range(len(following))
    ]
    to = by_pass(_numbered(F.lit(port.reader) for port in ports))
    return emissions.select(
        *[F.col(name).alias(f"__{name}") for name in _PLACED if name in emissions.columns],
        (F.lit(None).cast("long") if turn is None else turn).alias("__turn"),
        F.lit(None).cast("long").alias("__time"),
        _rank().alias("__rank"),
        by_pass(_numbered(F.lit(port.side) for port in ports)).alias(SIDE),
        by_pass(_numbered(input_.key for input_ in inputs)).alias("__key"),
        by_pass(_numbered(value.isNull() for value in values)).alias("__tombstone"),
        F.col("source").alias("__chain"),
        F.when(unkeyed, F.lit(NO_KEY)).alias("__reason"),
        F.when(unkeyed, _unusable(record, F.col("key"))).alias("__input"),
        REPORT,
        F.when(is_report, F.col(TO)).otherwise(to).cast("int").alias(TO),
        *[_columns_of(sides).alias(f"__columns{reader}") for reader, sides in enumerate(by_reader)],
        *[before for input_ in inputs for before in input_.before],
    ), [_key_types(sides, pass_) for sides, pass_ in zip(by_reader, following, strict=True)]


def _numbered(columns: Iterable[Column]) -> dict[int, Column]:
    return dict(enumerate(columns))


def _columns_of(sides: Sequence[_Input]) -> Column:
    """Return the columns of a pass; if it joins two inputs, a struct of the columns of each."""
    if len(sides) == 1:
        return sides[0].columns
    return F.struct(*[side.columns.alias(name) for name, side in zip(SIDES, sides, strict=True)])


def _key_types(sides: Sequence[_Input], pass_: KernelPass) -> KeyTypes:
    """Return the columns of the key of a pass. Raises PipelineInvalid if its sides have different ones: equal
    keys would have different texts.
    """
    types = sides[0].types
    for side in sides[1:]:
        if dict(side.types) != dict(types):
            described = [
                {name: type_.simpleString() for name, type_ in input_.types.items()} for input_ in sides
            ]
            what = f"the key is {described[0]} on the left and {described[1]} on the right"
            fix = "Select its columns with the same types in the stages that it joins."
            raise PipelineInvalid([Problem(pass_.name, 1, f"stages.{pass_.name}.join", what, fix)])
    return types


def _input(emissions: DataFrame, number: int, port: Port, reader: KernelPass, keys: KeyTypes) -> _Input:
    """Return the emissions that come through the port with this number; `keys` is the key of the pass that
    emits them.
    """
    name = value_column(port.input)
    value = emissions.schema[name].dataType
    assert isinstance(value, StructType)
    key_parts = key_columns(keys)
    emitted = _with_key({field: F.col(name)[field] for field in value.names}, key_parts)
    window = {field: F.timestamp_millis(field) for field in WINDOW if field not in emitted}
    key, columns = _grouped(reader, window | emitted)
    unkeyed = key.isNull()
    is_own = F.col(TO) == number
    before: tuple[Column, ...] = ()
    if reader.retracts:
        # A deletion that takes a row back needs no key of its own.
        unkeyed &= F.col(name).isNotNull()
        last = F.col(emitted_column(port.input))
        replaced = window | _with_key({field: last[field] for field in value.names}, key_parts)
        group, replaced = _grouped(reader, replaced)
        before = (before_column(port.reader, is_own & last.isNotNull(), group, replaced),)
    # A key of other passes may have no value of the types of this one's key.
    struct = F.struct(*[column.alias(field) for field, column in columns.items()])
    types = dict.fromkeys(window, TimestampType()) | dict(keys)
    types |= {field.name: field.dataType for field in value}
    if reader.key is not None:
        keys = {field: _field_type(types, path) for field, path in reader.key.items()}
    return _Input(
        key,
        keys,
        unkeyed,
        F.when(is_own & F.col(name).isNotNull() if reader.joins else is_own, struct),
        before,
    )


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


def readers_of_source(source: str, level: Sequence[KernelPass]) -> tuple[int, ...]:
    """Return the numbers of the passes of a level that read the records of a source.

    The first of them gets the records that cannot be used, and what becomes of a record in it is the fate of
    the record in the batch: see `accounting_passes`.
    """
    readers = [number for number, pass_ in enumerate(level) if source in pass_.sources]
    accounting = [pass_.name for pass_ in accounting_passes(level)]
    return tuple(sorted(readers, key=lambda number: level[number].name not in accounting))


def accounting_passes(level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes of the first level that read each source once: their counts together are those of the
    batch.

    Example: of passes that read `a`, `a` and `b`, and `b`, the first and the last; of passes that read `a`,
    and `a` and `b`, the second.

    If there are none, as of `a` and `b`, `b` and `c`, some sources are left over.
    """
    sources = list(dict.fromkeys(source for pass_ in level for source in pass_.sources))
    return _cover(sources, level) or _apart(level)


def _cover(sources: Sequence[str], level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes that read each of the sources exactly once; empty if there are none."""
    for pass_ in level:
        if sources and sources[0] in pass_.sources and {*pass_.sources} <= {*sources}:
            rest = [source for source in sources if source not in pass_.sources]
            readers = _cover(rest, level) if rest else []
            if readers or not rest:
                return [pass_, *readers]
    return []


def _apart(level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes that have no source in common, each the first possible one."""
    apart: list[KernelPass] = []
    for pass_ in level:
        if all({*pass_.sources}.isdisjoint(other.sources) for other in apart):
            apart.append(pass_)
    return apart


def source_keys(source: Source) -> KeyTypes:
    """Return the columns of a source's key."""
    columns = spark_types(record_layout(source).row_columns)
    return {name: columns[name].dataType for name in source.key or ()}


def union_schema(pipeline: Pipeline, pass_: KernelPass) -> pa.Schema:
    """Return the columns that the expressions of a pass may name in records of its sources.

    A column that a source lacks is null in its records.
    """
    layouts = [record_layout(pipeline.sources[name]) for name in pass_.sources]
    fields = {field.name: field for layout in reversed(layouts) for field in layout.row_columns}
    return pa.schema(list(fields.values()))
