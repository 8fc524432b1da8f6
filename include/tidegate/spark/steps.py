"""A pipeline as a chain of kernel passes: its stages, and before them filters of repeated values, or of
changes that come too late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import kernel
from tidegate.spark.canonical import KeyTypes, to_json
from tidegate.spark.key_types import parsed_types
from tidegate.spark.shuffle import REPORT, SLOT
from tidegate.spec import Pipeline, Stage
from tidegate.spec.kernel import (
    DEDUPLICATION,
    SEQUENCE,
    deduplication_stage,
    kernel_stage,
    sequence_stage,
    with_types,
)
from tidegate.storage.aliases import NO_ALIASES, Aliases, state_aliases


@dataclass(frozen=True)
class KernelPass:
    """One pass through the kernel.

    Args:
        values: column -> the expression of its value, in Spark SQL.
        where: a condition in Spark SQL on a value that is the record's own; None: all records.
        key: the columns that regroup its input; None: it keeps the key.
        stage: the stage of the pipeline; None for a filter before the stages.
        takes_deletions: whether deletions of the pass before reach it, see `Pipeline.takes_deletions`.
    """

    name: str
    logic: kernel.Stage
    values: Mapping[str, str]
    where: str | None = None
    key: tuple[str, ...] | None = None
    stage: Stage | None = None
    takes_deletions: bool = True

    @property
    def aliases(self) -> Aliases:
        """The older names of the columns of its state."""
        return NO_ALIASES if self.stage is None else state_aliases(self.stage)

    @property
    def is_filter(self) -> bool:
        """Whether it only drops records: repeated values, or changes that come too late."""
        return self.stage is None

    @property
    def is_deduplication(self) -> bool:
        """Whether it drops repeated values: its keys are those values, not the records' keys."""
        return self.name == DEDUPLICATION


_SEQUENCE_VALUES = {"frame": "`__packed`", "sequence": "`__sequence`", "deleted": "`__deleted`"}


def passes_of(pipeline: Pipeline) -> list[KernelPass]:
    """Return the passes, in order: a filter if the source asks for one, then each stage."""
    filters = []
    if (once := deduplication_stage(pipeline)) is not None:
        filters.append(KernelPass(DEDUPLICATION, once, {"frame": "`__packed`"}))
    if (in_sequence := sequence_stage(pipeline)) is not None:
        filters.append(KernelPass(SEQUENCE, in_sequence, _SEQUENCE_VALUES))
    return filters + [
        KernelPass(
            stage.name,
            kernel_stage(pipeline, stage),
            stage.values,
            stage.where_of_record,
            stage.key,
            stage,
            pipeline.takes_deletions(stage),
        )
        for stage in pipeline.stages
    ]


def typed(pass_: KernelPass, value: pa.DataType, keys: KeyTypes) -> KernelPass:
    """Return the pass for the types of its rows' `value` and its key. Raises ConditionFailed."""
    emitted = pass_.logic.reduce.output_type(value)
    return replace(pass_, logic=with_types(pass_.logic, emitted, parsed_types(keys)))


def keeps_time(passes: Sequence[KernelPass]) -> bool:
    """Return whether stream time matters: to a stage, to the order between stages, or to what expires."""
    return len(passes) > 1 or any(pass_.stage is not None and pass_.stage.timed for pass_ in passes)


def keeps_input(passes: Sequence[KernelPass]) -> bool:
    """Return whether the first stage may quarantine a record: then records travel whole."""
    first = next(pass_ for pass_ in passes if pass_.stage is not None)
    return first.logic.on_error == "quarantine"


def repeated_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the columns whose repeated values are dropped; none without such a pass."""
    deduplicate = pipeline.source.deduplicate
    return () if isinstance(deduplicate, str) else deduplicate.columns


def source_keys(pipeline: Pipeline, frame: DataFrame) -> KeyTypes:
    """Return the columns of the source's key."""
    return {name: frame.schema[name].dataType for name in pipeline.source.key or ()}


def _bypasses(columns: Sequence[str]) -> Column:
    """Return whether nothing can repeat a record: it is a deletion, or has a null in `columns`."""
    null = reduce(or_, (F.col(f"`{name}`").isNull() for name in columns))
    return F.col(REPORT).isNull() & (F.col("__tombstone") | (F.col("__reason").isNull() & null))


def packed(frame: DataFrame, pass_: KernelPass, pipeline: Pipeline) -> DataFrame:
    """Return records as values of a filter, each whole in `__packed`."""
    if pass_.is_deduplication:
        return _packed_by_columns(frame, repeated_columns(pipeline))
    deleted = frame.withColumn("__packed", _record(frame)).withColumn("__deleted", F.col("__tombstone"))
    return deleted.withColumn("__tombstone", F.col("__sequence").isNull())  # which follows a deletion


def _record(frame: DataFrame) -> Column:
    names = [name for name in frame.columns if name not in (REPORT, SLOT, "__sequence")]
    return F.struct(*[F.col(f"`{name}`") for name in names])


def _packed_by_columns(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Key records by `columns`. Records with `__bypasses` cannot be repeated; the pass does not see them."""
    key = to_json(F.struct(*[F.col(f"`{name}`") for name in columns]))
    keyed = F.col("__reason").isNull() & F.col(REPORT).isNull()
    return (
        frame.withColumn("__bypasses", _bypasses(columns))
        .withColumn("__packed", _record(frame))
        .withColumn("__key", F.when(keyed & ~F.col("__bypasses"), key))
        .drop("__hash")
    )


def unpacked(emissions: DataFrame) -> DataFrame:
    """Return the records that passed the filter, unchanged."""
    return emissions.select("value.frame.*", REPORT, SLOT)
