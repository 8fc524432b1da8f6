"""Confluent's wire format: several schemas in one batch, and what is not of any."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.formats.avro_schemas import written
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.avro.schema import avro_columns, pin_avro, pinned_avro
from tidegate.formats.protobuf.schema import pin_protobuf
from tidegate.formats.schemas import PinnedSchema, SourceSchemas, WriterSchema

ORDER = {
    "type": "record",
    "name": "Stock",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
TWO = {
    "type": "record",
    "name": "Stock",
    "fields": [{"name": "name", "type": ["null", "string"]}, {"name": "id", "type": "long"}],
}
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
READER = {
    "type": "record",
    "name": "Stock",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "size", "type": "int", "default": 5},
    ],
}
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
PROTO = """
syntax = "proto3"; package shop;
message Order { string id = 1; }
message Stock { message Line { int64 id = 1; string name = 2; } int64 id = 1; string name = 2; }
"""


def pinned(*schemas: tuple[int, Any]) -> tuple[WriterSchema, ...]:
    return tuple(
        WriterSchema(
            "s", at, id_, schema if isinstance(schema, PinnedSchema) else pin_avro(json.dumps(schema), {})
        )
        for at, (id_, schema) in enumerate(schemas, start=1)
    )


def framed(id_: int, value: bytes) -> bytes:
    return struct.pack(">bI", 0, id_) + value


def rows(layout: RecordLayout, *values: bytes | None, keys: Any = None) -> list[Any]:
    """Return the columns of each record, or its reason."""
    count = len(values)
    records = Records("t", 0, range(count), [7] * count, keys or [b"k"] * count, values, [None] * count)
    (batch,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    batch.validate(full=True)
    reasons = batch.column("__reason").to_pylist()
    columns = batch.select(layout.columns.names).to_pylist()
    return [reason or row for reason, row in zip(reasons, columns, strict=True)]


def avro(*writers: tuple[int, Any], reader: Any = None, key: tuple[str, ...] = ()) -> RecordLayout:
    columns = COLUMNS if reader is None else avro_columns(pinned_avro(pin_avro(json.dumps(reader), {})))
    schemas = SourceSchemas(reader and pin_avro(json.dumps(reader), {}), pinned(*writers))
    return RecordLayout("avro", columns, key, schemas=schemas)


def proto(*writers: int, reader: bool = False, message: str | None = None) -> RecordLayout:
    schema = pin_protobuf(PROTO, {})
    schemas = SourceSchemas(schema if reader else None, pinned(*((id_, schema) for id_ in writers)))
    return RecordLayout("protobuf", COLUMNS, schemas=schemas, message=message)


OLD, NEW = framed(7, written(ORDER, {"id": 1, "old": "x"})), framed(300, written(TWO, {"name": "n", "id": 2}))


def test_record_is_read_by_its_writer_schema() -> None:
    layout = avro((7, ORDER), (300, TWO))
    expected = [
        {"id": 2, "name": "n"},
        {"id": 1, "name": None},
        {"id": None, "name": None},
        {"id": 2, "name": "n"},
    ]
    assert rows(layout, NEW, OLD, None, NEW) == expected


def test_a_readers_schema_has_the_defaults() -> None:
    layout = avro((7, ORDER), (300, TWO), reader=READER)
    expected = [{"id": 2, "name": "n", "size": 5}, {"id": 1, "name": None, "size": 5}]
    assert rows(layout, NEW, OLD) == expected


def test_record_without_a_schema_is_quarantined_with_reason() -> None:
    layout = avro((7, ORDER), (8, OTHER))
    values = [OLD, NEW, b"", b"\x00\x00", b"{}345", framed(8, b"\x02x"), framed(7, b"\x02"), OLD]
    assert rows(layout, *values) == [
        {"id": 1, "name": None},
        "unknown_schema: 300",
        "malformed: Expected a schema's id, but the value is too short for one",
        "malformed: Expected a schema's id, but the value is too short for one",
        "malformed: Expected a byte of 0 and a schema's id, got a byte of 123",
        "malformed: The schema 8 does not fit: `$.id` is `string`, which cannot be a column of type `int64`",
        "malformed: The value ends too early - at `$.old`",
        {"id": 1, "name": None},
    ]


def test_reader_record_is_chosen_among_topic_records() -> None:
    layout = avro((7, ORDER), (8, OTHER), reader=READER)
    why = "malformed: The schema 8 does not fit: `$` is `Order`, and the reader's is `Stock`"
    assert rows(layout, framed(8, b"\x02x"), OLD) == [why, {"id": 1, "name": None, "size": 5}]


def test_reader_record_is_chosen_from_a_union() -> None:
    """Read a topic of several kinds of events, whose one schema in the registry refers to theirs."""
    layout = avro((7, [OTHER, ORDER]), reader=READER)
    why = "malformed: It is a `Order` - at `$`"
    assert rows(layout, framed(7, b"\x00\x02x"), framed(7, b"\x02" + OLD[5:])) == [
        why,
        {"id": 1, "name": None, "size": 5},
    ]
    (refused,) = rows(avro((7, [OTHER, ORDER])), framed(7, b"\x00\x02x"))
    assert refused.startswith("malformed: The schema 7 does not fit: it is a union")


STOCK = b"\x08\x05\x12\x01n"


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b"\x02\x02" + STOCK, {"id": 5, "name": "n"}),  # [1]
        (b"\x04\x02\x00" + STOCK, {"id": 5, "name": "n"}),  # [1, 0]
        (b"\x02\x04" + STOCK, "malformed: The schema 9 does not fit: it has no message at [2]"),
        (b"\x01" + STOCK, "malformed: There are no such indexes of a message - at `$`"),
        (b"", "malformed: The value ends too early - at `$`"),
        (
            b"\x00\x0a\x01x",
            (
                "malformed: The schema 9 does not fit: "
                "`$.id` is `string`, which cannot be a column of type `int64`"
            ),
        ),
    ],
)
def test_which_message_it_is_stands_before_it(value: bytes, row: Any) -> None:
    assert rows(proto(9), framed(9, value)) == [row]


@pytest.mark.parametrize("reader", [True, False])
def test_named_message_is_the_only_one_read(reader: bool) -> None:
    layout = proto(9, 10, reader=reader, message="shop.Stock")
    values = [framed(10, b"\x02\x02" + STOCK), framed(9, b"\x00"), framed(9, b"\x02\x02" + STOCK)]
    why = "malformed: The schema 9 does not fit: it is a `shop.Order`, and not a `shop.Stock`"
    assert rows(layout, *values) == [{"id": 5, "name": "n"}, why, {"id": 5, "name": "n"}]


def test_key_with_a_schema_is_no_text() -> None:
    """Its bytes can be UTF-8, by chance."""
    key = framed(1, b"\x06abc")
    assert rows(avro((7, ORDER)), OLD, keys=[key]) == ["key_not_text"]
    by_columns = avro((7, ORDER), key=("id",))
    assert rows(by_columns, OLD, None, keys=[key, key]) == [{"id": 1, "name": None}, "key_not_text"]


@examples(100)
@given(st.lists(st.sampled_from([OLD, NEW, None]) | st.binary(max_size=12), max_size=12))
def test_no_record_touches_another(values: list[bytes | None]) -> None:
    layout = avro((7, ORDER), (300, TWO))
    assert rows(layout, *values) == [row for value in values for row in rows(layout, value)]
