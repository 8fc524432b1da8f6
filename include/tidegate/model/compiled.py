"""The compiled form of a pipeline, which a plan stores, so that a planned batch does not depend on the
grammar.

It is a JSON document (see `document`) of the checked pipeline: with resolved types, defaults and parsed
conditions. Reading it checks nothing against today's grammar, settings or modules. A part is `{"is": CLASS,
"of": FIELDS}`; mappings and other values are written in the same way.

If the classes change, the golden file of the tests differs. From the first release on, raise
`document.FORMAT` then, and also read the format before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic import BaseModel

from tidegate.expressions import Condition
from tidegate.formats.schemas import PinnedSchema, SourceSchemas, WriterSchema
from tidegate.kernel import (
    STRATEGIES,
    Aggregate,
    Aggregates,
    Amount,
    Bound,
    Collect,
    FinalBound,
    Latest,
    RowExpectation,
    Unchanged,
)
from tidegate.kernel.strategies.change import EQUIVALENCES
from tidegate.kernel.windows import WINDOWS
from tidegate.model.columns import Column, Csv
from tidegate.model.document import read_document, write_document
from tidegate.model.keys import DeduplicateColumns, Sequence
from tidegate.model.lookup import Lookup
from tidegate.model.pipeline import Pipeline, Written
from tidegate.model.quality import QualityCheck
from tidegate.model.quarantine_rules import LateRule, QuarantineRule, RecordBound
from tidegate.model.schedule import AssetSchedule
from tidegate.model.schemas import Registry
from tidegate.model.source import Source
from tidegate.model.stage import Stage
from tidegate.sinks.registry import MODELS

_PARTS: tuple[type[Any], ...] = (
    *(Unchanged, Csv, Registry, SourceSchemas, PinnedSchema, WriterSchema, Sequence),
    *(Written, AssetSchedule, Source, Column, DeduplicateColumns, Lookup, Stage, QualityCheck),
    *(Latest, Collect, Aggregates, Aggregate),
    *(QuarantineRule, LateRule, RecordBound),
    *WINDOWS,
    *(*STRATEGIES.values(), Bound, FinalBound, *EQUIVALENCES, Amount, Condition, RowExpectation),
    *(part for sink in MODELS.values() for part in (sink, *sink.parts)),
)
# By a closed list: a stored name never imports or runs other code, as a pickle would.
_BY_NAME = {part.__name__: part for part in _PARTS}
_AS_TEXT: dict[str, tuple[type[Any], Callable[[Any], str], Callable[[str], Any]]] = {
    "double": (float, repr, float),
    "decimal": (Decimal, str, Decimal),
    "instant": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
}
"""Tag -> the Python type, its writer and its reader, for values that JSON has no type for."""


def compile_pipeline(pipeline: Pipeline) -> str:
    """Return the compiled form in the newest format.

    It lacks the pipeline's text, which the plan stores beside it, and the settings of the DAG
    (`exclude=True`).

    Example: `read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 7 of levels/1")`
    """
    written = {name: getattr(pipeline, name) for name in _names(Written)}
    return write_document(
        {"is": Written.__name__, "of": {name: _dumped(value) for name, value in written.items()}}
    )


def read_compiled(compiled: str, text: str, label: str) -> Pipeline:
    """Return the pipeline of a compiled form.

    Args:
        compiled: The JSON document.
        text: The pipeline file's text that it was compiled from.
        label: What an error calls the owner, such as `batch 7 of levels/1`.

    Raises PlanUnreadable if the document is damaged, or has a format that this tidegate cannot read.
    """
    return read_document(compiled, label, partial(_read, text))


def _read(text: str, body: Any) -> Pipeline:
    written = _loaded(body)
    return Pipeline.model_construct(**{name: getattr(written, name) for name in _names(Written)}, text=text)


def _dumped(value: Any) -> Any:
    # A float is not among these: JSON has no NaN and no infinity, so it is stored as text.
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, tuple):
        return [_dumped(item) for item in value]
    if isinstance(value, dict):
        return {"is": "map", "of": {name: _dumped(item) for name, item in value.items()}}
    for tag, (type_, write, _) in _AS_TEXT.items():
        # Exactly the type: `isinstance` would take a datetime for a date.
        if type(value) is type_:
            return {"is": tag, "of": write(value)}
    part = _BY_NAME[type(value).__name__]
    return {"is": part.__name__, "of": {name: _dumped(getattr(value, name)) for name in _names(part)}}


def _loaded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_loaded(item) for item in value)
    if not isinstance(value, dict):
        return value
    tag, content = value["is"], value["of"]
    if tag in _AS_TEXT:
        return _AS_TEXT[tag][2](content)
    # Inner parts first, because a part is built from built ones.
    loaded = {name: _loaded(item) for name, item in content.items()}
    return loaded if tag == "map" else _built(_BY_NAME[tag], loaded)


def _built(part: type[Any], values: dict[str, Any]) -> Any:
    """Build a part without validation.

    Raises ValueError unless `values` has exactly the fields of the part.
    """
    names = _names(part)
    # A missing field must not get today's default: the batch was planned with another meaning.
    if set(values) != set(names):
        raise ValueError(f"{part.__name__} has {sorted(values)} and not {sorted(names)}")
    if is_dataclass(part):
        return part(**values)
    # `model_construct` skips the validators, which would apply today's grammar and settings.
    model = part.model_construct(**{name: values[name] for name in part.model_fields if name in values})
    for name in part.__private_attributes__:
        setattr(model, name, values[name])
    return model


def _names(part: type[Any]) -> tuple[str, ...]:
    """Return the names that the compiled form stores of a part: the fields without excluded ones, and private
    attributes, such as a stage's parsed condition and the types of its values.
    """
    if is_dataclass(part):
        return tuple(field.name for field in fields(part))
    assert issubclass(part, BaseModel), f"{part.__name__} is a part of the grammar"
    stored = (name for name, field in part.model_fields.items() if not field.exclude)
    return (*stored, *part.__private_attributes__)
