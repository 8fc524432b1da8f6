"""Every field of the grammar has an example."""

from __future__ import annotations

import typing
from typing import Any

from pydantic import BaseModel

from tests.model.files import edited, problems
from tidegate.model.pipeline import Written
from tidegate.yaml.grammar import EXAMPLES


def _models(annotation: Any) -> set[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in typing.get_args(annotation) for model in _models(part)}


LISTS = ("lookup", "stages", "sinks", "stages.*.emit.any")
ONE_OR_SEVERAL = ("quality",)
MAPPINGS = (
    *("source.aliases", "stages.*.select", "stages.*.aliases"),
    *("stages.*.emit.equal.within", "stages.*.emit.any.*.equal.within"),
)
MAPPINGS += ("source.aliases", "stages.*.aliases", "source.metadata", "sinks.*.headers")
MAPPINGS += tuple(f"sources.*.{name}" for name in ("aliases", "metadata"))
MAPPINGS_OF_MODELS = ("source.headers", "stages.*.reduce", "sources", "sources.*.headers")
TEXTS = ("columns", "key_columns", "sequence.source")


def _fields(model: type[BaseModel], around: str) -> set[str]:
    """The paths of all fields under a model, as they are written."""
    paths = set()
    for name, field in model.model_fields.items():
        path = f"{around}.{field.alias or name}".lstrip(".")
        paths.add(path)
        if path in (*MAPPINGS, *MAPPINGS_OF_MODELS):
            paths.add(f"{path}.*")
        if path in [f"{source}.{name}" for source in ("source", "sources.*") for name in TEXTS]:
            continue  # written as one text
        inner = [f"{path}.*"] if path in (*LISTS, *ONE_OR_SEVERAL, *MAPPINGS_OF_MODELS) else []
        inner += [path] if path not in (*LISTS, *MAPPINGS_OF_MODELS) else []
        for nested in _models(field.annotation):
            paths |= {part for around_part in inner for part in _fields(nested, around_part)}
    return paths


def test_every_model_field_has_exactly_one_example() -> None:
    assert set(EXAMPLES) == _fields(Written, "")


def test_every_example_is_of_its_field() -> None:
    named = {path: path.removesuffix(".*").rpartition(".")[2] for path in EXAMPLES if not path.endswith("*")}
    assert [path for path, name in named.items() if not EXAMPLES[path].startswith(f"{name}:")] == []


def test_what_is_misspelt_is_suggested() -> None:
    ((_, _, _, fix),) = problems(edited(("equal: exact", "hartbeat: 1h")))
    assert fix == "Did you mean `heartbeat`?"
