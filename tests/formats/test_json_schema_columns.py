"""JSON Schemas: what is none, what they refer to, and their columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.expressions.arrow import type_of
from tidegate.formats.json.schema import json_schema_columns, parse_json_schema
from tidegate.formats.schemas import SchemaFault

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
TEXT = {"type": "string"}


def columns(properties: dict[str, Any], **schema: Any) -> dict[str, str]:
    """The columns of an object with these properties, in a pipeline's types."""
    whole = {"type": "object", "properties": properties, **schema}
    arrow_schema = json_schema_columns(parse_json_schema(json.dumps(whole), {}))
    return {field.name: type_of(field.type).text for field in arrow_schema}


def fault(text: str, references: dict[str, str] | None = None) -> str:
    with pytest.raises(SchemaFault) as caught:
        parse_json_schema(text, references or {})
    return str(caught.value)


TYPES: dict[str, tuple[Any, str]] = {
    "integers": ({"type": "integer"}, "bigint"),
    "numbers": ({"type": "number"}, "double"),
    "numbers and integers": ({"type": ["integer", "number"]}, "double"),
    "booleans": ({"type": "boolean"}, "boolean"),
    "texts": (TEXT, "string"),
    "days": ({**TEXT, "format": "date"}, "date"),
    "times": ({**TEXT, "format": "date-time"}, "timestamp"),
    "texts of a format that has no type": ({**TEXT, "format": "uuid"}, "string"),
    "bytes in base64": ({**TEXT, "contentEncoding": "base64"}, "binary"),
    "null or a text": ({"type": ["null", "string"]}, "string"),
    "a text by choice": ({"oneOf": [{"type": "null"}, TEXT]}, "string"),
    "choices of one type": ({"anyOf": [{**TEXT, "maxLength": 3}, {**TEXT, "pattern": "^x"}]}, "string"),
    "listed texts": ({"enum": ["a", None, "b"]}, "string"),
    "one number": ({"const": 5}, "bigint"),
    "arrays": ({"type": "array", "items": {"type": "array", "items": TEXT}}, "array<array<string>>"),
    "objects": (
        {"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}},
        "struct<a:string,b:bigint>",
    ),
    "maps": ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
    "what is defined elsewhere": ({"$ref": "#/$defs/tag"}, "string"),
}


@pytest.mark.parametrize(("part", "expected"), TYPES.values(), ids=TYPES.keys())
def test_a_property_is_a_column(part: Any, expected: str) -> None:
    assert columns({"p": part}, **{"$defs": {"tag": TEXT}}) == {"p": expected}


NO_COLUMNS: dict[str, tuple[Any, str]] = {
    "anything": (True, "`$.p` can be anything"),
    "no type": ({"description": "odd"}, "`$.p` has no `type`"),
    "two types": ({"type": ["string", "integer"]}, "`$.p` can be of more than one type"),
    "choices of two types": ({"anyOf": [TEXT, {"type": "integer"}]}, "`$.p` can be of more than one type"),
    "an array of anything": ({"type": "array"}, "`$.p` is an array without one kind of `items`"),
    "an array whose places differ": (
        {"type": "array", "prefixItems": [TEXT], "items": TEXT},
        "`$.p` is an array without one kind of `items`",
    ),
    "an object of anything": ({"type": "object"}, "`$.p` is an object without `properties`"),
    "what refers to itself": (
        {"type": "object", "properties": {"q": {"$ref": "#/properties/p"}}},
        "`$.p.q` has itself inside of it, without an end",
    ),
    "nothing but null": ({"type": "null"}, "`$.p` has no `type`"),
}


@pytest.mark.parametrize(("part", "why"), NO_COLUMNS.values(), ids=NO_COLUMNS.keys())
def test_impossible_json_schema_column_says_why(part: Any, why: str) -> None:
    with pytest.raises(SchemaFault) as caught:
        columns({"p": part})
    assert str(caught.value) == why


def test_only_objects_have_columns() -> None:
    schema = parse_json_schema('{"type": "array", "items": {"type": "string"}}', {})
    with pytest.raises(SchemaFault, match="only those have columns"):
        json_schema_columns(schema)


def test_draft_7_ignores_keywords_beside_a_reference() -> None:
    part = {"$ref": "#/definitions/tag", "type": "integer"}
    definitions = {"definitions": {"tag": TEXT}}
    assert columns({"p": part}, **definitions, **{"$schema": DRAFT_7}) == {"p": "string"}
    with pytest.raises(SchemaFault, match="more than one type"):
        columns({"p": part}, **definitions)


def test_what_is_no_schema_says_why() -> None:
    assert fault("{").startswith("the schema is not JSON")
    assert fault("5") == "the schema is neither an object nor a boolean"
    assert "at `$.type`" in fault('{"type": "text"}')
    assert "at `$.pattern`" in fault('{"pattern": "["}')
    assert fault('{"a":' * 5000 + "{}" + "}" * 5000).startswith("the schema is ")
    for draft in ("http://json-schema.org/draft-03/schema#", "http://example.com/draft", 5):
        assert fault(json.dumps({"$schema": draft})) == f"`$schema: {draft}` is not a draft from 4 to 2020-12"
    assert fault("{}", {"b.json": "[]"}) == "`b.json` is neither an object nor a boolean"


@pytest.mark.parametrize(
    "reference",
    ["http://example.com/a.json", "other.json", "#/$defs/none", "#none", DRAFT_7, "file:///etc/passwd"],
)
def test_outside_schema_references_are_not_fetched(reference: str) -> None:
    for schema in (
        {"properties": {"p": {"$ref": reference}}},
        {"$defs": {"d": {"not": {"$ref": reference}}}},
    ):
        assert fault(json.dumps(schema)) == (
            f"`$ref: {reference}` is neither in the schema nor among its references, and nothing is fetched"
        )


@pytest.mark.parametrize("id_", [None, "https://example.com/schemas/stock.json"])
def test_nested_references_are_found_by_name(id_: str | None) -> None:
    whole = {"type": "object", "properties": {"p": {"$ref": "tag.json"}}} | ({"$id": id_} if id_ else {})
    references = {
        "texts.json": '{"$defs": {"t": {"type": "string"}}}',
        "tag.json": '{"$ref": "texts.json#/$defs/t"}',
    }
    schema = parse_json_schema(json.dumps(whole), references)
    assert type_of(json_schema_columns(schema).field("p").type).text == "string"
    assert schema.validator().is_valid({"p": "x"})
    assert not schema.validator().is_valid({"p": 5})
    del references["texts.json"]
    assert "`$ref: texts.json#/$defs/t` is neither" in fault(json.dumps(whole), references)


def test_a_word_that_is_no_reference_is_none() -> None:
    parse_json_schema('{"properties": {"$ref": {"const": {"$ref": "http://example.com"}}}}', {})
