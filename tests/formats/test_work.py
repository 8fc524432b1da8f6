"""Decoding takes work in proportion to the bytes of a record: calls are counted, and no time is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro_schemas import written
from tidegate.formats.avro import AvroDecoder
from tidegate.formats.avro.schema import avro_columns, parse_avro
from tidegate.formats.csv import Csv, CsvDecoder
from tidegate.formats.json import JsonDecoder
from tidegate.formats.json.checks import JsonSchemaDecoder
from tidegate.formats.json.schema import parse_json_schema
from tidegate.formats.protobuf import ProtobufDecoder
from tidegate.formats.protobuf.schema import proto_schema

ID = pa.schema([("id", pa.int64())])
MOST_GROWTH = 2.2
"""How much more work twice the input may take."""
MOST_CALLS_PER_BYTE = 100


def calls_of(work: Callable[[], Any]) -> int:
    """Return the number of calls of functions, Python's and C's, that some work makes."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


LINES = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "x", "type": ["null", "int"]}],
                },
            },
        },
    ],
}
MESSAGES = """
syntax = "proto3";
message Order { message Line { int64 id = 1; Line inner = 2; } int64 id = 1; repeated Line lines = 2; }
"""
ITEMS = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "items": {"type": "array", "items": {"type": "number", "multipleOf": 0.01}, "uniqueItems": True},
    },
}


def avro(size: int, end: bytes) -> Callable[[], Any]:
    schema = parse_avro(json.dumps(LINES))
    decoder = AvroDecoder(avro_columns(schema), schema)
    value = written(LINES, {"id": 1, "lines": [{"x": 1}] * size})
    return lambda: decoder.decode([value[: len(value) - 2] + end])


def protobuf(size: int, end: bytes) -> Callable[[], Any]:
    schema = proto_schema(MESSAGES)
    decoder = ProtobufDecoder(ID, schema, "Order")
    value = b"\x12\x02\x08\x01" * size + b"\x08\x01" + end
    return lambda: decoder.decode([value])


def protobuf_groups(size: int, end: bytes) -> Callable[[], Any]:
    schema = proto_schema(MESSAGES)
    decoder = ProtobufDecoder(ID, schema, "Order")
    return lambda: decoder.decode([b"\x1b\x1c" * size + end])


def json_schema(size: int, end: bytes) -> Callable[[], Any]:
    decoder = JsonSchemaDecoder(ID, parse_json_schema(json.dumps(ITEMS), {}))
    value = json.dumps({"id": 1, "items": [number / 100 for number in range(size)]}).encode()
    return lambda: decoder.decode([value + end])


def json_escaped(size: int, end: bytes) -> Callable[[], Any]:
    decoder = JsonDecoder(ID)
    return lambda: decoder.decode([b'{"id":1,"x":"' + b"[" * 501 + b'"}' + b'\\"' * size + end])


def csv(size: int, end: bytes) -> Callable[[], Any]:
    decoder = CsvDecoder(ID, Csv())
    return lambda: decoder.decode([b'"' + b'""' * size + end])


@pytest.mark.heavy
@pytest.mark.parametrize("end", [b"", b"\xff"], ids=["whole", "broken"])
@pytest.mark.parametrize("document", [avro, protobuf, protobuf_groups, json_schema, json_escaped, csv])
def test_decoding_calls_are_linear_in_bytes(
    document: Callable[[int, bytes], Callable[[], Any]], end: bytes
) -> None:
    small, large = document(600, end), document(1_200, end)
    calls_of(small)  # what is made once is made now
    calls = calls_of(large)
    assert calls <= MOST_GROWTH * calls_of(small)
    assert calls <= MOST_CALLS_PER_BYTE * 2 * 1_200, "an element has at least two bytes"


def nested(depth: int) -> Any:
    optional = {"name": "x", "type": ["null", "int"], "default": None}
    schema: Any = {"type": "record", "name": "L0", "fields": [optional]}
    for level in range(1, depth):
        inner = {"name": "c", "type": ["null", schema], "default": None}
        schema = {"type": "record", "name": f"L{level}", "fields": [optional, inner]}
    return parse_avro(json.dumps(schema))


def test_avro_resolution_is_linear_in_levels() -> None:
    def resolving(depth: int) -> Callable[[], Any]:
        schema = nested(depth)
        return lambda: AvroDecoder(avro_columns(schema), schema, schema)

    small, large = resolving(8), resolving(16)
    calls_of(small)  # what is made once is made now
    assert calls_of(large) <= MOST_GROWTH * calls_of(small)
