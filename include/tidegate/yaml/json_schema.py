"""The grammar as JSON Schema for editors: names, types and words. `tidegate validate` checks all other rules.

Numbers may be texts of digits and underscores, because editors read YAML 1.2, in which `5_000_000` is a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from tidegate.model.pipeline import Written
from tidegate.yaml.grammar import DEFAULTS, PIPELINE, Grammar
from tidegate.yaml.load import Defaults

_FILES: Mapping[str, tuple[type[BaseModel], Grammar]] = {
    "pipeline": (Written, PIPELINE),
    "defaults": (Defaults, DEFAULTS),
}
_DEFINITION = "#/$defs/"


def file_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file; each field has a description with an example.

    Args:
        kind: `pipeline`, or `defaults` for `defaults.yaml`.

    Raises KeyError for another kind.
    """
    model, grammar = _FILES[kind]
    schema = model.model_json_schema(schema_generator=_Generator)
    _describe(schema, (), schema, grammar)
    return {"$schema": _Generator.schema_dialect, **schema, "title": f"tidegate {kind}"}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with numbers that may have underscores, and without a title for each field."""

    def int_schema(self, schema: Any) -> JsonSchemaValue:
        return {**super().int_schema(schema), "type": ["integer", "string"], "pattern": "^[0-9][0-9_]*$"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _describe(part: dict[str, Any], route: tuple[str, ...], whole: dict[str, Any], grammar: Grammar) -> None:
    """Add its example to each field below `part`.

    A model that is used in several places gets the first one's.
    """
    if "$ref" in part:
        _describe(whole["$defs"][part["$ref"].removeprefix(_DEFINITION)], route, whole, grammar)
    for choice in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        _describe(choice, route, whole, grammar)
    for values in ("items", "additionalProperties"):
        if isinstance(part.get(values), dict):
            _describe(part[values], (*route, "*"), whole, grammar)
    for name, field in part.get("properties", {}).items():
        example = grammar.examples.get(".".join((*route, name)))
        if "const" in field:
            example = f"{name}: {field['const']}"
        # A shared model is visited once per place that uses it.
        if example is not None and "Such as" not in field["description"]:
            field["description"] = f"{field['description']} Such as `{example}`."
        _describe(field, (*route, name), whole, grammar)
