"""`headers` of a Kafka sink: tidegate's own ones, or columns as headers of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ColumnTypes
from tidegate.model.columns import NESTED
from tidegate.model.mistakes import Fault, as_mistake, mistake, shown
from tidegate.model.scope import StageScope, suggest_column
from tidegate.model.windows import WINDOW_COLUMNS
from tidegate.sinks.model import stage_of

OWN_HEADERS = "tidegate-"
"""The beginning of the names of tidegate's own headers."""

_OF_EVENTS = ("ce_", "content-type")


def _read_headers(written: Any, info: Info) -> Any:
    """Return whether messages have tidegate's own headers of batch and reason, or header -> column.

    Raises a mistake for a header that tidegate has itself, or a column whose values are no single values.
    """
    if isinstance(written, bool):
        return written
    if not isinstance(written, dict) or not written:
        fix = "Write `headers: {trace-id: traceId}`, or `headers: true` for the batch and the reason."
        raise mistake(f"{shown(written)} is not true or false, and names no headers", fix)
    faults = [fault for name, column in written.items() for fault in _header_faults(name, column, info)]
    if faults:
        raise as_mistake(faults)
    return written


def _header_faults(name: Any, column: Any, info: Info) -> Iterator[Fault]:
    if not isinstance(name, str) or not name or name.lower().startswith(OWN_HEADERS):
        fix = f"Use another name; `{OWN_HEADERS}…` is for tidegate."
        yield Fault(f"{shown(name)} is not a header that a pipeline can set", fix)
    elif info.data.get("cloudevents") is not None and name.lower().startswith(_OF_EVENTS):
        fix = "Use another name; `type` and `source` are in `cloudevents`."
        yield Fault(f"{shown(name)} is a header of the event itself", fix)
    columns = _header_columns(stage_of(info))
    if columns is None:
        return
    if not isinstance(column, str) or column not in columns:
        yield Fault(f"the column `{column}` is not emitted", suggest_column(str(column), columns))
        return
    type_ = columns[column]
    if type_ is None or not type_.is_known:
        fix = f"Select it with a type, such as `{column}: cast({column} as string)`."
        yield Fault(f"the type of `{column}` cannot be told from this file", fix)
    elif type_.kind in NESTED:
        fix = f"Select it as a text: `{column}Text: to_json({column})`."
        yield Fault(f"`{column}` is {type_.text}, and a header is a single value", fix)


def _header_columns(stage: StageScope) -> ColumnTypes | None:
    """Return the columns of a stage's emissions, its key and its window; None if they have mistakes."""
    if stage.emitted is None or stage.keys is None:
        return None
    return {**(WINDOW_COLUMNS if stage.windowed else {}), **stage.keys, **stage.emitted}


Headers = Annotated[
    bool | dict[str, str],
    BeforeValidator(_read_headers),
    WithJsonSchema(
        {"anyOf": [{"type": "boolean"}, {"type": "object", "additionalProperties": {"type": "string"}}]}
    ),
]
"""Whether messages have their batch and their reason; or name of a header -> the column that it has."""
