"""JSON with a schema: what satisfies it, and that functions and library agree on it."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.json.checks import JsonSchemaDecoder, compiled_check, json_decoder
from tidegate.formats.json.schema import parse_json_schema, pin_json_schema
from tidegate.formats.schemas import PinnedSchema, SourceSchemas, WriterSchema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.decimal128(6, 2))])
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "price": {"multipleOf": 0.5},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}},
        "long": {"enum": ["x" * 100, "y" * 100]},
    },
}
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"c": {"$ref": "#/$defs/t"}}}}}


def decoder(schema: Any) -> JsonSchemaDecoder:
    return JsonSchemaDecoder(COLUMNS, parse_json_schema(json.dumps(schema), {}))


def reasons(schema: Any, *documents: Any) -> list[str | None]:
    values = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in documents]
    result = decoder(schema).decode(values)
    usable = [row is not None for row in result.columns.to_pylist()]
    assert usable == [row not in result.reasons for row in range(len(values))]
    return [result.reasons.get(row) for row in range(len(values))]


WHY: list[tuple[Any, str | None]] = [
    ({"id": 1, "price": 1.5, "tags": ["a", 1.0]}, None),
    ({"price": 1.5}, "Expected `id`, which is required - at `$`"),
    ({"id": 0}, "Expected `minimum: 1` - at `$.id`"),
    ({"id": 1, "price": 0.75}, "Expected `multipleOf: 0.5` - at `$.price`"),
    ({"id": 1, "tags": ["a", True]}, 'Expected `enum: ["a", 1]` - at `$.tags[1]`'),
    ({"id": 1, "more": 1}, "Expected `additionalProperties: false` - at `$`"),
    ({"id": 1, "long": "z"}, f'Expected `enum: ["{"x" * 100}", "{"y" * 14}…` - at `$.long`'),
    ({"id": None}, 'Expected `type: "integer"` - at `$.id`'),
    # as strictly as without a schema
    ({"id": "1"}, "Expected `int | null`, got `str` - at `$.id`"),
    ({"id": 1, "price": 1.505}, "A value does not fit into `decimal128(6, 2)` - at `$.price`"),
    (b"{", "Input data was truncated"),
    (b'{"id": 1, "tags": [1e400]}', "Number out of range - at `$[...][0]`"),
]


@pytest.mark.parametrize(("document", "why"), WHY, ids=[str(why)[:60] for _, why in WHY])
def test_schema_violation_says_what_and_where(document: Any, why: str | None) -> None:
    assert reasons(SCHEMA, document) == [why and f"malformed: {why}"]


def test_unusable_value_affects_no_neighbour_or_tombstone() -> None:
    result = decoder(SCHEMA).decode([b'{"id": 1}', b'{"id": 0}', None, b'{"id": 2}', b"{", b"{}"])
    assert sorted(result.reasons) == [1, 4, 5]
    assert [row and row["id"] for row in result.columns.to_pylist()] == [1, None, None, 2, None, None]


def nested(depth: int) -> bytes:
    return b'{"c":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


@pytest.mark.parametrize("extra", [{}, {"minContains": 1, "unevaluatedProperties": True}])
def test_schema_depth_limit_does_not_depend_on_reader(extra: dict[str, Any]) -> None:
    def deeper(frames: int) -> list[str | None]:
        return deeper(frames - 1) if frames else reasons({**TREE, **extra}, nested(100), nested(101))

    too_deep = "malformed: it is nested more than 100 deep, which is too deep for a schema"
    assert deeper(0) == deeper(150) == [None, too_deep]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.0, 1e300]),
    st.text("ab1é", max_size=3),
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
sizes = st.integers(0, 3)
bounds = st.integers(-2, 2) | st.sampled_from([0.5, 1.0])
kinds = st.sampled_from(["null", "boolean", "string", "object", "array", "number", "integer"])


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
            "enum": st.lists(scalars, min_size=1, max_size=4, unique_by=repr),
            "const": scalars,
            "minimum": bounds,
            "maximum": bounds,
            "exclusiveMinimum": bounds,
            "exclusiveMaximum": bounds,
            "minLength": sizes,
            "maxLength": sizes,
            "minItems": sizes,
            "maxItems": sizes,
            "minProperties": sizes,
            "maxProperties": sizes,
            "pattern": st.sampled_from(["^a", "b$", "1", "[ab]{2}"]),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "allOf": parts,
            "anyOf": parts,
            "oneOf": parts,
            "not": inner,
            "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
            "description": st.just("more"),
            "format": st.just("date"),
        },
    )


parts = st.recursive(st.booleans() | schemas_of(st.booleans()), schemas_of, max_leaves=5)
plain = st.recursive(
    schemas_of(st.booleans()).map(lambda part: {k: part[k] for k in part if k != "$ref"}), lambda s: s
)


@examples(60)
@given(parts, plain, plain, st.sampled_from([None, DRAFT_7]), st.lists(documents, min_size=1, max_size=8))
def test_functions_and_library_agree(part: Any, x: Any, y: Any, draft: str | None, values: list[Any]) -> None:
    whole = {"allOf": [part], "$defs": {"x": x, "y": y}} | ({"$schema": draft} if draft else {})
    schema = parse_json_schema(json.dumps(whole), {})
    check = compiled_check(schema)
    assert check is not None
    validator = schema.validator()
    for value in values:
        assert check(value) == validator.is_valid(value), (whole, value)


@pytest.mark.parametrize(
    "part",
    [
        {"uniqueItems": True},
        {"patternProperties": {"^a": True}},
        {"prefixItems": [True]},
        {"if": True, "then": False},
        {"enum": [[1]]},
        {"contains": True},
        {"unevaluatedItems": False},
        {"dependentRequired": {"a": ["b"]}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"properties": {"a": {"$id": "http://example.com/", "$ref": "#/$defs/z", "$defs": {"z": True}}}},
    ],
    ids=str,
)
def test_unsupported_keywords_are_left_to_the_library(part: Any) -> None:
    assert compiled_check(parse_json_schema(json.dumps(part), {})) is None


# with a registry's ids


def framed(id_: int, document: Any) -> bytes:
    return struct.pack(">bI", 0, id_) + json.dumps(document).encode()


def writer(id_: int, schema: PinnedSchema) -> WriterSchema:
    return WriterSchema("s-value", id_, id_, schema)


def rows(schemas: SourceSchemas, *values: bytes | None) -> list[tuple[Any, Any]]:
    layout = RecordLayout("json", COLUMNS, schemas=schemas)
    count = len(values)
    records = Records("t", 0, range(count), [7] * count, [b"k"] * count, values, [None] * count)
    (batch,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    return list(zip(batch.column("id").to_pylist(), batch.column("__reason").to_pylist(), strict=True))


ANY = pin_json_schema("{}", {})
POSITIVE = pin_json_schema('{"properties": {"id": {"$ref": "id.json"}}}', {"id.json": '{"minimum": 1}'})
UNKNOWN = PinnedSchema('{"$ref": "none.json"}')


def test_value_is_checked_by_its_schema_id() -> None:
    schemas = SourceSchemas(None, (writer(1, ANY), writer(2, POSITIVE), writer(3, UNKNOWN)))
    actual = rows(
        schemas,
        framed(1, {"id": 0}),
        framed(2, {"id": 0}),
        framed(2, {"id": 5}),
        framed(3, {}),
        framed(9, {}),
        b"{}",
        None,
    )
    elsewhere = "neither in the schema nor among its references, and nothing is fetched"
    assert [id_ for id_, _ in actual] == [0, None, 5, None, None, None, None]
    assert [reason for _, reason in actual] == [
        *(None, "malformed: Expected `minimum: 1` - at `$.id`", None),
        f"malformed: The schema 3 does not fit: `$ref: none.json` is {elsewhere}",
        "unknown_schema: 9",
        "malformed: Expected a schema's id, but the value is too short for one",
        None,
    ]


def test_reader_schema_replaces_the_writer_schema() -> None:
    actual = rows(SourceSchemas(POSITIVE, (writer(1, ANY),)), framed(1, {"id": 0}), framed(1, {"id": 1}))
    assert actual == [(None, "malformed: Expected `minimum: 1` - at `$.id`"), (1, None)]


def test_column_aliases_work_with_a_schema() -> None:
    decoder = json_decoder(COLUMNS, SourceSchemas(ANY), {"id": ("number",)})
    assert decoder.decode([b'{"number": 5}']).columns.field(0).to_pylist() == [5]


def test_a_files_schema_counts_for_values_without_ids() -> None:
    assert rows(SourceSchemas(POSITIVE), b'{"id": 1}', b'{"id": 0}') == [
        (1, None),
        (None, "malformed: Expected `minimum: 1` - at `$.id`"),
    ]
