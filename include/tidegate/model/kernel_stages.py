"""The stages of a pipeline as the kernel takes them, and the columns of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from tidegate import kernel
from tidegate.errors import ConditionFailed
from tidegate.expressions import Condition
from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.expressions.types import ANY, BIGINT, ColumnTypes, Type, Unfitting
from tidegate.expressions.typing import typed_condition
from tidegate.formats.debezium import envelope_columns
from tidegate.formats.records import type_at
from tidegate.formats.schemas import Payload
from tidegate.kernel.reduce.collect import EVENTS
from tidegate.model.columns import parse_type
from tidegate.model.keys import DeduplicateColumns, Sequence
from tidegate.model.pipeline import Pipeline
from tidegate.model.row_expectations import with_column_types
from tidegate.model.sources import union_of
from tidegate.model.stage import Stage
from tidegate.model.windows import WINDOW_COLUMNS
from tidegate.sinks.model import SinkModel

_KINDS: dict[str, Literal["plain", "text", "time"]] = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint", "decimal"), "plain"),
    "string": "text",
}
"""How the kernel counts the bytes of a key column as JSON.

A type that is not listed counts like a time: at least.
"""

DEDUPLICATION = "_deduplicate"
"""The name of the deduplication before the first stage.

No stage has it: names of stages begin with a letter.
"""
SEQUENCE = "_sequence"
"""The name of the step before the first stage that drops outdated changes."""
LOOKUP = "_lookup"
"""The name of the step before the first stage that remembers the last record of each key."""


def state_stages(pipelines: Iterable[Pipeline]) -> dict[str, list[kernel.Stage]]:
    """Return step -> the kernel stages that the pipelines have for it, in the pipelines' order.

    Steps are deduplication, `sequence`, `lookup`, and the stages by name.

    Args:
        pipelines: Pipelines of one stream, as several of its batches were planned.
    """
    stages: dict[str, list[kernel.Stage]] = {}
    for pipeline in pipelines:
        if (once := deduplication_stage(pipeline)) is not None:
            stages.setdefault(DEDUPLICATION, []).append(once)
        if (in_sequence := sequence_stage(pipeline)) is not None:
            stages.setdefault(SEQUENCE, []).append(in_sequence)
        if (last_record := lookup_stage(pipeline)) is not None:
            stages.setdefault(LOOKUP, []).append(last_record)
        for stage in pipeline.stages:
            stages.setdefault(stage.name, []).append(kernel_stage(pipeline, stage))
    return stages


def kernel_stage(pipeline: Pipeline, stage: Stage) -> kernel.Stage:
    """Return a stage as the kernel needs it. Only stages that read the source deduplicate, because
    records enter there.

    Example: `kernel_stage(pipeline, pipeline.stages[0])`
    """
    stage_of_kernel = kernel.Stage(
        reduce=stage.reduce,
        emit=stage.emit.with_envelope(_envelope(pipeline, stage)),
        window=stage.entry_window,
        where=stage.condition,
        deduplicate=_position(pipeline, stage),
        bound=stage.emit.bound,
        on_error=stage.on_error,
        on_late=stage.on_late,
        expectations=_expectations(pipeline, stage),
        name=stage.name,
        unchanged=stage.unchanged,
        by_time=_sequence(pipeline) is not None and stage.reads_source,
        ttl=stage.ttl,
        expects=stage.expected is not None,
    )
    # Asked of the built stage, because only it knows whether it remembers what it emitted.
    needs_before = _is_enveloped(pipeline, stage) or pipeline.is_retracted(stage)
    return replace(stage_of_kernel, tells_before=stage_of_kernel.remembers_emitted and needs_before)


def _is_enveloped(pipeline: Pipeline, stage: Stage) -> bool:
    """Return whether a sink of the stage writes envelopes, which contain the value before."""
    rules = [sink.messages for sink in pipeline.sinks_of(stage)]
    return any(rule.payload.enveloped for rule in rules if rule is not None)


def with_types(stage: kernel.Stage, emitted: pa.StructType, keys: ColumnTypes) -> kernel.Stage:
    """Return the stage with its conditions and expectations typed for the actual columns.

    A file alone determines the type of an expression only if a condition could have the expression, too. But
    whether a sum overflows depends on the width of its numbers. The meaning of a condition was fixed when it
    was compiled, and its text is not read again.

    Args:
        stage: The kernel's stage.
        emitted: The actual types of the emitted columns.
        keys: The actual types of the key's columns.

    Raises ConditionFailed if the types do not fit a condition.
    """
    types: ColumnTypes = {field.name: type_of(field.type) for field in emitted}
    where = stage.where and _over(stage.where, {**types, **WINDOW_COLUMNS}, keys)

    def retype(condition: Condition, columns: tuple[str, ...] | None) -> Condition:
        if columns is None:
            return _over(condition, {"n": BIGINT, **_record_types(stage, emitted)}, keys)
        fields = tuple((name, types[name] or ANY) for name in columns)
        row = Type(f"struct<{','.join(columns)}>", "struct", fields)
        return _over(condition, {"old": row, "new": row}, {})

    windowed = stage.shows_windows
    typed = [with_column_types(expectation, types, keys, windowed) for expectation in stage.expectations]
    expectations = tuple(expectation for expectation in typed if expectation is not None)
    return replace(stage, where=where, emit=stage.emit.retyped(retype), expectations=expectations)


def _record_types(stage: kernel.Stage, emitted: pa.StructType) -> ColumnTypes:
    """Return the types of the columns of one record, or of the aggregates that contain it."""
    columns = emitted.field(EVENTS).type.value_type if stage.reduce.lists_events else emitted
    return {field.name: type_of(field.type) for field in columns}


def _expectations(pipeline: Pipeline, stage: Stage) -> tuple[kernel.RowExpectation, ...]:
    checks = [check for check in pipeline.checks if pipeline.checked_stage(check) == stage]
    return tuple(expectation for check in checks for expectation in check.row_expectations)


def _over(condition: Condition, types: ColumnTypes, keys: ColumnTypes) -> Condition:
    try:
        return Condition(condition.text, typed_condition(condition.tree, types, keys))
    except Unfitting as unfitting:
        raise ConditionFailed(f"`{condition.text}`: {unfitting.message}", unfitting.fix) from None


def deduplication_stage(pipeline: Pipeline) -> kernel.Stage | None:
    """Return the step before the first stage that emits each value of the `deduplicate` columns once.

    None if the pipeline does not deduplicate by columns. The step uses stream time, also if the stages use
    the run's clock: by the clock it would forget values before a backlog repeats them.
    """
    rule = deduplication_rule(pipeline)
    if rule is None:
        return None
    return kernel.Stage(kernel.Latest(), kernel.Once(rule.keep_ms), deduplicate="offset")


def sequence_stage(pipeline: Pipeline) -> kernel.Stage | None:
    """Return the step before the first stage that drops a change that is not later than its key's last one.

    None without a `sequence`. The step ignores positions in the log, and forgets deletions by stream time.
    """
    rule = _sequence(pipeline)
    if rule is None:
        return None
    return kernel.Stage(kernel.Latest(), kernel.InSequence(rule.keep_ms), deduplicate="none", by_time=True)


def lookup_stage(pipeline: Pipeline) -> kernel.Stage | None:
    """Return the step before the first stage that remembers the last record of each key.

    None if no lookup has `on_change: emit`.
    """
    if not pipeline.reacting_lookups:
        return None
    deduplicate = _position(pipeline, pipeline.source_stages[0])
    return kernel.Stage(
        kernel.Latest(), kernel.LastRecord(), deduplicate=deduplicate, by_time=_sequence(pipeline) is not None
    )


def keeps_time(pipeline: Pipeline) -> bool:
    """Return whether stream time matters: to a stage, to the order between stages, or to what expires."""
    filters = (deduplication_stage(pipeline), sequence_stage(pipeline))
    return (
        len(pipeline.stages) > 1
        or any(step is not None for step in filters)
        or any(stage.timed for stage in pipeline.stages)
    )


def deduplication_rule(pipeline: Pipeline) -> DeduplicateColumns | None:
    """Return the rule by which repeated values of columns are dropped; None without one.

    Only the single source of a pipeline has such a rule.
    """
    rules = [source.deduplicate for source in pipeline.sources.values()]
    return next((rule for rule in rules if isinstance(rule, DeduplicateColumns)), None)


def _sequence(pipeline: Pipeline) -> Sequence | None:
    """Return the order of changes, which only the single source of a pipeline has."""
    return next((source.sequence for source in pipeline.sources.values() if source.sequence), None)


def _position(pipeline: Pipeline, stage: Stage) -> Literal["none", "offset", "root"]:
    """Return how a stage recognizes repetitions by position: like its sources, which agree."""
    if not stage.reads_source:
        return "none"
    rule = pipeline.sources_of(stage)[0].deduplicate
    return "offset" if isinstance(rule, DeduplicateColumns) else rule


def _envelope(pipeline: Pipeline, stage: Stage) -> kernel.Envelope | None:
    """Return what messages have beside columns: the key and window, if a sink wants the key."""
    rules = [sink.messages for sink in pipeline.sinks_of(stage)]
    if not any(rule.payload.with_key for rule in rules if rule is not None):
        return None
    # With a key of its own, a later stage's columns are no longer the source's, and their kinds unknown.
    regrouped = any(before.key for before in pipeline.path_to(stage))
    columns = () if regrouped else union_of(pipeline.sources_of(stage))
    # `decimal(10,2)` counts as `decimal`.
    kinds = {column.name: _KINDS.get(column.type.partition("(")[0], "time") for column in columns}
    key = tuple(kernel.KeyColumn(name, kinds.get(name, "time")) for name in pipeline.key_of(stage))
    return kernel.Envelope(key, stage.window is not None)


def emitted_schema(pipeline: Pipeline, sink: SinkModel) -> pa.Schema:
    """Return the columns of a sink's emissions; with `with_key`, the key's columns come first.

    A type that the file does not determine is Arrow's null. The grammar refuses such a column for a sink
    whose messages have a schema.
    """
    stage = pipeline.stage_of(sink)
    own = _emitted(pipeline, stage)
    if not sink.with_key:
        return pa.schema(own)
    before = _keys(pipeline, stage) | (dict.fromkeys(WINDOW_COLUMNS, pa.int64()) if stage.window else {})
    # A column of the key that is also emitted has one place, with the emitted value.
    return pa.schema([(name, type_) for name, type_ in before.items() if name not in own] + list(own.items()))


def message_columns(pipeline: Pipeline, sink: SinkModel, payload: Payload) -> pa.Schema:
    """Return the columns that a sink's schema describes.

    Args:
        pipeline: The pipeline.
        sink: The sink.
        payload: Says whether the schema is of keys, of values, or of values in envelopes.
    """
    stage = pipeline.stage_of(sink)
    if payload.is_key:
        return pa.schema(list(_keys(pipeline, stage).items()))
    columns = emitted_schema(pipeline, sink)
    if not payload.enveloped:
        return columns
    return envelope_columns(columns, dict.fromkeys(WINDOW_COLUMNS, pa.int64()) if stage.window else {})


def value_schema(pipeline: Pipeline, stage: Stage) -> pa.Schema:
    """Return the columns of a stage's values. A type that the file does not determine is Arrow's null.

    Example: `value_schema(pipeline, pipeline.stages[-1]).names`
    """
    return pa.schema(list(_emitted(pipeline, stage).items()))


def state_columns(pipeline: Pipeline, stage: Stage) -> list[str]:
    """Return the names of the columns of a stage's state as a table, as lookups read it."""
    return list(dict.fromkeys(("key", *WINDOW_COLUMNS, *state_schema(pipeline, stage).names)))


def state_schema(pipeline: Pipeline, stage: Stage) -> pa.Schema:
    """Return the columns of a stage's key and values. A type that the file does not determine is null."""
    return pa.schema(list((_keys(pipeline, stage) | _emitted(pipeline, stage)).items()))


def _emitted(pipeline: Pipeline, stage: Stage) -> dict[str, pa.DataType]:
    taken = pa.struct([(name, _arrow(stage.types.get(name))) for name in stage.values])
    return _as_dict(kernel_stage(pipeline, stage).reduce.output_type(taken))


def _keys(pipeline: Pipeline, stage: Stage) -> dict[str, pa.DataType]:
    earlier = pipeline.input_of(stage)
    if earlier is None:
        types = {column.name: _arrow(column.type) for column in union_of(pipeline.sources_of(stage))}
    elif stage.key is None:
        return _keys(pipeline, earlier)
    else:
        # The value's column wins, as in expressions of the stage.
        types = _keys(pipeline, earlier) | _emitted(pipeline, earlier)
        if earlier.window:
            types |= dict.fromkeys(WINDOW_COLUMNS, _arrow("timestamp"))
    types |= {name: type_at(pa.schema(list(types.items())), path) for name, path in stage.nested.items()}
    return {name: types.get(name, pa.null()) for name in pipeline.key_of(stage)}


def _arrow(text: str | None) -> pa.DataType:
    return pa.null() if text is None else arrow_type(parse_type(text))


def _as_dict(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}
