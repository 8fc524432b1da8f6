"""Draws pipeline files from the grammar's JSON schema; drops or draws again what `validate` refuses."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz.schemas import KINDS
from tests.fuzz.texts import Texts
from tidegate.errors import PipelineInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.json_schema import file_schema
from tidegate.yaml.load import load_pipeline

_DURATIONS = ("15ms", "1s", "10s", "30s", "1m", "10m", "1h", "2d")
_NUMBERS = (1, 2, 3, 5, 100, 5_000, 2_147_483_647)
_COMMON = ("stages.*.select", "stages.*.reduce", "stages.*.window", "source.key", "stages.*.where")
"""Optional fields that decide most, and are drawn more often than others."""
_RARE = re.compile(r"airflow|quality|lookup|source\.(connection|registry|key_registry|start)")
_ROUNDS = 30


class Drawing:
    """One pipeline file in the making."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.schema = file_schema("pipeline")
        self.texts = Texts(dice, folder)

    def file(self) -> dict[str, Any]:
        """Return a pipeline as it would be written, which may have mistakes."""
        written = self._object(self.schema, "")
        written["pipeline"] = "fuzzed"
        written.setdefault("sinks", [{"kind": "kafka", "topic": "out"}])
        return written

    def again(self, path: str) -> Any:
        """Return another value for the field at a generic path."""
        return self._value(self._part(path), path)

    def is_required(self, path: str) -> bool:
        """Return whether the field at a generic path has to be there."""
        around, _, name = path.rpartition(".")
        part = self._part(around) if around else self.schema
        return any(name in choice.get("required", ()) for choice in self._choices(part))

    def _part(self, path: str) -> Mapping[str, Any]:
        """Return the schema of a field; where there are several, one of them."""
        parts = [self.schema]
        for name in path.split("."):
            following = [
                inner
                for part in parts
                for choice in self._choices(part)
                for inner in (choice.get("properties", {}).get(name), choice.get("items"))
                if inner is not None and (name == "*") == (inner is choice.get("items"))
            ]
            following += [
                choice["additionalProperties"]
                for part in parts
                for choice in self._choices(part)
                if isinstance(choice.get("additionalProperties"), dict)
            ]
            if not following:
                raise KeyError(path)
            parts = following
        return self.dice.choice(parts)

    def _choices(self, part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if "$ref" in part:
            return self._choices(self.schema["$defs"][part["$ref"].removeprefix("#/$defs/")])
        several = [*part.get("anyOf", ()), *part.get("oneOf", ())]
        return [choice for branch in several for choice in self._choices(branch)] if several else [part]

    def _value(self, part: Mapping[str, Any], path: str) -> Any:
        choices = [choice for choice in self._choices(part) if choice.get("type") != "null"]
        # no class of a user is trusted here, and there is one source
        if path in ("stages.*.reduce.*", "stages.*.from"):
            choices = [choice for choice in choices if choice.get("type") == "string"]
        choice = self.dice.choice(choices)
        if "const" in choice:
            return choice["const"]
        if "enum" in choice:
            return self.dice.choice(choice["enum"])
        kinds = choice.get("type", "string")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "object":
            return self._object(choice, path)
        if kind == "array":
            count = self.dice.choice((1, 1, 1, 2, 2, 3))
            return [self._value(choice["items"], f"{path}.*") for _ in range(count)]
        if kind == "boolean":
            return self.dice.random() < 0.5
        if kind in ("integer", "number"):
            return max(choice.get("minimum", 0), self.dice.choice(_NUMBERS))
        if "(ms|s|m|h|d)" in choice.get("pattern", ""):
            return self.dice.choice(_DURATIONS)
        return self.texts.text(path)

    def _object(self, part: Mapping[str, Any], path: str) -> dict[str, Any]:
        if path == "stages.*":
            self.texts.begin_stage()
        if isinstance(part.get("additionalProperties"), dict):
            names = self.texts.names(path)
            drawn = {name: self._value(part["additionalProperties"], f"{path}.*") for name in names}
            self.texts.note(path, drawn)
            return drawn
        drawn = {}
        for name, field in part.get("properties", {}).items():
            inner = f"{path}.{name}".lstrip(".")
            if name in part.get("required", ()) or self.dice.random() < self._share(inner):
                drawn[name] = self._value(field, inner)
                self.texts.note(inner, drawn[name])
        if path == "stages.*":
            self.texts.end_stage()
        return drawn

    def _share(self, path: str) -> float:
        """Return how often an optional field is there."""
        if path == "source.schema":
            return {"json": 0.3}.get(self.texts.format, 1.0) if self.texts.format in KINDS else 0.03
        if path == "source.columns" and self.texts.schema:
            return 0.3
        if path == "source":
            return 1.0
        if path == "sources":  # which excludes `source`
            return 0.0
        if path in ("source.columns", "stages"):
            return 0.95
        if _RARE.match(path):
            return 0.03
        return 0.5 if path in _COMMON else 0.07


def drawn_pipeline(dice: random.Random, folder: Path) -> tuple[Pipeline, str] | None:
    """Return a pipeline that `validate` accepts, and its text, or None if the draw has no such pipeline.

    What is refused is drawn again or dropped. Raises AssertionError if a mistake has no line or no fix.
    """
    drawing = Drawing(dice, folder)
    written = drawing.file()
    path = folder / "fuzzed.yaml"
    for _ in range(_ROUNDS):
        text = yaml.safe_dump(written, sort_keys=False)
        path.write_text(text)
        try:
            return load_pipeline(path), text
        except PipelineInvalid as error:
            for problem in error.problems:
                assert problem.line > 0, problem
                assert problem.fix, problem
            if not all(_mend(drawing, written, problem.field) for problem in error.problems):
                return None
    return None


def _mend(drawing: Drawing, written: dict[str, Any], field: str) -> bool:
    """Drop the field that a mistake names, or draw it again. Return whether there was something to do."""
    names = [name for name in field.split(".") if name]
    while names:
        around, name = _around(written, names), names[-1]
        if around is not None:
            path = ".".join("*" if name.isdigit() else name for name in names)
            return _mend_at(drawing, around, name, path)
        names.pop()
    return False


def _mend_at(drawing: Drawing, around: Any, name: str, path: str) -> bool:
    if isinstance(around, list):
        position = int(name)
        if position < len(around) and len(around) > 1:
            del around[position]
            return True
        if position < len(around):
            around[position] = drawing.again(path)
        return position < len(around)
    if drawing.dice.random() < 0.6 and not _is_needed(drawing, path):
        around.pop(name, None)
        return True
    try:
        around[name] = drawing.again(path)
    except KeyError:
        around.pop(name, None)
    return True


def _is_needed(drawing: Drawing, path: str) -> bool:
    try:
        return drawing.is_required(path)
    except KeyError:
        return False


def _around(written: Any, names: list[str]) -> Any:
    """Return the mapping or list that has the last of the names; None if there is none on the way."""
    around = written
    for name in names[:-1]:
        if isinstance(around, list) and name.isdigit() and int(name) < len(around):
            around = around[int(name)]
        elif isinstance(around, dict) and name in around:
            around = around[name]
        else:
            return None
    return around if isinstance(around, (dict, list)) else None
