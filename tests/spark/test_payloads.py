"""What the outbox has for messages: each format of the same emissions, and what cannot be written."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.formats.test_writing import message_class
from tidegate.errors import RecordTooLarge, SchemaRefused
from tidegate.formats.avro.write import avro_schema
from tidegate.formats.debezium import envelope_columns
from tidegate.formats.decoded import Reason
from tidegate.formats.protobuf.derived import protobuf_schema
from tidegate.formats.protobuf.schema import proto_schema, proto_to_json
from tidegate.formats.schemas import Payload, SinkSchema
from tidegate.spark.outbox import KeyColumns, Limits, MessageValues, OutboxFormat

KEYS = KeyColumns(pa.schema([("id", pa.int64())]))
VALUE = pa.struct([("n", pa.int64()), ("t", pa.list_(pa.string()))])


def emissions(*rows: tuple[str, Any, Any]) -> pa.RecordBatch:
    """Return emissions with a key, a value and the value before."""
    number = len(rows)
    columns = {
        "hash": pa.array(range(number), pa.int64()),
        "key": pa.array([key for key, _, _ in rows]),
        "ordinal": pa.array([0] * number, pa.int64()),
        "reason": pa.array(["changed"] * number),
        "value": pa.array([value for _, value, _ in rows], VALUE),
        "emitted": pa.array([before for _, _, before in rows], VALUE),
        "window_start": pa.nulls(number, pa.int64()),
        "window_end": pa.nulls(number, pa.int64()),
        "topic": pa.array(["in"] * number),
        "partition": pa.array([0] * number, pa.int32()),
        "offset": pa.array(range(number), pa.int64()),
        "timestamp": pa.array([5] * number, pa.int64()),
        "at": pa.array([6] * number, pa.int64()),
        "turn": pa.array(range(number), pa.int64()),
        "part": pa.array([0] * number, pa.int32()),
        "source": pa.nulls(number, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def values(
    format_: Any, with_key: bool = False, enveloped: bool = False, **types: pa.DataType
) -> MessageValues:
    names = ([("id", pa.int64())] if with_key else []) + list(types.items() or VALUE)
    columns = pa.schema(names) if format_ in ("avro", "protobuf") else None
    if columns is not None and enveloped:
        columns = envelope_columns(columns, {})
    text = protobuf_schema("out", "t", columns, {}) if format_ == "protobuf" else ""
    text = avro_schema("out", "t", columns) if format_ == "avro" else text
    schema = SinkSchema(258, text) if columns is not None else None
    payload = Payload(format_, with_key, format_ if schema else "", schema, enveloped)
    return MessageValues(payload, KEYS, False, "levels/2", "out", 7, columns)


def written(message_values: MessageValues, *rows: tuple[str, Any, Any]) -> list[Any]:
    outbox = OutboxFormat(KEYS, (message_values,), Limits({}), 7)
    rows_written, _ = outbox.rows(emissions(*rows))
    values: list[Any] = rows_written.column(message_values.payload.column).to_pylist()
    return values


CHANGE = ("1", {"n": 2, "t": None}, {"n": 1, "t": ["a"]})
DELETION = ("2", None, {"n": 1, "t": None})


def test_envelope_has_both_values_keys_and_source() -> None:
    change, deletion = map(
        json.loads, written(values("debezium", with_key=True, enveloped=True), CHANGE, DELETION)
    )
    source = {"connector": "tidegate", "name": "levels/2", "stage": "out", "batch": 7}
    source |= {"reason": "changed", "position": "in/0/0", "ts_ms": 5}
    assert change == {
        "op": "u",
        "before": {"id": 1, "n": 1, "t": ["a"]},
        "after": {"id": 1, "n": 2, "t": None},
        "source": source,
        "ts_ms": 6,
    }
    assert (deletion["op"], deletion["before"]["id"], deletion["after"]) == ("d", 2, None)
    (new,) = map(json.loads, written(values("debezium", enveloped=True), ("1", {"n": 1, "t": None}, None)))
    assert (new["op"], new["before"]) == ("c", None)


def test_schema_envelope_equals_the_json_one() -> None:
    rows = (CHANGE, DELETION, ("3", {"n": 1, "t": ["a"]}, None))
    envelopes = map(json.loads, written(values("debezium", with_key=True, enveloped=True), *rows))
    expected = [json.loads(json.dumps(envelope)) for envelope in envelopes]
    avro = values("avro", with_key=True, enveloped=True)
    assert avro.payload.schema is not None
    schema = fastavro.parse_schema(json.loads(avro.payload.schema.text))
    assert [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) for value in written(avro, *rows)
    ] == expected
    proto = values("protobuf", with_key=True, enveloped=True)
    assert proto.payload.schema is not None
    message = message_class(proto.payload.schema.text)
    read = [message.FromString(value[6:]) for value in written(proto, *rows)]
    assert [envelope.op for envelope in read] == ["u", "d", "c"]
    assert [(e.before.id, e.after.n, e.HasField("after")) for e in read] == [
        (1, 2, True),
        (2, 0, False),
        (0, 1, True),
    ]
    assert [(e.source.batch, e.source.reason, e.ts_ms) for e in read] == [(7, "changed", 6)] * 3


def test_value_by_a_schema_file_has_no_id() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "Out",
            "fields": [
                {"name": "t", "type": ["null", {"type": "array", "items": "string"}]},
                {"name": "kind", "type": "string", "default": "k"},
                {"name": "n", "type": "long"},
            ],
        }
    )
    made = values("avro")
    payload = replace(made.payload, schema=SinkSchema(None, text))
    of_file, nothing = written(replace(made, payload=payload), CHANGE, DELETION)
    assert (of_file, nothing) == (b"\x00\x02k\x04", None)
    compiled = proto_to_json(proto_schema(PROTO))
    made = values("protobuf")
    for id_, prefix in ((None, b""), (5, struct.pack(">bI", 0, 5) + b"\x02\x02")):
        schema = SinkSchema(id_, PROTO, (), compiled, "Out")
        of_proto = replace(made, payload=replace(made.payload, schema=schema))
        assert written(of_proto, CHANGE) == [prefix + b"\x48\x04"]


PROTO = (
    'syntax = "proto3"; message First { int32 a = 1; } message Out { repeated string t = 8; sint64 n = 9; }'
)


@pytest.mark.parametrize(
    ("format_", "expected"),
    [("json", '{"id":7}'), ("avro", b"\0\0\0\1\2\x02\x0e"), ("protobuf", b"\0\0\0\1\2\0\x08\x07")],
)
def test_key_of_a_deletion_is_written_in_format(format_: Any, expected: Any) -> None:
    key = values(format_, id=pa.int64())
    of_key = replace(key, payload=replace(key.payload, is_key=True))
    assert written(of_key, ("7", {"n": 2, "t": None}, None), ("7", None, None)) == [expected, expected]


def test_registered_value_begins_with_its_schema_id() -> None:
    avro, nothing = written(values("avro"), CHANGE, DELETION)
    assert (avro[:5], nothing) == (struct.pack(">bI", 0, 258), None)
    assert avro[5:] == b"\x02\x04\x00"  # n: 2, and null
    proto, nothing = written(values("protobuf", with_key=True), CHANGE, DELETION)
    assert (proto[:6], nothing) == (struct.pack(">bIb", 0, 258, 0), None)
    assert proto[6:] == b"\x08\x01\x10\x02"  # 1: 1, 2: 2


@pytest.mark.parametrize(
    ("format_", "types", "value", "says"),
    [
        ("avro", {"n": pa.int8(), "t": pa.list_(pa.string())}, {"n": 1000, "t": None}, "1000 not in range"),
        ("protobuf", {}, {"n": 1, "t": [None]}, "is null, and the schema has no null there"),
    ],
)
def test_value_unfit_for_the_schema_halts(
    format_: str, types: dict[str, pa.DataType], value: Any, says: str
) -> None:
    with pytest.raises(SchemaRefused, match=f"cannot be written as {format_}: .*{says}"):
        written(values(format_, **types), ("1", value, None))


def test_size_is_measured_on_the_sent_payload() -> None:
    small, large = values("json"), values("debezium", enveloped=True)
    rows = emissions(("1", {"n": 1, "t": ["x" * 600_000]}, {"n": 1, "t": ["y" * 600_000]}))
    for treatment, payload, refused in (
        ("halt", small, None),
        ("quarantine", large, str(Reason.TOO_LARGE)),
        ("quarantine", small, None),
    ):
        limits = Limits({treatment: frozenset({payload.payload.column})})
        _, reasons = OutboxFormat(KEYS, (small, large), limits, 7).rows(rows)
        assert reasons.to_pylist() == [refused]
    halting = Limits({"halt": frozenset({large.payload.column})})
    with pytest.raises(RecordTooLarge):
        OutboxFormat(KEYS, (large,), halting, 7).rows(rows)
