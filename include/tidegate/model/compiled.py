"""The compiled form of a pipeline, which a plan stores, so that a planned batch does not depend on the
grammar.

It is a JSON document of the checked pipeline, with resolved types, defaults and parsed conditions:
`{"format": 1, "tidegate": "0.1.0", "pipeline": …}`. A part of the pipeline is `{"is": CLASS, "of": FIELDS}`;
mappings and other values are written in the same way. Reading it checks nothing against today's grammar,
settings or modules.

If the classes change, the golden file of the tests differs. From the first release on, raise `FORMAT` then,
and also read the format before.

Reports read single facts of plans (`stage_names` and others) without the classes of the model, whose import
takes a second: therefore this module imports those when a whole pipeline is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from tidegate import __version__
from tidegate.errors import PlanUnreadable
from tidegate.model.cron import longest_wait

if TYPE_CHECKING:
    from tidegate.model.pipeline import Pipeline

FORMAT = 1
"""The version of the stored form."""

Read = TypeVar("Read")
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
    written = {name: _dumped(getattr(pipeline, name)) for name in _names(parts()[_FILE])}
    body = {"is": _FILE, "of": written}
    return json.dumps({"format": FORMAT, "tidegate": __version__, "pipeline": body}, separators=(",", ":"))


def read_compiled(compiled: str, text: str, label: str) -> Pipeline:
    """Return the pipeline of a compiled form.

    Args:
        compiled: The JSON document.
        text: The pipeline file's text that it was compiled from.
        label: What an error calls the owner, such as `batch 7 of levels/1`.

    Raises PlanUnreadable if the document is damaged, or has a format that this tidegate cannot read.
    """
    return _read_document(compiled, label, partial(_read, text))


def stage_names(compiled: str, label: str) -> list[str]:
    """Return the names of a compiled pipeline's stages, in order.

    Raises PlanUnreadable as `read_compiled` does.
    """
    return _read_document(
        compiled, label, lambda body: [stage["of"]["name"] for stage in body["of"]["stages"]]
    )


def source_connection(compiled: str, label: str) -> str | None:
    """Return the Kafka connection of a compiled pipeline's source; None is the one without a name.

    Raises PlanUnreadable as `read_compiled` does.
    """
    return _read_document(compiled, label, _source_connection)


def output_count(compiled: str, label: str) -> int:
    """Return the number of sinks and topics of dead letters that a compiled pipeline publishes to.

    Raises PlanUnreadable as `read_compiled` does.
    """
    return _read_document(compiled, label, _output_count)


def longest_schedule_gap(compiled: str, label: str) -> timedelta | None:
    """Return the longest time that records wait for a run by a compiled pipeline's schedule; None if neither
    the time nor waiting records start runs.

    Raises PlanUnreadable as `read_compiled` does.
    """
    schedule = _read_document(compiled, label, lambda body: body["of"].get("schedule"))
    if not isinstance(schedule, dict):
        return longest_wait(schedule)
    form = schedule["of"]
    return longest_wait(form.get("cron"), form["on_data"]["of"]["or_after_ms"] if "on_data" in form else None)


_FILE = "Written"
"""The name of the outermost part: the class of a pipeline file's fields."""


@cache
def parts() -> dict[str, type[Any]]:
    """Return name -> class of all classes that a plan may contain.

    They are the classes in the annotations of the file's fields, with those of their own fields. A stored
    name never imports or runs other code, as a pickle would, because no other class is in here.

    Example: `parts()["Tumbling"]`
    """
    from tidegate.model.pipeline import Written

    classes: dict[str, type[Any]] = {}
    _collect(Written, classes)
    return classes


def _collect(hint: Any, classes: dict[str, type[Any]]) -> None:
    """Add the classes with fields that an annotation names, and those of their fields."""
    from tidegate.model.scope import StoredAs

    if get_origin(hint) is Annotated:
        read, *notes = get_args(hint)
        stored = [note for note in notes if isinstance(note, StoredAs)]
        # The model that only reads a form is in no plan, but its fields say what the stored class contains.
        inner = (*stored[-1].classes, *_stored_hints(read)) if stored else (read,)
    elif _has_fields(hint):
        # The name is all that a plan has: two classes of one name would be read as each other.
        if (class_ := classes.get(hint.__name__, hint)) is not hint:
            raise TypeError(f"{class_} and {hint} have one name in plans")
        inner = () if hint.__name__ in classes else _stored_hints(hint)
        classes[hint.__name__] = hint
    else:
        inner = get_args(hint)
    for part in inner:
        _collect(part, classes)


def _stored_hints(part: Any) -> tuple[Any, ...]:
    """Return the annotations of the fields that plans store of a class; none if it has no fields."""
    from tidegate.kernel.options import HasOptions, options_of

    if not _has_fields(part):
        return ()
    hints = get_type_hints(part, include_extras=True)
    if issubclass(part, HasOptions):
        # The other fields, such as the envelope of `threshold`, are set for the kernel later: null in plans.
        return tuple(hints[option.field] for option in options_of(part))
    return tuple(hints[name] for name in _names(part))


def _has_fields(part: Any) -> bool:
    return isinstance(part, type) and (is_dataclass(part) or hasattr(part, "model_fields"))


def _read_document(compiled: str, label: str, read: Callable[[Any], Read]) -> Read:
    """Return the result of `read` for a document's `pipeline`. Raises PlanUnreadable."""
    try:
        document = json.loads(compiled)
        # Checked before anything else is read: a newer format may use known names with another meaning.
        if document["format"] == FORMAT:
            return read(document["pipeline"])
    # A damaged document can fail in any of the readers; each of these errors means that it cannot be read.
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise PlanUnreadable(
            f"The pipeline of {label} cannot be read from the ledger: {type(error).__name__}: {error}",
            "Restore the ledger from a backup, or raise `generation` to start over.",
        ) from error
    raise PlanUnreadable(
        f"The pipeline of {label} was planned by tidegate {document.get('tidegate')} in format "
        f"{document['format']}, which tidegate {__version__} does not know",
        f"Run it with tidegate {document.get('tidegate')} or a newer one.",
    )


def _read(text: str, body: Any) -> Pipeline:
    from tidegate.model.pipeline import Pipeline

    written = _loaded(body)
    values = {name: getattr(written, name) for name in _names(parts()[_FILE])}
    return Pipeline.model_construct(**values, text=text)


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
    part = parts()[type(value).__name__]
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
    return loaded if tag == "map" else _built(parts()[tag], loaded)


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
    stored = (name for name, field in part.model_fields.items() if not field.exclude)
    return (*stored, *part.__private_attributes__)


def _output_count(body: Any) -> int:
    quarantine = body["of"].get("quarantine")
    has_dead_letters = quarantine is not None and quarantine["of"].get("topic") is not None
    # The topic of dead letters is published like a sink, and counts as one.
    return len(body["of"]["sinks"]) + has_dead_letters


def _source_connection(body: Any) -> str | None:
    pipeline = body["of"]
    sources = [pipeline["single_source"], *pipeline["named_sources"]["of"].values()]
    # all sources of a pipeline are in one cluster
    source = next(source for source in sources if source is not None)
    name: str | None = source["of"].get("connection")
    return name
