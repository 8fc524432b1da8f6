"""Draws schema files of Avro, Protobuf and JSON, and values of them: also at the bounds of their types.

A value is written by a library that is not tidegate's: fastavro, Google's protobuf, json.
"""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import fastavro
import grpc_tools
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from tidegate.expressions.arrow import type_of
from tidegate.formats.avro.schema import avro_columns, parse_avro
from tidegate.formats.json.schema import json_schema_columns, parse_json_schema
from tidegate.formats.protobuf.schema import proto_columns, proto_schema

NAMES = ("id", "n", "price", "name", "at", "flag", "items")
"""The names of the columns of drawn pipelines."""
MESSAGE = "fuzz.Row"
"""The only message on top of a drawn `.proto` file."""
TEXTS = ("", "a", "b", "text", "ä\u0000", "\U0001f30a", "12", "2026-01-31", "x" * 200)
BYTES = (b"", b"\x00", b"\xff\xfe", b"text")
DOUBLES = (0.0, -0.0, 0.1, 1.5, -3.0, 1.7976931348623157e308, 5e-324, float("nan"), float("-inf"))
FLOATS = (0.0, -0.0, 0.5, 3.4028234663852886e38, 1.401298464324817e-45, float("nan"), float("inf"))
SECOND = 1_000_000
MICROS = (0, 1, -1, 1_769_846_400 * SECOND + 123_456, -62_135_596_800 * SECOND, 253_402_300_799 * SECOND)
_BEYOND = 2**63 - 1
Write = Callable[[random.Random], bytes]
"""Writes one drawn value."""


def integers(bits: int, signed: bool = True) -> tuple[int, ...]:
    """Return the bounds of a type of integers, and small numbers."""
    if not signed:
        return 0, 1, 2, 20, 2 ** (bits - 1), 2**bits - 1
    return 0, 1, 1, 2, 20, -5, 63, 64, -65, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))


@dataclass(frozen=True)
class SchemaKind:
    """The schema files of a format: `draw` their text, its `columns`, and a `writer` of values."""

    ending: str
    draw: Callable[[random.Random], str]
    columns: Callable[[str], pa.Schema]
    writer: Callable[[str], Write]


def draw_file(
    dice: random.Random, format_: str, folder: Path, stem: str = "drawn"
) -> tuple[str, dict[str, str]]:
    """Write a schema file of the format into the folder. Return its name, and its columns with types."""
    kind = KINDS[format_]
    text = kind.draw(dice)
    name = f"{stem}{kind.ending}"
    (folder / name).write_text(text)
    return name, {field.name: type_of(field.type).text for field in kind.columns(text)}


def writer_of(format_: str, path: Path) -> Write:
    """Return what writes values of the schema file's record."""
    return KINDS[format_].writer(path.read_text())


# Avro

_AVRO_NUMBERS: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "int": integers(32),
    "long": integers(64),
    "float": FLOATS,
    "double": DOUBLES,
    "string": TEXTS,
    "bytes": BYTES,
}
_AVRO_LOGICAL: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("int", "date", (0, 20_484, -719_162, 2_932_896, 2**31 - 1)),
    ("int", "time-millis", (0, 1, 86_399_999)),
    ("long", "timestamp-millis", tuple(micros // 1000 for micros in MICROS)),
    ("long", "timestamp-micros", (*MICROS, _BEYOND)),
    ("long", "local-timestamp-millis", tuple(micros // 1000 for micros in MICROS)),
    ("long", "local-timestamp-micros", (*MICROS, -_BEYOND)),
    ("string", "uuid", ("6f1b0a3e-91a8-4a53-8d36-2f5a0e1c7b44",)),
)


def _draw_avro(dice: random.Random) -> str:
    fields = []
    for name in _some_names(dice):
        type_ = _avro_type(dice, name, 2)
        if dice.random() < 0.4:
            fields.append({"name": name, "type": ["null", type_], "default": None})
        else:
            fields.append({"name": name, "type": type_})
    return json.dumps({"type": "record", "name": "Row", "namespace": "fuzz", "fields": fields})


def _avro_type(dice: random.Random, name: str, depth: int) -> Any:
    """Return a type; what has a name gets one of the path `name`."""
    nested = ("array", "map", "record") if depth else ()
    kind = dice.choice(("scalar", "scalar", "scalar", "logical", "decimal", "enum", "fixed", *nested))
    if kind == "scalar":
        return dice.choice(list(_AVRO_NUMBERS))
    if kind == "logical":
        type_, logical, _ = dice.choice(_AVRO_LOGICAL)
        return {"type": type_, "logicalType": logical}
    if kind == "decimal":
        precision, scale = dice.choice(((10, 2), (38, 0), (38, 38), (29, 10)))
        size = dice.choice(({"type": "bytes"}, {"type": "fixed", "name": f"{name}_decimal", "size": 16}))
        return {**size, "logicalType": "decimal", "precision": precision, "scale": scale}
    if kind == "enum":
        return {"type": "enum", "name": f"{name}_enum", "symbols": ["a", "b", "LAST"]}
    if kind == "fixed":
        return {"type": "fixed", "name": f"{name}_fixed", "size": 3}
    inner = _avro_type(dice, f"{name}_x", depth - 1)
    if dice.random() < 0.4:
        inner = ["null", inner]
    if kind == "record":
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": "string"}]
        return {"type": "record", "name": f"{name}_record", "fields": fields}
    return {"type": "array", "items": inner} if kind == "array" else {"type": "map", "values": inner}


def _avro_writer(text: str) -> Write:
    contents = json.loads(text)
    schema = fastavro.parse_schema(contents)

    def write(dice: random.Random) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, _avro_value(dice, contents))
        return out.getvalue()

    return write


def _avro_value(dice: random.Random, type_: Any) -> Any:
    if isinstance(type_, list):
        return _avro_value(dice, type_[1]) if dice.random() < 0.7 else None
    if isinstance(type_, str):
        return dice.choice(_AVRO_NUMBERS[type_])
    kind = type_["type"]
    if kind == "record":
        return {field["name"]: _avro_value(dice, field["type"]) for field in type_["fields"]}
    if kind == "array":
        return [_avro_value(dice, type_["items"]) for _ in range(dice.randint(0, 3))]
    if kind == "map":
        return {key: _avro_value(dice, type_["values"]) for key in dice.sample(TEXTS, dice.randint(0, 2))}
    if kind == "enum":
        return dice.choice(type_["symbols"])
    if type_.get("logicalType") == "decimal":
        return _decimal_bytes(dice, type_)
    if kind == "fixed":
        return dice.choice((b"\x00\x00\x00", b"abc", b"\xff\xff\xff"))
    ((_, _, values),) = [logical for logical in _AVRO_LOGICAL if logical[1] == type_["logicalType"]]
    return dice.choice(values)


def _decimal_bytes(dice: random.Random, type_: Any) -> bytes:
    """Return the bytes of an unscaled number: at the bounds of the precision, and one beyond."""
    most = 10 ** type_["precision"] - 1
    number = dice.choice((0, 1, -1, 1999, most, -most, most + 1))
    size = type_.get("size", dice.choice((17, number.bit_length() // 8 + 1)))
    if number.bit_length() >= size * 8:
        number = most
    return number.to_bytes(size, "big", signed=True)


# Protobuf

F = FieldDescriptor
_PROTO_SCALARS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), integers(32)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), integers(64)),
    **dict.fromkeys(("uint32", "fixed32"), integers(32, signed=False)),
    **dict.fromkeys(("uint64", "fixed64"), integers(64, signed=False)),
    "double": DOUBLES,
    "float": FLOATS,
    "bool": (True, False),
    "string": TEXTS,
    "bytes": BYTES,
}
_BY_NUMBER = {getattr(F, f"TYPE_{name.upper()}"): values for name, values in _PROTO_SCALARS.items()}
_PROTO_MESSAGES = ("Inner", "google.protobuf.Timestamp", "google.protobuf.Int64Value")
_PROTO_KEYS = ("string", "int32", "uint64", "bool")


def _draw_proto(dice: random.Random) -> str:
    syntax, plain = dice.choice((("proto3", ""), ("proto3", ""), ("proto2", "required ")))
    fields: list[str] = []
    number = 0
    for name in _some_names(dice):
        number += dice.choice((1, 1, 15, 2000))
        type_ = dice.choice((*_PROTO_SCALARS, "Kind", *_PROTO_MESSAGES))
        form = dice.choice(("optional ", "optional ", "repeated ", "map", plain))
        if form == "map":
            fields.append(f"map<{dice.choice(_PROTO_KEYS)}, {type_}> {name} = {number};")
        else:
            fields.append(f"{form}{type_} {name} = {number};")
    return "\n".join(
        (
            f'syntax = "{syntax}";\npackage fuzz;',
            'import "google/protobuf/timestamp.proto";\nimport "google/protobuf/wrappers.proto";',
            "message Row {\n  enum Kind { NONE = 0; ONE = 1; MINUS = -1; }",
            "  message Inner { optional int32 a = 1; repeated string b = 2; }",
            *(f"  {field}" for field in fields),
            "}\n",
        )
    )


@lru_cache(maxsize=64)
def message_class(text: str, message: str = MESSAGE) -> Any:
    """Return the class that Protobuf's own compiler and library make of a `.proto` file's message."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.proto").write_text(text)
        options = [
            f"-I{folder}",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={folder}/out",
        ]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, "a.proto"]
        subprocess.run(command, check=True, timeout=600, capture_output=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "out").read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def _proto_writer(text: str) -> Write:
    class_ = message_class(text)

    def write(dice: random.Random) -> bytes:
        message = class_()
        _fill(dice, message)
        return bytes(message.SerializePartialToString())

    return write


def _fill(dice: random.Random, message: Any) -> None:
    """Set most of the fields."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.seconds, message.nanos = (
            dice.choice(MICROS) // SECOND,
            dice.choice((0, 1000, 999_999_999, -1)),
        )
        return
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.85:
            _set(dice, message, field)


def _set(dice: random.Random, message: Any, field: Any) -> None:
    value = getattr(message, field.name)
    count = dice.randint(0, 3)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = field.message_type.fields
        for _ in range(count):
            if item.message_type is not None:
                _fill(dice, value[_scalar(dice, key)])
            else:
                value[_scalar(dice, key)] = _scalar(dice, item)
    elif field.is_repeated:
        for _ in range(count):
            if field.message_type is not None:
                _fill(dice, value.add())
            else:
                value.append(_scalar(dice, field))
    elif field.message_type is not None:
        value.SetInParent()
        _fill(dice, value)
    else:
        setattr(message, field.name, _scalar(dice, field))


def _scalar(dice: random.Random, field: Any) -> Any:
    if field.enum_type is not None:
        return dice.choice((0, 1, -1) if field.enum_type.is_closed else (0, 1, -1, 2**31 - 1))
    return dice.choice(_BY_NUMBER[field.type])


# JSON Schema

_JSON_TYPES: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
    ({"type": "string"}, TEXTS),
    ({"type": "string", "minLength": 1, "maxLength": 4}, TEXTS),
    ({"enum": ["a", "b"]}, ("a", "b", "a", "c")),
    ({"type": "string", "format": "date"}, ("2026-01-31", "0001-01-01", "9999-12-31", "2026-02-31")),
    ({"type": "string", "format": "date-time"}, ("2026-01-31T08:00:00Z", "0001-01-01T00:00:00+14:00")),
    ({"type": "integer"}, (*integers(64), 2**63)),
    ({"type": "integer", "minimum": 0, "exclusiveMaximum": 100}, (0, 1, 2, 99, 100, -1)),
    ({"type": "number"}, (0, 0.1, -0.0, 1e308, 5e-324, 1e999)),
    ({"type": "number", "multipleOf": 0.01}, (0.01, 19.99, 1.1, 0.07, 0.005)),
    ({"type": "boolean"}, (True, False)),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, ([], [1], [1, 2], [1, 2, 3])),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        ({"a": 1}, {}, {"a": 1, "b": 2}),
    ),
)


def _draw_json(dice: random.Random) -> str:
    names = _some_names(dice)
    properties = {name: dice.choice(_JSON_TYPES)[0] for name in names}
    contents: dict[str, Any] = {"type": "object", "properties": properties}
    if dice.random() < 0.5:
        contents["required"] = dice.sample(names, 1)
    if dice.random() < 0.3:
        contents["additionalProperties"] = False
    return json.dumps(contents)


def _json_writer(text: str) -> Write:
    properties = json.loads(text)["properties"]
    values = {name: next(v for type_, v in _JSON_TYPES if type_ == part) for name, part in properties.items()}

    def write(dice: random.Random) -> bytes:
        row = {name: dice.choice(choices) for name, choices in values.items() if dice.random() < 0.95}
        return json.dumps(row).encode().replace(b"Infinity", b"1e999")

    return write


def _some_names(dice: random.Random) -> list[str]:
    return dice.sample(NAMES, dice.randint(2, 5))


KINDS = {
    "avro": SchemaKind(".avsc", _draw_avro, lambda text: avro_columns(parse_avro(text)), _avro_writer),
    "protobuf": SchemaKind(
        ".proto", _draw_proto, lambda text: proto_columns(proto_schema(text), MESSAGE), _proto_writer
    ),
    "json": SchemaKind(
        ".json", _draw_json, lambda text: json_schema_columns(parse_json_schema(text, {})), _json_writer
    ),
}
"""The formats that can have schema files."""


def damaged(dice: random.Random, value: bytes) -> bytes:
    """Return the value cut, changed in a byte, repeated in part, or with something in it or before it."""
    place = dice.randrange(len(value))
    return dice.choice(
        (
            value[:place],
            value[:place] + bytes([dice.randrange(256)]) + value[place + 1 :],
            value[:place] + value[place:] * 2,
            value[:place] + dice.choice((b"\x00", b'"', b",", b"}", b"\xff", b"9" * 40)) + value[place:],
            struct.pack(">q", dice.getrandbits(63)) + value,
        )
    )
