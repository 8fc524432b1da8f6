"""What each writer makes of drawn emissions: alone as in any block, and as a second library reads it."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from tests.formats.proto_messages import plain as plain_message
from tests.fuzz import schemas
from tests.fuzz.test_blocks import COUNT, FIRST
from tidegate.formats.avro.write import avro_schema
from tidegate.formats.debezium import envelope_columns
from tidegate.formats.protobuf.derived import protobuf_schema
from tidegate.formats.registry import Format, names_of_formats
from tidegate.formats.schemas import Payload, SinkSchema
from tidegate.spark.outbox import KeyColumns, MessageValues, hops

KEYS = KeyColumns(pa.schema([("id", pa.int64())]))
WINDOW = {"window_start": pa.int64(), "window_end": pa.int64()}
LETTERS = "abcdef"
NAMESPACE = "tidegate.fuzzed"
_INSTANTS = (datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 31, 8, 0, 0, 123), datetime.max)
SCALARS: dict[pa.DataType, tuple[Any, ...]] = {
    pa.bool_(): (True, False),
    pa.int8(): schemas.integers(8),
    pa.int16(): schemas.integers(16),
    pa.int32(): schemas.integers(32),
    pa.int64(): schemas.integers(64),
    pa.float32(): schemas.FLOATS,
    pa.float64(): schemas.DOUBLES,
    pa.string(): schemas.TEXTS,
    pa.binary(): schemas.BYTES,
    pa.decimal128(10, 2): tuple(map(Decimal, ("0.00", "-0.01", "99999999.99", "-99999999.99"))),
    pa.decimal128(38, 0): (Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)),
    pa.decimal128(38, 38): (Decimal("0." + "9" * 38), Decimal("1e-38")),
    pa.date32(): (date.min, date(1970, 1, 1), date(2026, 1, 31), date.max),
    pa.timestamp("us", "UTC"): tuple(at.replace(tzinfo=timezone.utc) for at in _INSTANTS),
    pa.timestamp("us"): _INSTANTS,
}
Read = Callable[[Any], Any]
"""Reads a message's value, by a library that is not tidegate's, in Python's own types."""


def drawn_type(dice: random.Random, depth: int = 2, in_list: bool = False) -> pa.DataType:
    """Return a type. Protobuf has no lists or maps in lists."""
    nested = ("struct",) if in_list else ("struct", "list", "map")
    kind = dice.choice(("scalar", "scalar", "scalar", *(nested if depth else ())))
    if kind == "scalar":
        return dice.choice(list(SCALARS))
    if kind == "struct":
        return pa.struct([(name, drawn_type(dice, depth - 1)) for name in "xy"])
    inner = drawn_type(dice, depth - 1, in_list=True)
    return pa.list_(inner) if kind == "list" else pa.map_(pa.string(), inner)


def drawn_value(dice: random.Random, type_: pa.DataType, nullable: bool = True) -> Any:
    """Return a value. Protobuf has no nulls in lists and maps."""
    if nullable and dice.random() < 0.15:
        return None
    if pa.types.is_struct(type_):
        return {field.name: drawn_value(dice, field.type) for field in type_}
    if pa.types.is_map(type_):
        keys = dice.sample(schemas.TEXTS, dice.randint(0, 2))
        return [(key, drawn_value(dice, type_.item_type, nullable=False)) for key in keys]
    if pa.types.is_list(type_):
        return [drawn_value(dice, type_.value_type, nullable=False) for _ in range(dice.randint(0, 3))]
    return dice.choice(SCALARS[type_])


@dataclass(frozen=True)
class Drawn:
    """Emissions of one stage. `value` is the type of its values."""

    value: pa.StructType
    rows: pa.RecordBatch

    @classmethod
    def draw(cls, dice: random.Random) -> Drawn:
        columns = [(name, drawn_type(dice)) for name in LETTERS[: dice.randint(1, 6)]]
        value = pa.struct(columns)
        fields = {
            "key": pa.string(),
            "reason": pa.string(),
            "value": value,
            "emitted": value,
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.int64(),
            "at": pa.int64(),
            "source": pa.string(),
            **WINDOW,
        }
        rows = [cls._row(dice, value) for _ in range(dice.randint(2, 8))]
        return cls(value, pa.RecordBatch.from_pylist(rows, pa.schema(list(fields.items()))))

    @staticmethod
    def _row(dice: random.Random, value: pa.DataType) -> dict[str, Any]:
        numbers = schemas.integers(64)
        return {
            "key": str(dice.choice(numbers)),
            "reason": dice.choice(("new", "changed")),
            "value": drawn_value(dice, value),
            "emitted": drawn_value(dice, value),
            "topic": "in",
            "partition": dice.choice((0, 7)),
            "offset": dice.choice((0, 2**63 - 1)),
            "timestamp": dice.choice((0, 2**47)),
            "at": dice.choice((0, 2**47)),
            "source": dice.choice((None, "old/0/1")),
            "window_start": dice.choice((0, 2**47)),
            "window_end": 2**47 + 1,
        }


def written(values: MessageValues, rows: pa.RecordBatch) -> list[Any]:
    """Return the values of the messages of these emissions."""
    return values.encoded(rows, KEYS.parsed(rows.column("key")), hops(rows)).to_pylist()


def message_values(drawn: Drawn, payload: Payload) -> tuple[MessageValues, Read]:
    """Return the writer, and what reads its messages."""
    columns = _columns(drawn.value, payload)
    schema, read = _schema(payload.format, columns)
    payload = Payload(
        payload.format, payload.with_key, "fuzzed", schema, payload.enveloped, is_key=payload.is_key
    )
    with_schema = None if schema is None else columns
    return MessageValues(payload, KEYS, True, "fuzzed/1", "out", 7, with_schema), read


def _columns(value: pa.StructType, payload: Payload) -> pa.Schema:
    if payload.is_key:
        return KEYS.schema
    columns = {field.name: field.type for field in value}
    if payload.with_key:
        columns = {field.name: field.type for field in KEYS.schema} | WINDOW | columns
    schema = pa.schema(list(columns.items()))
    return envelope_columns(schema, WINDOW) if payload.enveloped else schema


def _schema(format_: str, columns: pa.Schema) -> tuple[SinkSchema | None, Read]:
    if format_ == "avro":
        text = avro_schema("out", NAMESPACE, columns)
        avro = fastavro.parse_schema(json.loads(text))
        return SinkSchema(None, text), lambda data: fastavro.schemaless_reader(io.BytesIO(data), avro, None)
    if format_ == "protobuf":
        text = protobuf_schema("out", NAMESPACE, columns, {})
        message = schemas.message_class(text, f"{NAMESPACE}.out")
        return SinkSchema(None, text), lambda data: plain_message(message.FromString(data))
    return None, lambda data: json.loads(data, parse_float=Decimal)


def expected(payload: Payload, row: Mapping[str, Any]) -> Any:
    """Return what a message says, built in Python's own types."""
    if payload.is_key:
        return {"id": int(row["key"])}
    value = _with_key(payload, row, row["value"])
    if not payload.enveloped:
        return value
    before = _with_key(payload, row, row["emitted"])
    hop = f"{row['topic']}/{row['partition']}/{row['offset']}"
    source = {
        "connector": "tidegate",
        "name": "fuzzed/1",
        "stage": "out",
        "batch": 7,
        "reason": row["reason"],
        "position": hop if row["source"] is None else f"{row['source']};{hop}",
        "ts_ms": row["timestamp"],
        **{name: row[name] for name in WINDOW},
    }
    kind = "d" if value is None else "c" if before is None else "u"
    return {"op": kind, "before": before, "after": value, "source": source, "ts_ms": row["at"]}


def _with_key(payload: Payload, row: Mapping[str, Any], value: Any) -> Any:
    if value is None or not payload.with_key:
        return value
    return {"id": int(row["key"]), **{name: row[name] for name in WINDOW}, **value}


def alike(actual: Any, expected_value: Any) -> bool:
    """Return whether a library has read what was emitted. For Protobuf an empty list is as none."""
    if expected_value is None:
        return actual is None or actual in ([], {})
    if isinstance(expected_value, list) and expected_value and isinstance(expected_value[0], tuple):
        expected_value = dict(expected_value)
    if isinstance(expected_value, list):
        return len(actual) == len(expected_value) and all(map(alike, actual, expected_value))
    if isinstance(expected_value, Mapping):
        return actual.keys() == expected_value.keys() and all(
            alike(actual[name], expected_value[name]) for name in expected_value
        )
    if isinstance(expected_value, float):
        return _is_number(actual, expected_value)
    if isinstance(expected_value, Decimal):
        return Decimal(actual) == expected_value
    return type(actual) in (type(expected_value), str, datetime) and actual in _forms(expected_value)


def _is_number(actual: Any, expected_value: float) -> bool:
    """JSON has texts for what is no number. A float is written with the digits that single it out."""
    number = struct.unpack("<d", actual)[0] if isinstance(actual, bytes) else float(actual)
    if math.isnan(expected_value):
        return math.isnan(number)
    is_same = number == expected_value or float(np.float32(number)) == expected_value
    return is_same and math.copysign(1, number) == math.copysign(1, expected_value)


def _forms(expected_value: Any) -> list[Any]:
    """Return the value, and its texts in formats that have no type for it."""
    if isinstance(expected_value, bytes):
        return [expected_value, base64.b64encode(expected_value).decode()]
    if isinstance(expected_value, datetime):
        naive = expected_value.replace(tzinfo=None)
        text = naive.isoformat(timespec="microseconds")
        return [expected_value, naive, f"{text}Z"] if expected_value.tzinfo else [expected_value, text]
    return (
        [expected_value, expected_value.isoformat()] if isinstance(expected_value, date) else [expected_value]
    )


def _takes_drawn(format_: Format) -> bool:
    """Return whether a format takes columns of all types, and is written when a batch is computed; others are
    tested in `formats/` alone.
    """
    return format_.is_sent and not format_.is_flat and format_.data is None


KEY_PAYLOADS = [
    Payload(name, is_key=True)
    for name in names_of_formats(lambda format_: _takes_drawn(format_) and format_.key_decoder)
]
VALUE_PAYLOADS = [
    Payload(format_, with_key, enveloped=enveloped)
    for format_ in names_of_formats(_takes_drawn)
    for with_key in (False, True)
    for enveloped in ((True,) if format_ == "debezium" else (False,) if format_ == "json" else (False, True))
]


@pytest.mark.heavy
@pytest.mark.parametrize("payload", [*VALUE_PAYLOADS, *KEY_PAYLOADS], ids=lambda payload: payload.column)
def test_message_is_the_same_alone_and_elsewhere(payload: Payload) -> None:
    for seed in range(FIRST, FIRST + max(3, COUNT // 100)):
        drawn = Drawn.draw(random.Random(seed))
        values, read = message_values(drawn, payload)
        messages = written(values, drawn.rows)
        alone = [written(values, drawn.rows.slice(row, 1)) for row in range(drawn.rows.num_rows)]
        assert messages == [message for (message,) in alone], seed
        for message, row in zip(messages, drawn.rows.to_pylist(), strict=True):
            expected_row = expected(payload, row)
            assert (message is None) == (expected_row is None), seed
            assert message is None or alike(read(message), expected_row), (seed, read(message), expected_row)
