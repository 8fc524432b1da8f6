"""What is described and not built is recognised, never ignored; and every field has an example."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from pydantic import BaseModel

from tests.spec.files import edited, problems
from tidegate.spec.grammar import EXAMPLES, NOT_BUILT, PIPELINE
from tidegate.spec.pipeline import Written

Edit = tuple[str, str]
LATER: list[tuple[Edit, str, str]] = [
    (("format: json", "format: avro"), "source.format", "`avro`"),
    (("format: json", "format: protobuf"), "source.format", "`protobuf`"),
    (("timestamp: record", "schema: stock.avsc"), "source.schema", "a schema file"),
    (("timestamp: record", "registry: http://registry"), "source.registry", "a schema registry"),
]


@pytest.mark.parametrize(("edit", "field", "what"), LATER, ids=[edit[1] for edit, *_ in LATER])
def test_is_told_to_be_not_built_yet_and_nothing_else(edit: Edit, field: str, what: str) -> None:
    ((_, found, message, instead),) = problems(edited(edit))
    assert found == field
    assert message.startswith(f"not built yet: {what}")
    assert instead.startswith("Use ")


def test_nothing_else_is_left() -> None:
    assert {row.path for row in NOT_BUILT} == {"source.format", "source.schema", "source.registry"}


def test_other_mistakes_are_told_beside_it() -> None:
    text = edited(("format: json", "format: avro"), ("generation: 2", "generation: 0"))
    assert [field for _, field, *_ in problems(text)] == ["generation", "source.format"]


def _models(annotation: Any) -> set[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in typing.get_args(annotation) for model in _models(part)}


LISTS = ("lookup", "stages", "sinks")
MAPPINGS = (
    *("source.aliases", "stages.*.reduce", "stages.*.select", "stages.*.aliases"),
    "stages.*.emit.equal.within",
)


def _fields(model: type[BaseModel], around: str) -> set[str]:
    """The paths of all fields under a model, as they are written."""
    found = set()
    for name, field in model.model_fields.items():
        path = f"{around}.{field.alias or name}".lstrip(".")
        found.add(path)
        if path in MAPPINGS:
            found.add(f"{path}.*")
        if path == "source.columns":
            continue  # written as one text
        inner = f"{path}.*" if path in LISTS else path
        for each in _models(field.annotation):
            found |= _fields(each, inner)
    return found


def test_every_field_of_the_models_has_an_example_and_no_other() -> None:
    assert set(EXAMPLES) == _fields(Written, "")


def test_every_example_is_of_its_field() -> None:
    named = {path: path.removesuffix(".*").rpartition(".")[2] for path in EXAMPLES if not path.endswith("*")}
    assert [path for path, name in named.items() if not EXAMPLES[path].startswith(f"{name}:")] == []


def test_what_is_not_built_is_suggested_like_other_fields() -> None:
    assert {row.path for row in NOT_BUILT} <= {*PIPELINE.examples, *PIPELINE.others}
    ((_, _, _, fix),) = problems(edited(("timestamp: record", "registri: x")))
    assert fix == "Did you mean `registry`?"


def test_what_is_misspelt_is_suggested() -> None:
    ((_, _, _, fix),) = problems(edited(("equal: exact", "hartbeat: 1h")))
    assert fix == "Did you mean `heartbeat`?"
