"""The columns of a sink's messages, with their types as far as a pipeline file determines them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidegate.expressions.types import ANY
from tidegate.formats.debezium import envelope_columns
from tidegate.formats.schemas import Payload
from tidegate.sinks.model import SinkModel
from tidegate.spec.arrow import arrow_type
from tidegate.spec.columns import parse_type
from tidegate.spec.kernel import kernel_stage
from tidegate.spec.pipeline import Pipeline
from tidegate.spec.stage import WINDOW_COLUMNS, Stage


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


def _emitted(pipeline: Pipeline, stage: Stage) -> dict[str, pa.DataType]:
    taken = pa.struct([(name, _arrow(stage.types.get(name))) for name in stage.values])
    return _as_dict(kernel_stage(pipeline, stage).reduce.output_type(taken))


def _keys(pipeline: Pipeline, stage: Stage) -> dict[str, pa.DataType]:
    number = pipeline.stages.index(stage)
    # A stage without a key inherits the key of the stage before it, back to the source's.
    if stage.key is None or number == 0:
        if number:
            return _keys(pipeline, pipeline.stages[number - 1])
        columns = {column.name: column.type for column in pipeline.source.row_columns}
        return {name: _arrow(columns.get(name)) for name in pipeline.key_columns}
    earlier = pipeline.stages[number - 1]
    # The value's column wins, as in expressions of the stage.
    types = _keys(pipeline, earlier) | _emitted(pipeline, earlier)
    return {name: types.get(name, pa.null()) for name in stage.key}


def _arrow(text: str | None) -> pa.DataType:
    # `any` may be inside, as in `array<any>`: the whole type is unknown then.
    return pa.null() if text is None or ANY.text in text else arrow_type(parse_type(text))


def _as_dict(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}
