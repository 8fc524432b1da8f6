"""Protobuf: messages, however they are written, and bytes that are none, against Protobuf's own library."""

from __future__ import annotations

import math
import struct
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.formats.proto_messages import Drawn, drawn, plain, values
from tidegate.formats.protobuf import ProtobufDecoder
from tidegate.formats.protobuf.schema import proto_columns, proto_from_json, proto_schema, proto_to_json
from tidegate.formats.schemas import SchemaFault

STOCK = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order { message Line { int32 id = 1; } map<string, int32> counts = 1; repeated Line lines = 2; }
message Stock {
  string store = 1;
  optional int64 id = 2;
  google.protobuf.Timestamp at = 3;
  oneof price { int32 cents = 4; string text = 5; }
}
"""


def decoder_of(message: Drawn) -> ProtobufDecoder:
    return ProtobufDecoder(proto_columns(message.schema, "p.Outer"), message.schema, "p.Outer")


def decoder(text: str, name: str, columns: pa.Schema | None = None) -> ProtobufDecoder:
    schema = proto_schema(text)
    return ProtobufDecoder(columns or proto_columns(schema, name), schema, name)


def decoded(decoder: ProtobufDecoder, *texts: bytes | None) -> list[Any]:
    """Return the columns of each value, or the reason why it has none."""
    result = decoder.decode(texts)
    result.columns.validate(full=True)
    rows = result.columns.to_pylist(maps_as_pydicts="strict")
    return [result.reasons.get(at, as_plain(row)) for at, row in enumerate(rows)]


def as_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_plain(item) for item in value]
    if isinstance(value, float):
        return struct.pack("<d", value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def same(left: Any, right: Any) -> bool:
    """Equal, where a NaN is any other."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bytes) and isinstance(right, bytes) and len(left) == len(right) == 8:
        numbers = [struct.unpack("<d", number)[0] for number in (left, right)]
        return left == right or all(map(math.isnan, numbers))
    return bool(left == right)


@examples(100)
@given(st.data())
def test_values_are_those_of_protobufs_own_library(data: st.DataObject) -> None:
    message = data.draw(drawn())
    messages = data.draw(st.lists(values(message), max_size=5))
    texts = [message.SerializeToString() for message in messages]
    many = data.draw(st.sampled_from([1, 20]))  # of few, lists are read one by one
    expected = [plain(message) for message in messages]
    assert same(decoded(decoder_of(message), *texts * many), expected * many)


@examples(100)
@given(st.data())
def test_fields_may_come_in_any_order_and_again(data: st.DataObject) -> None:
    """Read fields in any order: the last of a single field counts, messages are merged, lists go on, and
    one of a oneof is left.
    """
    message = data.draw(drawn())
    parts = data.draw(st.lists(values(message), min_size=1, max_size=3))
    pieces = [piece for part in parts for piece in pieces_of(message, part)]
    text = b"".join(data.draw(st.permutations(pieces)))
    expected = plain(message.message.FromString(text))
    many = data.draw(st.sampled_from([1, 20]))
    assert same(decoded(decoder_of(message), *[text, b""] * many)[::2], [expected] * many)


def pieces_of(message: Drawn, value: Any) -> list[bytes]:
    """Each field of a message alone."""
    pieces = []
    for field, _ in value.ListFields():
        alone = message.message()
        alone.CopyFrom(value)
        for other, _ in value.ListFields():
            if other.name != field.name:
                alone.ClearField(other.name)
        pieces.append(alone.SerializeToString())
    return pieces


@examples(100)
@given(st.data())
def test_broken_protobuf_bytes_affect_their_record_only(data: st.DataObject) -> None:
    message = data.draw(drawn())
    value = data.draw(values(message))
    text = value.SerializeToString()
    broken = bytearray(data.draw(st.binary(max_size=30)) if data.draw(st.booleans()) else text)
    for at in data.draw(st.lists(st.integers(0, max(len(broken) - 1, 0)), max_size=3)) if broken else ():
        broken[at] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(broken)))] if data.draw(st.booleans()) else broken
    neighbours = [text] * data.draw(st.sampled_from([0, 40]))
    first, middle, last, *_ = decoded(decoder_of(message), text, bytes(broken), text, *neighbours)
    assert same(first, plain(value))
    assert same(last, plain(value))
    if isinstance(middle, dict):
        assert same(middle, plain(message.message.FromString(bytes(broken))))
    else:
        assert middle.startswith("malformed: ")


@examples(100)
@given(st.data())
def test_columns_may_be_some_of_the_fields(data: st.DataObject) -> None:
    message = data.draw(drawn())
    value = data.draw(values(message))
    columns = proto_columns(message.schema, "p.Outer")
    names = data.draw(st.lists(st.sampled_from(columns.names), unique=True, min_size=1))
    view = pa.schema([*(columns.field(name) for name in names), pa.field("other", pa.int32())])
    with pytest.raises(SchemaFault, match="other"):
        ProtobufDecoder(view, message.schema, "p.Outer")
    lenient = ProtobufDecoder(view, message.schema, "p.Outer", lenient=True)
    expected = {name: plain(value)[name] for name in names} | {"other": None}
    assert same(decoded(lenient, value.SerializeToString()), [expected])


@examples(100)
@given(drawn())
def test_a_plan_keeps_a_schema_as_it_is(message: Drawn) -> None:
    assert proto_from_json(proto_to_json(message.schema)) == message.schema


def test_missing_field_is_its_default_or_null() -> None:
    expected = {"store": "", "id": None, "at": None, "cents": None, "text": None}
    assert decoded(decoder(STOCK, "shop.Stock"), b"", None) == [expected, None]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\x0a", "The value ends too early - at `$.store`"),
        (b"\x0a\x02s", "The value ends too early - at `$.store`"),
        (b"\x0a\x01\xff", "A text is not UTF-8 - at `$.store`"),
        (b"\x00", "Expected a field - at `$`"),
        (b"\x0f", "Expected a field - at `$`"),
        (b"\x0b\x10\x01", "A group does not end - at `$`"),
        (b"\x1a\x02\x10\xff", "The value ends too early - at `$.at.nanos`"),
        (b"\x1a\x06\x10\x80\x94\xeb\xdc\x03", "The nanoseconds of a time are not of one second - at `$.at`"),
    ],
)
def test_a_reason_says_what_is_wrong_and_where(text: bytes, why: str) -> None:
    assert decoded(decoder(STOCK, "shop.Stock"), text) == [f"malformed: {why}"]


def test_groups_and_unknown_fields_are_passed_over() -> None:
    text = b"\x0a\x01s" + b"\xa3\x06\x08\x01\xab\x06\x12\x01x\xac\x06\xa4\x06" + b"\x10\x07"
    (row,) = decoded(decoder(STOCK, "shop.Stock"), text)
    assert (row["store"], row["id"]) == ("s", 7)


def test_confluent_indexes_find_nested_messages() -> None:
    schema = proto_schema(STOCK)
    assert [schema.at(path) for path in [(0,), (1,), (0, 0), (2,), (0, 1), (-1,)]] == [
        "shop.Order",
        "shop.Stock",
        "shop.Order.Line",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; message A { B b = 1; }', r'^line 1:32: "B" is not defined'),
        ('syntax = "proto3"; import "other.proto";', "other.proto"),
    ],
)
def test_a_file_that_does_not_compile_says_where(text: str, why: str) -> None:
    with pytest.raises(SchemaFault, match=why):
        proto_schema(text)


def test_what_is_imported_is_given() -> None:
    text = 'syntax = "proto3"; import "shop/other.proto"; message A { shop.B b = 1; }'
    other = 'syntax = "proto3"; package shop; message B { bytes c = 1; }'
    schema = proto_schema(text, {"shop/other.proto": other})
    assert proto_columns(schema, "A") == pa.schema([("b", pa.struct([("c", pa.binary())]))])
    assert schema.top == ("A",)


@pytest.mark.parametrize(
    ("body", "columns", "why"),
    [
        ("A a = 1;", None, "`a` has itself inside of it"),
        ("", None, "has no fields"),
        (
            "int64 a = 1;",
            [("a", pa.string())],
            r"`\$.a` is `int64`, which cannot be a column of type `string`",
        ),
        ("repeated int64 a = 1;", [("a", pa.int64())], "`repeated int64`"),
    ],
)
def test_what_cannot_be_a_column_says_why(body: str, columns: Any, why: str) -> None:
    with pytest.raises(SchemaFault, match=why):
        decoder(f'syntax = "proto3"; message A {{ {body} }}', "A", columns and pa.schema(columns))


def test_proto2_enums_are_closed_and_required_fields_checked() -> None:
    text = 'syntax = "proto2"; message A { required int32 a = 1; enum E { X = 5; } optional E e = 2; }'
    rows = decoded(decoder(text, "A"), b"\x08\x01\x10\x05", b"\x08\x01\x10\x06", b"\x10\x05")
    assert rows == [
        {"a": 1, "e": "X"},
        {"a": 1, "e": None},
        "malformed: A required field is missing - at `$.a`",
    ]
