"""Columns out of records' own keys: JSON, and Avro and Protobuf in Confluent's wire format."""

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
from tests.formats.test_writing import message_class
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.avro.schema import pin_avro
from tidegate.formats.protobuf.schema import pin_protobuf
from tidegate.formats.schemas import SourceSchemas, WriterSchema
from tidegate.kernel.keys import key_hashes

AVRO = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": "long"}, {"name": "store", "type": "string"}],
}
PROTO = 'syntax = "proto3"; package shop; message Key { string store = 1; int64 id = 2; }'
KEYS = pa.schema([("store", pa.string()), ("id", pa.int64())])
VALUES = pa.schema([("n", pa.int32())])
BOTH = pa.schema([*VALUES, *KEYS])


def layout(format_: Any, key: tuple[str, ...] = ("store", "id"), **more: Any) -> RecordLayout:
    pinned = {"avro": pin_avro(json.dumps(AVRO), {}), "protobuf": pin_protobuf(PROTO, {})}
    schemas = SourceSchemas()
    if format_ in pinned:
        schemas = SourceSchemas(None, (WriterSchema("t-key", 1, 7, pinned[format_]),))
    return RecordLayout(
        "json", VALUES, key, key_format=format_, key_columns=KEYS, key_schemas=schemas, **more
    )


def key_of(format_: str, store: str, number: int) -> bytes:
    row = {"store": store, "id": number}
    if format_ == "json":
        return json.dumps(row).encode()
    if format_ == "avro":
        return struct.pack(">bI", 0, 7) + written(AVRO, row)
    message: bytes = message_class(PROTO)(**row).SerializeToString()
    return struct.pack(">bIb", 0, 7, 0) + message


def decoded(layout: RecordLayout, keys: list[bytes | None], values: list[bytes | None]) -> pa.RecordBatch:
    count = len(keys)
    records = Records("t", 0, range(count), [7] * count, keys, values, [None] * count)
    (batch,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    batch.validate(full=True)
    return batch


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
FORMATS = ("json", "avro", "protobuf")


@examples(60)
@given(
    st.sampled_from(FORMATS),
    st.lists(st.tuples(TEXTS, st.integers(-(2**63), 2**63 - 1), st.none() | st.integers(0, 9)), max_size=5),
)
def test_key_equals_that_of_the_same_columns(
    format_: str, records: list[tuple[str, int, int | None]]
) -> None:
    keys: list[bytes | None] = [key_of(format_, store, number) for store, number, _ in records]
    values: list[bytes | None] = [None if n is None else json.dumps({"n": n}).encode() for *_, n in records]
    actual = decoded(layout(format_), keys, values)
    whole: list[bytes | None] = [
        json.dumps({"store": store, "id": number, "n": n}).encode() for store, number, n in records
    ]
    expected = decoded(RecordLayout("json", BOTH, ("store", "id")), [None] * len(keys), whole)
    assert actual.column("__reason").null_count == len(records)
    assert actual.column("__key") == expected.column("__key")
    assert actual.column("__hash") == key_hashes(expected.column("__key"))
    assert actual.column("__tombstone").to_pylist() == [n is None for *_, n in records]
    filled = [row for row in actual.select(BOTH.names).to_pylist() if row["n"] is not None]
    assert filled == [{"store": s, "id": i, "n": n} for s, i, n in records if n is not None]


VALUE = b'{"n":1}'


@pytest.mark.parametrize(
    ("format_", "key", "reason"),
    [
        ("json", b"{oops", "malformed_key: JSON is malformed"),
        ("json", b'{"store":"s","id":"1"}', "malformed_key: Expected `int"),
        ("avro", b"plain", "malformed_key: Expected a byte of 0 and a schema's id, got a byte of 112"),
        ("avro", struct.pack(">bI", 0, 9), "malformed_key: unknown_schema: 9"),
        ("avro", struct.pack(">bI", 0, 7) + b"\x02", "malformed_key: The value ends too early"),
        ("protobuf", struct.pack(">bIb", 0, 7, 0) + b"\x0a\x05a", "malformed_key: The value ends too early"),
        ("avro", None, "null_key_column"),
        ("json", b'{"store":"s"}', "null_key_column"),
    ],
)
def test_unreadable_key_quarantines_its_record_only(format_: str, key: bytes | None, reason: str) -> None:
    good = key_of(format_, "s", 1)
    rows = decoded(layout(format_), [good, key, good], [VALUE, VALUE, VALUE])
    first, bad, last = rows.column("__reason").to_pylist()
    assert (first, last) == (None, None)
    assert bad.startswith(reason)
    assert rows.select(BOTH.names).to_pylist()[1] == dict.fromkeys(BOTH.names)
    assert rows.column("__input")[1].as_py()["value"] == VALUE


def test_unreadable_tombstone_key_is_named() -> None:
    keys = [key_of("avro", "s", 1), b"plain", None]
    rows = decoded(layout("avro"), keys, [None, None, None])
    deletes, malformed, keyless = rows.column("__reason").to_pylist()
    assert (deletes, keyless) == (None, "tombstone_without_key")
    assert malformed.startswith("malformed_key: ")
    assert rows.column("__key").to_pylist()[0] == '{"store":"s","id":1}'


def test_unreadable_value_is_reported_before_its_key() -> None:
    (reason,) = decoded(layout("avro"), [b"plain"], [b"{"]).column("__reason").to_pylist()
    assert reason.startswith("malformed: ")


def test_exploded_elements_share_the_record_key() -> None:
    columns = pa.schema([("n", pa.list_(pa.int32()))])
    of_lists = RecordLayout("json", columns, ("id", "n"), explode="n", key_format="json", key_columns=KEYS)
    records = Records("t", 0, [0], [7], [key_of("json", "s", 1)], [b'{"n":[4,5]}'], [None])
    (rows,) = FrameDecoder(of_lists, None, keeps_input=False).decode(records)
    assert rows.column("__key").to_pylist() == ['{"id":1,"n":4}', '{"id":1,"n":5}']
