"""Read the stream and the schedule of a pipeline file that has mistakes.

If the mistakes are elsewhere in the file, its DAG stays in Airflow, with the schedule that it had.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidegate.errors import PipelineInvalid
from tidegate.spec.pipeline import Scheduling
from tidegate.spec.scope import Scope
from tidegate.spec.tree import read, read_text

_FIELDS = tuple(field.alias or name for name, field in Scheduling.model_fields.items())
_LINE = re.compile(rf"^({'|'.join(_FIELDS)}):(?:[ \t](.*))?$", re.MULTILINE)
_ILLEGIBLE = object()
"""Replaces a value that is not YAML: no field accepts it, so the field counts as wrong."""


def legible_scheduling(text: str, last_good: str = "") -> Scheduling | None:
    """Return the stream and schedule of a text that has mistakes, or is not YAML at all.

    Args:
        text: The text of the file.
        last_good: An earlier text, which gives the fields that are wrong or missing in `text`.

    Fields that both texts lack have their defaults. None if neither names a pipeline.
    """
    usable, wrong = _without_mistakes(_fields_of(text))
    # A missing name counts as wrong, because without it there is no stream.
    wrong |= {"pipeline"} - usable.keys()
    if wrong and last_good:
        before, _ = _without_mistakes(_fields_of(last_good))
        usable, _ = _without_mistakes(usable | {name: before[name] for name in wrong if name in before})
    return Scheduling.model_validate(usable, context=Scope()) if "pipeline" in usable else None


def stream_in_broken_file(file: str) -> tuple[str, int | None] | None:
    """Return the pipeline and generation of a file that has mistakes, or is not YAML at all.

    The generation is None if its field is wrong. The result is None if the file names no pipeline.
    """
    try:
        usable, wrong = _without_mistakes(_fields_of(read_text(Path(file))))
    except PipelineInvalid:
        return None
    if "pipeline" not in usable:
        return None
    return usable["pipeline"], None if "generation" in wrong else usable.get("generation", 1)


def _fields_of(text: str) -> dict[str, Any]:
    """Return the fields as they are written. A text that is not YAML is searched line by line."""
    try:
        data = read(text, "text").data
    except PipelineInvalid:
        lines = dict(reversed(_LINE.findall(text)))  # if a field appears twice, the first one counts
        return {name: _value(written) for name, written in lines.items()}
    return {name: data[name] for name in _FIELDS if name in data} if isinstance(data, dict) else {}


def _value(written: str) -> Any:
    if not written.strip():
        return None
    try:
        return read(written, "line").data
    except PipelineInvalid:
        return _ILLEGIBLE


def _without_mistakes(fields: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the usable fields, and the names of the wrong ones.

    It validates again after removing wrong fields, because a field's check can depend on another field.
    """
    usable = dict(fields)
    # Ends: each round removes at least one field.
    while True:
        try:
            # A stand-in for a name that is wrong, so that the other fields can still be validated.
            Scheduling.model_validate({"pipeline": "unnamed"} | usable, context=Scope())
        except ValidationError as error:
            usable = {
                name: value
                for name, value in usable.items()
                if name not in {details["loc"][0] for details in error.errors(include_input=False)}
            }
        else:
            return usable, set(fields) - set(usable)
