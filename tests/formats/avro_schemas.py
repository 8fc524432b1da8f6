"""Random schemas of Avro, values of them, and schemas of readers that can read them."""

from __future__ import annotations

import copy
import io
import struct
import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SCALARS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "small": ("long", st.integers(-70, 70)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=20)),
    "bytes": ("bytes", st.binary(max_size=20)),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
            lambda ms: _EPOCH + timedelta(milliseconds=ms)
        ),
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.integers(-(2**52), 2**52).map(lambda us: _EPOCH + timedelta(microseconds=us)),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        st.integers(-(2**52), 2**52).map(
            lambda us: (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None)
        ),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda number: Decimal(number).scaleb(-3)),
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
}


@st.composite
def typed(
    draw: st.DrawFn, depth: int = 2, names: list[int] | None = None
) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and values of it."""
    names = [] if names is None else names
    kinds = [*_SCALARS, "nullable", "fixed", "enum"]
    kinds += ["record", "array", "map", "array"] if depth else []
    kind = draw(st.sampled_from(kinds))
    names.append(0)
    name = f"N{len(names)}"
    if kind in _SCALARS:
        schema, values = _SCALARS[kind]
        return copy.deepcopy(schema), values
    if kind == "fixed":
        size = draw(st.integers(1, 5))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "enum":
        symbols = ["A", "B", "C"][: draw(st.integers(1, 3))]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "record":
        return draw(record(depth - 1, names))
    schema, values = draw(typed(depth - 1 if depth else 0, names))
    if kind == "nullable":
        if isinstance(schema, list):
            return schema, values
        branches = draw(st.permutations([schema, "null"]))
        return list(branches), st.none() | values
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=4), values, max_size=4)


@st.composite
def record(
    draw: st.DrawFn, depth: int = 2, names: list[int] | None = None
) -> tuple[Any, st.SearchStrategy[Any]]:
    """A record's schema, and values of it."""
    names = [] if names is None else names
    names.append(0)
    name = f"R{len(names)}"
    fields = [draw(typed(depth, names)) for _ in range(draw(st.integers(1, 4)))]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": type_} for at, (type_, _) in enumerate(fields)],
    }
    return schema, st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(fields)})


_PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
_ADDED = [
    ("long", 7),
    (["null", "string"], None),
    ("string", "x"),
    ({"type": "array", "items": "int"}, [1, 2]),
]
_ADDED += [
    ({"type": "record", "name": "Added", "fields": [{"name": "a", "type": "int", "default": 3}]}, {"a": 4})
]


@st.composite
def readers(draw: st.DrawFn, schema: Any) -> Any:
    """A reader's schema for a writer's record: fields gone, added, renamed, moved, promoted, nullable."""
    reader = copy.deepcopy(schema)
    fields = reader["fields"]
    for field in fields:
        if isinstance(field["type"], str) and field["type"] in _PROMOTED and draw(st.booleans()):
            field["type"] = draw(st.sampled_from(_PROMOTED[field["type"]]))
        if isinstance(field["type"], dict) and field["type"].get("type") == "enum" and draw(st.booleans()):
            field["type"] |= {"symbols": ["C", "A"], "default": "C"}
        if not isinstance(field["type"], list) and draw(st.booleans()):
            field["type"] = ["null", field["type"]]
        if draw(st.booleans()):
            field |= {"aliases": [field["name"]], "name": f"new_{field['name']}"}
    fields = draw(st.permutations(fields))[: draw(st.integers(1, len(fields)))]
    if draw(st.booleans()):
        type_, default = draw(st.sampled_from(_ADDED))
        fields = [*fields, {"name": "added", "type": type_, "default": default}]
    return reader | {"fields": fields}


def written(schema: Any, value: Any) -> bytes:
    """A value, as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def read(data: bytes, writer: Any, reader: Any = None) -> tuple[Any, int]:
    """A value, as fastavro reads it, and how many bytes are left."""
    stream = io.BytesIO(data)
    parsed = [
        None if schema is None else fastavro.parse_schema(copy.deepcopy(schema))
        for schema in (writer, reader)
    ]
    value = fastavro.schemaless_reader(stream, *parsed)
    return value, len(data) - stream.tell()


def plain(value: Any) -> Any:
    """A value as Arrow gives it: maps are lists of pairs there."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    assert value is None or isinstance(value, (str, bytes, int, Decimal, date, bool))
    return value
