"""Emissions by schemas that somebody else wrote: libraries read what was emitted, or it is refused."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.formats.test_writing import COLUMNS, EPOCH, ROWS, message_class, struct_of
from tidegate.formats.avro.schema import parse_avro
from tidegate.formats.avro.write import avro_writer
from tidegate.formats.protobuf.schema import proto_schema
from tidegate.formats.protobuf.write import message_indexes, protobuf_writer
from tidegate.formats.schemas import SchemaFault, Unwritable

INNER = {
    "type": "record",
    "fields": [
        {"name": "t", "type": ["string", "null"], "default": "?"},
        {"name": "more", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "n", "type": ["null", "long"], "default": None},
    ],
}


def logical(on: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": on, "logicalType": name, **more}


def inner(name: str) -> dict[str, Any]:
    return {**INNER, "name": name}


TYPES: dict[str, list[Any]] = {
    "flag": ["boolean"],
    "tiny": ["int", "long", "double", logical("bytes", "decimal", precision=9, scale=2)],
    "small": ["int", "long", "double"],
    "big": ["long", logical("bytes", "decimal", precision=25, scale=3)],
    "single": ["float", "double"],
    "double": ["double"],
    "text": ["string"],
    "raw": ["bytes"],
    "price": [
        logical("bytes", "decimal", precision=20, scale=3),
        {**logical("fixed", "decimal", precision=22, scale=4), "name": "Price", "size": 12},
    ],
    "day": [logical("int", "date")],
    "at": [logical("long", "timestamp-micros")],
    "local": [logical("long", "local-timestamp-micros")],
    "inner": [inner("Inner")],
    "texts": [{"type": "array", "items": "string"}, {"type": "array", "items": ["string", "null"]}],
    "numbers": [{"type": "array", "items": "long"}],
    "inners": [{"type": "array", "items": inner("Item")}],
    "by_name": [{"type": "map", "values": "double"}],
    "inner_by_name": [{"type": "map", "values": ["null", inner("Named")]}],
}
"""What a column can be, as any schema may say it."""
EXTRA = {
    "name": "extra",
    "type": [{"type": "enum", "name": "E", "symbols": ["a", "b"]}, "null"],
    "default": "b",
}


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Fields in any order, nullable in either order, and one that no column fills."""
    fields = [EXTRA]
    for name, types in TYPES.items():
        type_ = draw(st.sampled_from(types))
        fields.append({"name": name, "type": draw(st.permutations(["null", type_]))})
    return {"type": "record", "name": "Level", "namespace": "shop", "fields": draw(st.permutations(fields))}


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the fields that no column fills."""
    complete = {**row, "extra": "b"}
    for name in ("inner", "inners", "inner_by_name"):
        value = row[name]
        if isinstance(value, list):
            complete[name] = [with_default(item) for item in value]
        elif name == "inner_by_name" and value is not None:
            complete[name] = {key: with_default(item) for key, item in value.items()}
        elif value is not None:
            complete[name] = with_default(value)
    return complete


def with_default(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "more": [1, 2]}


@examples(30)
@given(schemas(), st.lists(st.none() | ROWS, min_size=1, max_size=4))
def test_fastavro_reads_what_was_emitted(schema: dict[str, Any], rows: list[dict[str, Any] | None]) -> None:
    write = avro_writer(parse_avro(json.dumps(schema)), COLUMNS)
    theirs = fastavro.parse_schema(schema)
    for row, written in zip(rows, write(struct_of(rows)).to_pylist(), strict=True):
        if row is None:
            assert written is None
            continue
        stream = io.BytesIO(written)
        assert fastavro.schemaless_reader(stream, theirs, None) == as_read(row)
        assert not stream.read()


def record(*fields: tuple[str, Any]) -> str:
    names = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "R", "fields": names})


def avro(schema: str, value: Any, type_: pa.DataType) -> bytes:
    columns = pa.schema([("a", type_)])
    written = avro_writer(parse_avro(schema), columns)(pa.array([{"a": value}], pa.struct(list(columns))))
    assert written.null_count == 0
    data: bytes = written[0].as_py()
    return data


@pytest.mark.parametrize(
    ("fields", "type_", "says"),
    [
        ([("a", "int")], pa.int64(), "`$.a` is a column of type `int64`, which a field `int` does not hold"),
        ([("a", "string")], pa.int64(), "a field `string` does not hold"),
        ([("a", ["null", "int", "string"])], pa.float64(), '`["null","int","string"]` does not hold'),
        ([("b", "long")], pa.int64(), "the column `$.a` has no field in the record `R`"),
        ([("a", "long"), ("b", "long")], pa.int64(), "the field `$.b` has neither a column nor a default"),
        ([("a", logical("bytes", "decimal", precision=4))], pa.decimal128(5, 0), "does not hold"),
        ([("a", logical("long", "timestamp-millis"))], pa.timestamp("us"), "does not hold"),
        ([("a", {"type": "array", "items": "int"})], pa.list_(pa.string()), "`$.a[...]` is a column of type"),
    ],
)
def test_avro_schema_must_hold_every_column(fields: list[Any], type_: pa.DataType, says: str) -> None:
    with pytest.raises(SchemaFault, match=re.escape(says)):
        avro_writer(parse_avro(record(*fields)), pa.schema([("a", type_)]))


SMALL = {"type": "enum", "name": "E", "symbols": ["x", "y"]}
FOUR = {"type": "fixed", "name": "F", "size": 4}


@pytest.mark.parametrize(
    ("type_", "value", "says"),
    [
        ("long", None, "`$.a` is null, and the schema has no null there"),
        (SMALL, "z", "`$.a` is 'z', which the enum `E` does not have"),
        (FOUR, b"123", "`$.a` does not have the 4 bytes that the schema requires"),
        (logical("long", "timestamp-millis"), EPOCH + timedelta(microseconds=1), "between two milliseconds"),
        ({**FOUR, **logical("fixed", "decimal", precision=20)}, Decimal(2**40), "more than 4 bytes"),
    ],
)
def test_value_without_an_avro_form_is_reported(type_: Any, value: Any, says: str) -> None:
    column = {"z": pa.string(), b"123": pa.binary(), None: pa.int64(), Decimal(2**40): pa.decimal128(20, 0)}
    with pytest.raises(Unwritable, match=re.escape(says)):
        avro(record(("a", type_)), value, column.get(value, pa.timestamp("us", "UTC")))


@pytest.mark.parametrize(
    ("type_", "value", "column", "written"),
    [
        (SMALL, "y", pa.string(), b"\x02"),
        (FOUR, b"1234", pa.binary(), b"1234"),
        (
            logical("long", "timestamp-millis"),
            EPOCH - timedelta(milliseconds=1),
            pa.timestamp("us", "UTC"),
            b"\x01",
        ),
        (["string", "null", "long"], 1, pa.int64(), b"\x04\x02"),
    ],
)
def test_a_value_is_written_as_the_schema_says(
    type_: Any, value: Any, column: pa.DataType, written: bytes
) -> None:
    assert avro(record(("a", type_)), value, column) == written


OTHER = "message Other { message Deep { int32 a = 1; } }"
PROTO = f"""
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "common.proto";
{OTHER}
message Level {{
  string name = 7;
  optional string maybe = 2;
  sint32 zigzag = 3;
  sfixed64 eight = 4;
  fixed32 four = 5;
  uint64 positive = 6;
  double ratio = 20;
  Color color = 1;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int64Value wrapped = 9;
  Place place = 10;
  repeated sint64 many = 11;
  repeated Place places = 12;
  map<string, Place> by_name = 13;
  oneof either {{ string left = 14; int32 right = 15; }}
  bool never = 16;
}}
"""
COMMON = """
syntax = "proto3";
package shop;
enum Color { RED = 0; GREEN = 5; BLUE = -1; }
message Place { string city = 2; optional int32 floor = 1; }
"""
PLACE = pa.struct([("city", pa.string()), ("floor", pa.int32())])
OF_LEVEL = pa.schema(
    [
        *((name, pa.string()) for name in ("name", "maybe", "color", "left")),
        *((name, pa.int32()) for name in ("zigzag", "four", "right")),
        *((name, pa.int64()) for name in ("eight", "positive", "wrapped")),
        ("ratio", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", PLACE),
        ("many", pa.list_(pa.int64())),
        ("places", pa.list_(PLACE)),
        ("by_name", pa.map_(pa.string(), PLACE)),
    ]
)


@cache
def level_class() -> Any:
    """Return the message class without imports: they are inlined, as they are of the same package."""
    head, _, level = PROTO.partition(OTHER)
    common = COMMON.partition("package shop;")[2]
    return message_class(head.replace('import "common.proto";', "") + level + common)


def level_schema() -> Any:
    return proto_schema(PROTO, {"common.proto": COMMON})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
PLACES = st.fixed_dictionaries({"city": TEXTS, "floor": st.none() | st.integers(-5, 5)})
WHOLE = {
    "zigzag": st.integers(-(2**31), 2**31 - 1),
    "four": st.integers(0, 2**31 - 1),
    "eight": st.integers(-(2**63), 2**63 - 1),
    "positive": st.integers(0, 2**63 - 1),
    "wrapped": st.integers(-2, 2),
}
LEVELS = st.fixed_dictionaries(
    {
        **{name: st.none() | TEXTS for name in ("name", "maybe")},
        **{name: st.none() | numbers for name, numbers in WHOLE.items()},
        "color": st.none() | st.sampled_from(["RED", "GREEN", "BLUE"]),
        "ratio": st.none() | st.floats(allow_nan=False),
        "at": st.none() | st.integers(-(10**15), 10**15).map(lambda us: EPOCH + timedelta(microseconds=us)),
        "place": st.none() | PLACES,
        "many": st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "places": st.none() | st.lists(PLACES, max_size=2),
        "by_name": st.none() | st.dictionaries(TEXTS, PLACES, max_size=1),
    }
)


def level_message(row: dict[str, Any]) -> Any:
    message = level_class()()
    for name, value in row.items():
        if value is None:
            continue
        if name == "color":
            message.color = {"RED": 0, "GREEN": 5, "BLUE": -1}[value]
        elif name == "at":
            message.at.FromDatetime(value.replace(tzinfo=None))
            message.at.SetInParent()
        elif name == "wrapped":
            message.wrapped.value = value
            message.wrapped.SetInParent()
        elif name == "place":
            _fill(message.place, value)
        elif name == "places":
            for place in value:
                _fill(message.places.add(), place)
        elif name == "by_name":
            for key, place in value.items():
                _fill(message.by_name[key], place)
        elif name == "many":
            message.many.extend(value)
        else:
            setattr(message, name, value)
    return message


def _fill(message: Any, place: dict[str, Any]) -> None:
    message.SetInParent()
    for name, value in place.items():
        if value is not None:
            setattr(message, name, value)


@examples(30)
@given(st.lists(LEVELS, min_size=1, max_size=4), st.sampled_from(["left", "right", None]))
def test_protobuf_bytes_equal_those_of_its_library(rows: list[dict[str, Any]], member: str | None) -> None:
    rows = [{**row, "left": None, "right": None} for row in rows]
    if member is not None:
        rows[0][member] = {"left": "", "right": 0}[member]
    values = [{**row, "by_name": row["by_name"] and list(row["by_name"].items())} for row in rows]
    write = protobuf_writer(level_schema(), "shop.Level", OF_LEVEL)
    written = write(pa.array([None, *values], pa.struct(list(OF_LEVEL)))).to_pylist()
    assert written == [None, *(level_message(row).SerializeToString() for row in rows)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"nothing": pa.string()}, "the column `$.nothing` has no field in the message `shop.Level`"),
        (
            {"zigzag": pa.int64()},
            "`$.zigzag` is a column of type `int64`, which a field `sint32` does not hold",
        ),
        ({"place": pa.string()}, "which a field `shop.Place` does not hold"),
        ({"many": pa.int64()}, "which a field `repeated sint64` does not hold"),
        ({"at": pa.timestamp("us")}, "which a field `google.protobuf.Timestamp` does not hold"),
    ],
)
def test_message_must_hold_every_column(columns: dict[str, pa.DataType], says: str) -> None:
    with pytest.raises(SchemaFault, match=re.escape(says)):
        protobuf_writer(level_schema(), "shop.Level", pa.schema(list(columns.items())))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"color": "PINK"}, "`$.color` is 'PINK', which the enum `shop.Color` does not have"),
        ({"positive": -1}, "`$.positive` has a number below 0"),
        ({"left": "a", "right": 1}, "values for several members of a `oneof`"),
        ({"many": [None]}, "`$.many[...]` is null"),
    ],
)
def test_value_without_a_protobuf_form_is_reported(row: dict[str, Any], says: str) -> None:
    write = protobuf_writer(level_schema(), "shop.Level", OF_LEVEL)
    with pytest.raises(Unwritable, match=re.escape(says)):
        write(pa.array([row], pa.struct(list(OF_LEVEL))))


def test_required_field_needs_a_column_and_value() -> None:
    schema = proto_schema('syntax = "proto2"; message R { required int32 a = 1; optional int32 b = 2; }')
    with pytest.raises(SchemaFault, match=r"the field `\$\.a` is required, and has no column"):
        protobuf_writer(schema, "R", pa.schema([("b", pa.int32())]))
    columns = pa.schema([("a", pa.int32())])
    with pytest.raises(Unwritable, match=r"`\$\.a` is null"):
        protobuf_writer(schema, "R", columns)(pa.array([{"a": None}], pa.struct(list(columns))))


@pytest.mark.parametrize("name", ["shop.Other", "shop.Level", "shop.Other.Deep"])
def test_message_indexes_lead_back_to_the_message(name: str) -> None:
    schema = level_schema()
    assert schema.at(schema.path(name)) == name
    expected = {"shop.Other": b"\x00", "shop.Level": b"\x02\x02", "shop.Other.Deep": b"\x04\x00\x00"}
    assert message_indexes(schema, name) == expected[name]
