"""A pipeline as a tree of kernel passes: its stages, and before them filters of repeated values, or of
changes that come too late; with the texts and types of their keys.

A key is a text, which does not show that 7 was a number, while "07" would be another key. Therefore manifests
have the types beside the files of a stage's state. The type of a value is in the files themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from tidegate import kernel
from tidegate.errors import PipelineInvalid, Problem
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import INTEGERS, Type
from tidegate.formats import Csv, RecordLayout, SequenceParts
from tidegate.formats.records import REMOVED
from tidegate.model.columns import arrow_schema, parse_type
from tidegate.model.kernel_stages import (
    DEDUPLICATION,
    LOOKUP,
    SEQUENCE,
    deduplication_rule,
    deduplication_stage,
    kernel_stage,
    lookup_stage,
    sequence_stage,
    with_types,
)
from tidegate.model.keys import key_fault
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import StageReading
from tidegate.model.source import Source
from tidegate.model.stage import Stage
from tidegate.spark.shuffle import (
    REPORT,
    TO,
    value_column,
)
from tidegate.spark.source_rows import Shape, SourceRows
from tidegate.storage.evolution import NO_ALIASES, Aliases, column_changed, state_aliases
from tidegate.storage.manifest import DataFile

FRAME = "frame"
"""The struct of a filter's values that has the whole record."""
_LOOKUP_VALUES = {FRAME: "`__packed`", "deleted": "`__deleted`"}
_SEQUENCE_VALUES = {FRAME: "`__packed`", "sequence": "`__sequence`", "deleted": "`__deleted`"}
KeyTypes = Mapping[str, DataType]
"""The columns of a key, in order; empty if the key is the record's own."""
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


@dataclass(frozen=True)
class KernelPass:
    """One pass through the kernel.

    Args:
        values: column -> the expression of its value, in Spark SQL.
        inputs: the names of the passes whose emissions it reads; the empty name is that of the sources.
        filter: a condition in Spark SQL on a record; others do not reach the state. None: all records do.
        where: a condition in Spark SQL on a value that is the record's own; None: all records.
        key: column -> the path of what regroups its input; None: it keeps the key.
        stage: the stage of the pipeline; None for a filter before the stages.
        sources: the names of the sources whose records it reads, maybe through filters before the stages.
        takes_deletions: whether deletions of the pass before reach it, see `Pipeline.takes_deletions`.
        aliases: the older names of the columns of its state.
    """

    name: str
    logic: kernel.Stage
    values: Mapping[str, str]
    inputs: tuple[str, ...] = ("",)
    filter: str | None = None
    where: str | None = None
    key: Mapping[str, str] | None = None
    stage: Stage | None = None
    sources: tuple[str, ...] = ()
    takes_deletions: bool = True
    aliases: Aliases = NO_ALIASES

    @property
    def late(self) -> Stage | None:
        """Its late records as a stage; None if it does not emit them."""
        return self.stage.late if self.stage is not None else None

    @property
    def late_columns(self) -> tuple[str, ...]:
        """The columns of records that come too late; empty if they are not emitted."""
        return () if self.stage is None else self.stage.late_columns

    @property
    def retracts(self) -> bool:
        """Whether it takes back what the emissions of the pass before replace."""
        return self.stage is not None and self.stage.retract

    @property
    def joins(self) -> bool:
        """Whether it pairs the records of two inputs."""
        return len(self.inputs) > 1

    @property
    def reads_source(self) -> bool:
        """Whether it reads records of sources, maybe through the filters before the stages."""
        return bool(self.sources)

    @property
    def is_filter(self) -> bool:
        """Whether it comes before the stages: it drops repeated values, or changes that come too late, or
        remembers the last record of each key.
        """
        return self.stage is None

    @property
    def remembers_records(self) -> bool:
        """Whether it remembers the last record of each key, for lookups whose rows change."""
        return self.name == LOOKUP

    @property
    def is_deduplication(self) -> bool:
        """Whether it drops repeated values: its keys are those values, not the records' keys."""
        return self.name == DEDUPLICATION


def passes_of(pipeline: Pipeline) -> list[KernelPass]:
    """Return the passes: filters if the source and lookups ask for some, one after the other, then each
    stage, in the order of the file.
    """
    filters, all_sources = [], tuple(pipeline.sources)
    if (once := deduplication_stage(pipeline)) is not None:
        filters.append(KernelPass(DEDUPLICATION, once, {FRAME: "`__packed`"}, sources=all_sources))
    if (in_sequence := sequence_stage(pipeline)) is not None:
        filters.append(KernelPass(SEQUENCE, in_sequence, _SEQUENCE_VALUES, sources=all_sources))
    if (last_record := lookup_stage(pipeline)) is not None:
        before = (filters[-1].name if filters else "",)
        (single,) = pipeline.sources.values()
        aliases = Aliases(single.aliases, FRAME)
        filters.append(
            KernelPass(LOOKUP, last_record, _LOOKUP_VALUES, before, sources=all_sources, aliases=aliases)
        )
    source = filters[-1].name if filters else ""
    return filters + [
        KernelPass(
            stage.name,
            kernel_stage(pipeline, stage),
            stage.values,
            (source,) if stage.reads_source else stage.inputs,
            stage.filter,
            stage.where_of_record,
            None if stage.key is None else {name: stage.nested.get(name, name) for name in stage.key},
            stage,
            stage.sources,
            pipeline.takes_deletions(stage),
            state_aliases(stage),
        )
        for stage in pipeline.stages
    ]


def path_to(name: str, passes: Sequence[KernelPass]) -> list[KernelPass]:
    """Return the passes on the way from the source to a pass, and the pass itself."""
    names = {name}
    path: list[KernelPass] = []
    for pass_ in reversed(passes):
        if pass_.name in names:
            path.insert(0, pass_)
            names.update(pass_.inputs)
    return path


def levels_of(passes: Iterable[KernelPass]) -> list[list[KernelPass]]:
    """Return the passes by their distance from the source: those of one level are computed side by side."""
    depths = {"": -1}
    levels: list[list[KernelPass]] = []
    for pass_ in passes:
        depths[pass_.name] = depth = max(depths[input_] for input_ in pass_.inputs) + 1
        levels += [[] for _ in range(depth + 1 - len(levels))]
        levels[depth].append(pass_)
    return levels


class Port(NamedTuple):
    """A way from a pass to one of the next level, which joins two if it has two of them.

    Args:
        reader: the number of the pass that reads.
        input: the number of the pass of the level before whose emissions it reads.
        side: 0, or 1 for the right side of a join.
    """

    reader: int
    input: int
    side: int = 0


def ports_of(level: Sequence[KernelPass], before: Sequence[KernelPass]) -> list[Port]:
    """Return the ways into the passes of a level from those of the level before; none for passes that read
    the source.
    """
    numbers = {pass_.name: number for number, pass_ in enumerate(before)}
    return [
        Port(reader, numbers[input_], side)
        for reader, pass_ in enumerate(level)
        for side, input_ in enumerate(pass_.inputs)
        if input_
    ]


def leaving(number: int, ports: Sequence[Port]) -> tuple[int, ...]:
    """Return the numbers of the ports that the emissions of a pass go to."""
    return tuple(place for place, port in enumerate(ports) if port.input == number)


def typed(pass_: KernelPass, value: pa.DataType, keys: KeyTypes) -> KernelPass:
    """Return the pass for the types of its rows' `value` and its key. Raises ConditionFailed."""
    emitted = pass_.logic.reduce.output_type(value)
    return replace(pass_, logic=with_types(pass_.logic, emitted, parsed_types(keys)))


def keeps_input(passes: Sequence[KernelPass]) -> bool:
    """Return whether a stage that reads the source may quarantine a record: then records travel whole."""
    return any(pass_.logic.keeps_input for pass_ in passes if not pass_.is_filter and pass_.reads_source)


def repeated_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the columns whose repeated values are dropped; none without such a pass."""
    rule = deduplication_rule(pipeline)
    return () if rule is None else rule.columns


def is_removed(frame: DataFrame) -> Column:
    """Return whether the source's filter removes a record; False without a filter, and in reports."""
    return F.coalesce(F.col(REMOVED), F.lit(False)) if REMOVED in frame.columns else F.lit(False)


def column_at(path: str) -> Column:
    """Return a column of a frame, or a field of one.

    Example: `column_at("device.id")`
    """
    return F.col(".".join(f"`{name}`" for name in path.split(".")))


def _bypasses(frame: DataFrame, columns: Sequence[str]) -> Column:
    """Return whether nothing can repeat a record: it is a deletion, or has a null in `columns`."""
    null = reduce(or_, (column_at(path).isNull() for path in columns))
    own = F.col("__tombstone") | (F.col("__reason").isNull() & null)
    return F.col(REPORT).isNull() & own & ~is_removed(frame)


def packed(frame: DataFrame, pass_: KernelPass, pipeline: Pipeline) -> DataFrame:
    """Return records as values of a filter, each whole in `__packed`."""
    if pass_.is_deduplication:
        return _packed_by_columns(frame, repeated_columns(pipeline))
    deleted = frame.withColumn("__packed", _record(frame)).withColumn("__deleted", F.col("__tombstone"))
    if pass_.remembers_records:
        return deleted.withColumn("__tombstone", F.lit(False))  # a deletion goes on, as its whole record
    return deleted.withColumn("__tombstone", F.col("__sequence").isNull())  # which follows a deletion


def _record(frame: DataFrame) -> Column:
    names = [name for name in frame.columns if name not in (REPORT, TO, "__sequence")]
    return F.struct(*[F.col(f"`{name}`") for name in names])


def _packed_by_columns(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Key records by `columns`. Records with `__bypasses` cannot be repeated; the pass does not see them."""
    key = to_json(F.struct(*[column_at(path).alias(path) for path in columns]))
    keyed = F.col("__reason").isNull() & F.col(REPORT).isNull()
    return (
        frame.withColumn("__bypasses", _bypasses(frame, columns))
        .withColumn("__packed", _record(frame))
        .withColumn("__key", F.when(keyed & ~F.col("__bypasses"), key))
        .drop("__hash")
    )


def packed_type(frame: DataFrame) -> pa.StructType:
    """Return the type of a filter's values, each of which has a record of the frame whole."""
    return pa.struct(list(to_arrow_schema(frame.select(_record(frame).alias(FRAME)).schema)))


def unpacked(emissions: DataFrame) -> DataFrame:
    """Return the records that passed the filter, unchanged."""
    return emissions.select(f"{value_column(0)}.{FRAME}.*", REPORT, TO)


def record_layout(source: Source) -> RecordLayout:
    """Return the layout of the source's records. It travels to workers in place of `source`."""
    return RecordLayout(
        source.format,
        arrow_schema(source.columns),
        source.key or (),
        source.timestamp_path,
        source.explode,
        source.deduplicate == "root",
        source.schemas,
        source.message,
        source.aliases,
        source.csv or Csv(),
        _sequence_parts(source),
        source.key_format,
        arrow_schema(source.key_columns),
        source.key_schemas,
        source.condition,
        source.record_metadata,
        source.nested,
        source.time_rule,
        source.keeps_null_keys,
        source.key == (),
        source.coerce,
    )


def stage_rows(
    pass_: KernelPass, reading: StageReading, columns: pa.Schema, shape: Shape, shows_removed: bool
) -> SourceRows:
    """Return what makes the rows of a pass, whose work is `reading`, of records with these columns."""
    logic = pass_.logic
    values = {name: (value, arrow_type(parse_type(value.type))) for name, value in reading.values.items()}
    return SourceRows(
        *(pass_.name, columns, values, reading.filter, reading.where, reading.compared),
        *(shape, logic.bound is not None, shows_removed, logic.on_error == "quarantine"),
    )


def _sequence_parts(source: Source) -> SequenceParts | None:
    sequence = source.sequence
    if sequence is None:
        return None
    return SequenceParts(sequence.columns or (), arrow_schema(sequence.source) if sequence.source else None)


def to_json(value: Column | str) -> Column:
    """Return a struct as JSON text: nulls are written, and times to the microsecond. See `kernel.json_text`.

    Example: a struct of `id` 7 and a null `note` is `{"id":7,"note":null}`.
    """
    return F.to_json(value, _JSON)


def canonical_key(parts: Mapping[str, Column]) -> Column:
    """Return the text of one column, or a JSON object of several, in their order; null if one of them is
    null.

    Example: the column `id` with 7 is `7`; `id` with 7 and `region` with "eu" are `{"id":7,"region":"eu"}`.
    """
    if len(parts) == 1:
        return next(iter(parts.values())).cast("string")
    struct = F.struct(*[part.alias(name) for name, part in parts.items()])
    return F.when(reduce(and_, (part.isNotNull() for part in parts.values())), to_json(struct))


def key_columns(keys: KeyTypes) -> dict[str, Column]:
    """Return the columns from which the canonical key in the column `key` was made."""
    if not keys:
        return {}
    if len(keys) == 1:
        name, type_ = next(iter(keys.items()))
        return {name: F.col("key").cast(type_)}
    ddl = StructType()
    for name, type_ in keys.items():
        ddl = ddl.add(name, type_)
    parsed = F.from_json("key", ddl, _TIMES)
    return {name: parsed[name] for name in keys}


def key_types_text(keys: KeyTypes) -> str | None:
    """Return column -> Spark's type as JSON, as manifests have it; None if the key is the record's own.

    Example: a key of a column `id` of Spark's type `LongType` gives `{"id": "bigint"}`.
    """
    return json.dumps(_names(keys)) if keys else None


def require_same_key_types(stage: str, files: Iterable[DataFile], keys: KeyTypes) -> None:
    """Raises SchemaChanged if a column of the stage's key has another type than in the files of its state.

    Whole numbers have the same text in any width. Files with records' own keys fit any type.
    """
    types = _names(keys)
    for stored in sorted({file.key_types for file in files if file.key_types is not None}):
        for name, before in json.loads(stored).items():
            now = types.get(name, before)
            if now != before and not {now, before} <= INTEGERS.keys():
                raise column_changed(f"{name} in the key of {stage}", before, now)


def require_usable_key(pipeline: str, stage: str, keys: KeyTypes) -> None:
    """Raises PipelineInvalid if a key column has a type that cannot be a key.

    The grammar refuses such a column if it can derive the type; only Spark derives that of `array(a, b)`.
    """
    faults = [fault for name, type_ in parsed_types(keys).items() if (fault := key_fault(name, type_))]
    if faults:
        field = f"stages.{stage}.key"
        raise PipelineInvalid([Problem(pipeline, 1, field, fault.message, fault.fix) for fault in faults])


def parsed_types(keys: KeyTypes) -> dict[str, Type]:
    """Return the types of a key's columns in the grammar's form."""
    return {name: parse_type(type_.simpleString()) for name, type_ in keys.items()}


def _names(keys: KeyTypes) -> dict[str, str]:
    return {name: type_.simpleString() for name, type_ in keys.items()}
