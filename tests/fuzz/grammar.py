"""Draws pipeline files from the grammar's JSON schema; drops or draws again what `validate` refuses."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz.schemas import KINDS
from tests.fuzz.texts import Texts
from tidegate.errors import PipelineInvalid
from tidegate.model.inputs import EXCLUDED
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.json_schema import file_schema
from tidegate.yaml.load import load_pipeline

_DURATIONS = ("15ms", "1s", "10s", "30s", "1m", "10m", "1h", "2d")
_NUMBERS = (1, 2, 3, 5, 100, 5_000, 2_147_483_647)
_COMMON = ("stages.*.select", "stages.*.reduce", "stages.*.window", "source.key", "stages.*.where")
"""Optional fields that decide most, and are drawn more often than others."""
_RARE = re.compile(r"airflow|quality|source\.(connection|registry|key_registry|start)")
_OPTIONS = re.compile(
    r"stages\.\*\.(emit|window)\.|source\.(sequence|deduplicate)\.|stages\.\*\.(key|unchanged)$"
)
"""Options that other options change the meaning of, and that are drawn together for it."""
_BESIDE_NO_JOIN = frozenset({"from" if name == "inputs" else name for name in EXCLUDED})
_NOT_TWICE = ("window", "reduce", "key", "ttl", "unchanged", "on_error")
"""Fields of a stage that could not take a record again when a row that it looked up changes."""
_MAPPINGS = ("select", "reduce", "within", "headers", "aliases")
"""Fields whose parts have names of the user."""
_STAGES, _WITH_JOIN, _WITH_RETRACTION = (1, 1, 2, 2, 3, 4), (3, 3, 4, 5), (2, 2, 3)
"""How many stages a pipeline has: any, one that probably has a join, and one that probably retracts."""
_RETRACTING = {"retract": 0.95, "key": 0.8, "reduce": 1.0, "emit": 1.0, "where": 0.2}
"""How often a stage that probably retracts has a field; others are rare."""
_DROPPED = {"stages.*.join": 0.03, "stages.*.from": 0.2, "sources": 0.1, "stages": 0.0}
"""How often a field with a mistake is dropped, and not drawn again, if that is not the same for all."""
_ROUNDS = 50
_SCHEMA = file_schema("pipeline")


class Drawing:
    """One pipeline file in the making. It probably has `feature`, if that is one of lookups or retraction."""

    def __init__(self, dice: random.Random, folder: Path, feature: str | None = None) -> None:
        self.dice = dice
        self.schema = _SCHEMA
        self.texts = Texts(dice, folder)
        self.first_source: dict[str, Any] | None = None
        self.has_several = dice.random() < 0.45
        self.has_join = dice.random() < (0.6 if self.has_several else 0.25)
        self.has_lookup = not self.has_several and dice.random() < 0.2
        self.has_retraction = feature == "retractions"
        if feature in ("lookups", "lookups that emit"):
            self.has_several, self.has_lookup = feature == "lookups" and self.has_several, True
        if self.has_retraction:
            self.has_several = self.has_join = False

    def file(self) -> dict[str, Any]:
        """Return a pipeline as it would be written, which may have mistakes."""
        written = self._object(self.schema, "")
        written["pipeline"] = "fuzzed"
        written.setdefault("sinks", [{"kind": "kafka", "topic": "out"}])
        return written

    def again(self, path: str) -> Any:
        """Return another value for the field at a generic path."""
        drawn = self._value(self._part(path), path)
        self.texts.note(path, drawn)
        return drawn

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
        if path == "stages.*.reduce.*":  # no class of a user is trusted here
            choices = [choice for choice in choices if choice.get("type") == "string"]
        choice = self.dice.choice(self._sensible(choices, path))
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
            if path == "stages":
                self.texts.stages.clear()
                stages = _WITH_RETRACTION if self.has_retraction else _STAGES
                count = self.dice.choice(_WITH_JOIN if self.has_join else stages)
            drawn = [self._value(choice["items"], f"{path}.*") for _ in range(count)]
            return [*dict.fromkeys(drawn)] if path == "stages.*.from" else drawn
        if kind == "boolean":
            return self.dice.random() < 0.5
        if kind in ("integer", "number"):
            return max(choice.get("minimum", 0), self.dice.choice(_NUMBERS))
        if "(ms|s|m|h|d)" in choice.get("pattern", ""):
            return self.dice.choice(_DURATIONS)
        return self.texts.text(path)

    def _sensible(self, choices: list[Mapping[str, Any]], path: str) -> list[Mapping[str, Any]]:
        """Return those of the choices that a mistake would not end with in most cases."""
        stage = self.texts.stage
        is_plain = self.has_retraction or (self.texts.reacts and not stage.reads)
        if path == "stages.*.emit" and is_plain and self.dice.random() < 0.9:
            return [choice for choice in choices if _strategy(choice) in ("update", "change")]
        if path == "stages.*.reduce" and stage.reads and (self.has_retraction or self.dice.random() < 0.3):
            return [choice for choice in choices if choice.get("type") == "object"]
        return choices

    def _object(self, part: Mapping[str, Any], path: str) -> dict[str, Any]:
        if path == "stages.*":
            self.texts.begin_stage()
        if path == "sources":
            return {name: self._source(part["additionalProperties"], name) for name in self.texts.names(path)}
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
        return drawn

    def _source(self, part: Mapping[str, Any], name: str) -> Any:
        """Draw a source of several; often with the key of the first one, which a union and a join need."""
        self.texts.begin_source(name)
        drawn = self._value(part, "source")
        first = self.first_source
        if first is None:
            self.first_source = drawn
        elif self.dice.random() < 0.8:
            drawn.pop("key", None)
            if "key" in first:
                drawn["key"] = list(first["key"])  # an own list: YAML would write an alias
        return drawn

    def _share(self, path: str) -> float:
        """Return how often an optional field is there."""
        source, stage = self.texts.source, self.texts.stage
        if path == "source.schema":
            return {"json": 0.3}.get(source.format, 1.0) if source.format in KINDS else 0.03
        if path == "source.columns" and source.schema:
            return 0.3
        if path in ("sources", "source"):  # which exclude each other
            return float(self.has_several == (path == "sources"))
        if path.startswith("stages.*.join."):
            return 0.8 if path.endswith("within") else 0.4
        if path.startswith("stages.*.") and stage.joins:
            return 0.03 if path.removeprefix("stages.*.") in _BESIDE_NO_JOIN else 0.3
        if path == "lookup":
            return float(self.has_lookup)
        if path == "lookup.*.on_change":
            return 0.7
        if self.has_retraction and path.startswith("stages.*.") and path.count(".") == 2 and stage.reads:
            return _RETRACTING.get(path.removeprefix("stages.*."), 0.03)
        if path == "stages.*.expected":
            return 0.8 if stage.emits == "quiet" and not stage.reads else 0.02
        if path == "stages.*.retract":
            return 0.4 if stage.reads else 0.02
        if self.texts.reacts and not stage.reads and path.removeprefix("stages.*.") in _NOT_TWICE:
            return 0.03
        if path == "stages.*.join":
            return (0.8 if self.has_join else 0.2) if len(self.texts.stages) > 2 else 0.01
        if path == "stages.*.from" and (self.has_several or self.has_join):
            return 0.97 if len(self.texts.stages) <= 2 else 0.6
        if path == "stages.*.key" and self.has_join and len(self.texts.stages) < 3:
            return 0.02
        if path == "stages.*.emit":
            return 1.0
        if path == "stages.*.on_error":
            return 0.2
        if path in ("source.columns", "stages"):
            return 0.95
        if _RARE.match(path):
            return 0.03
        if path == "source.explode":
            return 0.4 if any(type_.startswith("array") for type_ in source.columns.values()) else 0.02
        if _OPTIONS.match(path):
            return 0.3
        return 0.5 if path in _COMMON else 0.07


def _strategy(choice: Mapping[str, Any]) -> str | None:
    """Return the strategy of a choice for `emit`; None for several triggers."""
    name: str | None = choice.get("properties", {}).get("on", {}).get("const")
    return name


def drawn_pipeline(
    dice: random.Random, folder: Path, feature: str | None = None
) -> tuple[Pipeline, str] | None:
    """Return a pipeline that `validate` accepts, and its text, or None if the draw has no such pipeline.

    It probably has `feature`. What is refused is drawn again or dropped. Raises AssertionError if a mistake
    has no line or no fix.
    """
    drawing = Drawing(dice, folder, feature)
    written = drawing.file()
    path = folder / "fuzzed.yaml"
    for _ in range(_ROUNDS):
        text = yaml.dump(written, Dumper=yaml.CSafeDumper, sort_keys=False)
        path.write_text(text)
        try:
            return load_pipeline(path), text
        except PipelineInvalid as error:
            for problem in error.problems:
                assert problem.line > 0, problem
                assert problem.fix, problem
            mended = [_mend(drawing, written, problem.field) for problem in error.problems]
            if not any(mended) and not _mend(drawing, written, error.problems[0].field, climbs=True):
                return None
    return None


def generic_path(route: Sequence[str]) -> str:
    """Return the path of a field with `*` for places in lists; a source of several is as `source`."""
    if len(route) > 1 and route[0] == "sources":
        route = ["source", *route[2:]]
    around = ["", *route]
    return ".".join(
        "*" if name.isdigit() or before in _MAPPINGS else name
        for before, name in zip(around, route, strict=False)
    )


def _mend(drawing: Drawing, written: dict[str, Any], field: str, climbs: bool = False) -> bool:
    """Drop the field that a mistake names, or draw it again. Return whether there was something to do.

    With `climbs`, a part that is missing stands for what is around it.
    """
    names = [name for name in field.split(".") if name]
    if len(names) > 2 and not names[-2].isdigit() and drawing.dice.random() < 0.2:
        names.pop()  # what is around a mistake may be the mistake
    while names:
        around, name = _around(written, names), names[-1]
        if around is not None:
            drawing.texts.enter(names)
            path = generic_path(names)
            return _mend_at(drawing, around, name, path)
        if not climbs:
            return False
        names.pop()
    return False


def _mend_at(drawing: Drawing, around: Any, name: str, path: str) -> bool:
    if isinstance(around, list):
        position = int(name)
        if position < len(around) and len(around) > 1:
            del around[position]
            drawing.texts.drop(path, position)
            return True
        if position < len(around):
            around[position] = drawing.again(path)
        return position < len(around)
    if drawing.dice.random() < _DROPPED.get(path, 0.6) and not _is_needed(drawing, path):
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
