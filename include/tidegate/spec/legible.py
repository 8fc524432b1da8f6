"""What can still be told of a pipeline file that has mistakes: which stream it is of, and when that is due.

A mistake anywhere else in the file leaves its DAG where it was, with the schedule that it had.
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
"""Stands for a value that is no YAML: no field takes it."""


def legible_scheduling(text: str, last_good: str = "") -> Scheduling | None:
    """Stream and schedule by a text that has mistakes, and may be no YAML at all.

    Where one of these fields is itself wrong, or no pipeline is named, that is as in `last_good`, an earlier
    text; without one the default, or None where no pipeline is named.
    """
    usable, wrong = _without_mistakes(_fields_of(text))
    wrong |= {"pipeline"} - usable.keys()
    if wrong and last_good:
        before, _ = _without_mistakes(_fields_of(last_good))
        usable, _ = _without_mistakes(usable | {name: before[name] for name in wrong if name in before})
    return Scheduling.model_validate(usable, context=Scope()) if "pipeline" in usable else None


def stream_in_broken_file(file: str) -> tuple[str, int | None] | None:
    """Pipeline and generation that a file names, which has mistakes and may be no YAML at all.

    The generation is None where that cannot be told; so is the answer where the file names no pipeline.
    """
    try:
        usable, wrong = _without_mistakes(_fields_of(read_text(Path(file))))
    except PipelineInvalid:
        return None
    if "pipeline" not in usable:
        return None
    return usable["pipeline"], None if "generation" in wrong else usable.get("generation", 1)


def _fields_of(text: str) -> dict[str, Any]:
    """The fields as they are written: of the whole where that is YAML, else line by line."""
    try:
        data = read(text, "text").data
    except PipelineInvalid:
        lines = dict(reversed(_LINE.findall(text)))  # of a field that is written twice, the first counts
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
    """The fields that can be used, and the names of those that cannot."""
    usable = dict(fields)
    while True:
        try:
            Scheduling.model_validate({"pipeline": "unnamed"} | usable, context=Scope())
        except ValidationError as error:
            usable = {
                name: value
                for name, value in usable.items()
                if name not in {details["loc"][0] for details in error.errors(include_input=False)}
            }
        else:
            return usable, set(fields) - set(usable)
