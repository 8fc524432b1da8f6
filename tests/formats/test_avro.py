"""Avro: values, schemas of writers and readers, and bytes that are neither, against fastavro."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.formats.avro_schemas import plain, read, readers, record, written
from tidegate.formats.avro import AvroDecoder
from tidegate.formats.avro.schema import avro_columns, parse_avro
from tidegate.formats.schemas import SchemaFault

STOCK = {
    "type": "record",
    "name": "shop.Stock",
    "fields": [
        {"name": "store", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}


def parsed(schema: Any) -> Any:
    return parse_avro(json.dumps(schema))


def decoder(writer: Any, reader: Any = None) -> AvroDecoder:
    return AvroDecoder(avro_columns(parsed(reader or writer)), parsed(writer), reader and parsed(reader))


def decoded(decoder: AvroDecoder, *values: bytes | None) -> list[Any]:
    """Return the columns of each value, or the reason why it has none."""
    result = decoder.decode(values)
    result.columns.validate(full=True)
    assert result.columns.null_count == len(
        {*result.reasons} | {at for at, v in enumerate(values) if v is None}
    )
    rows = result.columns.to_pylist(maps_as_pydicts="strict")
    return [result.reasons.get(at, row if row is None else plain(row)) for at, row in enumerate(rows)]


@examples(100)
@given(st.data())
def test_values_are_those_of_fastavro(data: st.DataObject) -> None:
    schema, values = data.draw(record())
    rows = data.draw(st.lists(values, max_size=5))
    texts = [written(schema, row) for row in rows]
    assert decoded(decoder(schema), *texts) == [plain(read(text, schema)[0]) for text in texts]


@examples(100)
@given(st.data())
def test_a_readers_schema_resolves_as_fastavro_does(data: st.DataObject) -> None:
    schema, values = data.draw(record())
    reader = data.draw(readers(schema))
    rows = data.draw(st.lists(values, max_size=4))
    texts = [written(schema, row) for row in rows]
    expected = [plain(read(text, schema, reader)[0]) for text in texts]
    assert plain(decoded(decoder(schema, reader), *texts)) == [as_read(row, reader) for row in expected]


def as_read(row: Any, reader: Any) -> Any:
    """fastavro leaves a promoted integer what it is: here it is the nearest number of the reader's type."""
    for field in reader["fields"]:
        types = field["type"] if isinstance(field["type"], list) else [field["type"]]
        value = row[field["name"]]
        if value is not None and ("float" in types or "double" in types):
            number = value if type(value) is int else struct.unpack("<d", value)[0]
            type_ = pa.float32() if "float" in types else pa.float64()
            row[field["name"]] = plain(pa.scalar(number).cast(type_, safe=False).as_py())
    return row


def with_uuids_as_texts(schema: Any) -> Any:
    """Text that is no UUID stays a text here; fastavro raises."""
    text = json.dumps({"type": "string", "logicalType": "uuid"})
    return json.loads(json.dumps(schema).replace(text, '"string"'))


@examples(100)
@given(st.data())
def test_broken_avro_bytes_affect_their_record_only(data: st.DataObject) -> None:
    schema, values = data.draw(record())
    text = written(schema, data.draw(values))
    broken = bytearray(data.draw(st.binary(max_size=30)) if data.draw(st.booleans()) else text)
    for at in data.draw(st.lists(st.integers(0, max(len(broken) - 1, 0)), max_size=3)) if broken else ():
        broken[at] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(broken)))] if data.draw(st.booleans()) else broken
    first, middle, last = decoded(decoder(schema), text, bytes(broken), text)
    assert first == last == plain(read(text, schema)[0])
    if isinstance(middle, dict):
        value, left = read(bytes(broken), with_uuids_as_texts(schema))
        assert (middle, 0) == (plain(value), left)
    else:
        assert middle.startswith("malformed: ")


@examples(100)
@given(st.data())
def test_columns_alone_are_a_view_of_any_writer(data: st.DataObject) -> None:
    """Skip fields that the columns do not name, and read null where the writer has no field."""
    schema, values = data.draw(record())
    rows = data.draw(st.lists(values, max_size=4))
    columns = avro_columns(parsed(schema))
    names = data.draw(st.lists(st.sampled_from(columns.names), unique=True))
    view = pa.schema([*(columns.field(name) for name in names), pa.field("other", pa.int32())])
    texts = [written(schema, row) for row in rows]
    expected = [
        {name: plain(row)[name] for name in names} | {"other": None} for row in map(value_of(schema), texts)
    ]
    assert decoded(AvroDecoder(view, parsed(schema)), *texts) == expected


def value_of(schema: Any) -> Any:
    return lambda text: read(text, schema)[0]


def test_null_avro_value_is_a_tombstone() -> None:
    text = written(STOCK, {"store": "s", "id": 1, "price": None})
    assert decoded(decoder(STOCK), None, text, None) == [None, {"store": "s", "id": 1, "price": None}, None]
    assert decoded(decoder(STOCK)) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "The value ends too early - at `$.store`"),
        (b"\x02", "The value ends too early - at `$.store`"),
        (b"\x01", "A size is negative - at `$.store`"),
        (b"\x02\xff\x02\x00", "A text is not UTF-8 - at `$.store`"),
        (b"\x02s\x02\x04", "A union has no such branch - at `$.price`"),
        (b"\x02s\x02\x00\x00", "1 bytes are left over - at `$`"),
        (b"\x02s" + b"\xff" * 9 + b"\x02\x00", "A number has more than 64 bits - at `$.id`"),
    ],
)
def test_a_reason_says_what_is_wrong_and_where(text: bytes, why: str) -> None:
    assert decoded(decoder(STOCK), text) == [f"malformed: {why}"]


def test_number_that_is_cut_ignores_the_next_record() -> None:
    """Its tenth byte would be the first of that record, and would make the number too large."""
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    cut, whole = decoded(decoder(schema), b"\xff" * 9, b"\x04")
    assert cut == "malformed: The value ends too early - at `$.n`"
    assert whole == {"n": 2}


def test_recursive_schema_is_skipped_if_unread() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    with pytest.raises(SchemaFault, match=r"`next` has itself inside of it"):
        avro_columns(parsed(node))
    chain: Any = None
    for number in range(90):
        chain = {"id": number, "next": chain}
    view = AvroDecoder(pa.schema([("id", pa.int32())]), parsed(node))
    assert decoded(view, written(node, chain)) == [{"id": 89}]
    for number in range(90, 120):
        chain = {"id": number, "next": chain}
    assert decoded(view, written(node, chain)) == ["malformed: It is nested more than 100 deep - at `$.next`"]


@examples(100)
@given(st.lists(st.sampled_from([0, 1, 40, 100, 300]), max_size=5), st.integers(0, 2000))
def test_very_long_lists_are_read_like_short_ones(sizes: list[int], cut: int) -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "s", "type": ["null", "string"]}]}
    fields = [
        {"name": "a", "type": {"type": "array", "items": item}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    texts = [
        written(
            schema,
            {
                "a": [{"s": None if at % 3 else str(at)} for at in range(size)],
                "m": {str(at): at * at - 7 for at in range(size)},
            },
        )
        for size in sizes
    ]
    broken = [text[:cut] for text in texts if cut < len(text)]
    rows = decoded(decoder(schema), *texts, *broken, *texts)
    expected = [plain(read(text, schema)[0]) for text in texts]
    assert rows[: len(texts)] == rows[len(texts) + len(broken) :] == expected
    for row in rows[len(texts) : len(texts) + len(broken)]:
        assert row.startswith("malformed: The value ends too early") or "more items than bytes" in row


def test_huge_item_count_takes_no_memory() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}, {"name": "b", "type": "int"}],
    }
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"
    assert decoded(decoder(schema), huge) == ["malformed: There are more items than bytes - at `$.a`"]


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (STOCK, STOCK | {"name": "Order"}, r"`\$` is `shop.Stock`, and the reader's is `Order`"),
        (
            STOCK,
            STOCK | {"fields": [{"name": "x", "type": "int"}]},
            "`\\$.x` is not written, and has no default",
        ),
        (
            STOCK,
            STOCK | {"fields": [{"name": "id", "type": "int"}]},
            "`\\$.id` is `long`, and the reader's is `int`",
        ),
    ],
)
def test_schemas_that_do_not_fit_say_why(writer: Any, reader: Any, why: str) -> None:
    with pytest.raises(SchemaFault, match=why):
        decoder(writer, reader)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ('"nothing"', "the type `nothing` is not defined"),
        ('{"type":"record","name":"R"}', "has no fields"),
        ('{"type":"enum","name":"E","symbols":["a","a"]}', "has a symbol twice"),
        ('["int","int"]', "twice"),
        ("[" * 5000, "not JSON|nested too deep"),
    ],
)
def test_a_text_that_is_no_schema_says_why(text: str, why: str) -> None:
    with pytest.raises(SchemaFault, match=why):
        parse_avro(text)


def test_integer_beyond_its_column_is_unusable() -> None:
    view = AvroDecoder(pa.schema([("id", pa.int8())]), parsed(STOCK))
    texts = [written(STOCK, {"store": "s", "id": number, "price": None}) for number in (-128, 128)]
    assert decoded(view, *texts) == [{"id": -128}, "malformed: A number does not fit into `int8` - at `$.id`"]


def test_last_of_repeated_map_keys_counts() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
    }
    assert decoded(decoder(schema), b"\x06\x02a\x02\x02b\x04\x02a\x06\x00") == [{"m": {"b": 2, "a": 3}}]


def test_a_uuid_of_sixteen_bytes_is_text() -> None:
    uuid = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": uuid}]}
    expected = {"u": "00112233-4455-6677-8899-aabbccddeeff"}
    assert decoded(decoder(schema), bytes.fromhex("00112233445566778899aabbccddeeff")) == [expected]


def test_a_block_may_say_its_size_in_bytes() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
    }
    assert decoded(decoder(schema), b"\x03\x04\x02\x04\x02\x06\x00") == [{"a": [1, 2, 3]}]
