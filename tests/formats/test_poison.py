"""Records that made decoders fail: legal ones are decoded, all others are quarantined alone."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats import frame as frames
from tidegate.formats.avro import AvroDecoder
from tidegate.formats.avro.schema import avro_columns, parse_avro
from tidegate.formats.csv import Csv, CsvDecoder
from tidegate.formats.decoded import Decoded, WatchedDecoder
from tidegate.formats.json import JsonDecoder
from tidegate.formats.json.checks import JsonSchemaDecoder
from tidegate.formats.json.schema import parse_json_schema
from tidegate.formats.registry import Format
from tidegate.formats.schemas import SchemaFault

ID = pa.schema([("id", pa.int64())])


class FailsOnPoison:
    """Raises on b"poison", and counts what it decodes."""

    schema = ID

    def __init__(self) -> None:
        self.decoded = 0

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        self.decoded += len(values)
        if b"poison" in values:
            raise ZeroDivisionError
        return JsonDecoder(ID).decode(values)


def usable(number: int) -> bytes:
    return b'{"id": %d}' % number


def test_an_unknown_failure_costs_one_record() -> None:
    values = [usable(0), b"poison", None, b"{", usable(4)]
    decoded = WatchedDecoder(FailsOnPoison()).decode(values)
    assert decoded.columns.to_pylist() == [{"id": 0}, None, None, None, {"id": 4}]
    assert decoded.reasons == {
        1: "malformed: ZeroDivisionError while it was decoded",
        3: "malformed: Input data was truncated",
    }


def test_one_poison_is_found_in_bounded_work() -> None:
    decoder = FailsOnPoison()
    WatchedDecoder(decoder).decode([*map(usable, range(1023)), b"poison"])
    assert decoder.decoded <= 3 * 1024 + 1  # each half once more


def test_missing_memory_is_not_a_fault_of_records() -> None:
    class WithoutMemory(FailsOnPoison):
        def decode(self, values: Sequence[bytes | None]) -> Decoded:
            raise MemoryError

    with pytest.raises(MemoryError):
        WatchedDecoder(WithoutMemory()).decode([b"{}", b"{}"])


def test_every_source_has_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned = Format("json", lambda _: FailsOnPoison())
    monkeypatch.setattr(frames, "formats", lambda: {"json": poisoned})
    records = Records("t", 0, range(2), [1, 1], [b"k", b"k"], [b"poison", usable(1)], [None, None])
    (rows,) = FrameDecoder(RecordLayout("json", ID), None, keeps_input=False).decode(records)
    assert rows.column("__reason").to_pylist() == ["malformed: ZeroDivisionError while it was decoded", None]


def test_open_brackets_cost_one_record() -> None:
    values = [b'{"x":' + b"[" * 990, usable(1)]
    decoded = JsonDecoder(ID).decode(values)
    assert decoded.reasons == {0: "malformed: it is nested more than 500 deep"}
    assert decoded.columns.to_pylist() == [None, {"id": 1}]


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_escapes_are_read_once(size: int) -> None:
    value = b"{" + rb"\"[[" * size
    assert list(JsonDecoder(ID).decode([value]).reasons) == [0]


def test_date_of_year_0_costs_one_record() -> None:
    decoder = CsvDecoder(pa.schema([("day", pa.date32())]), Csv())
    values = [b"0000-01-01", b"2026-02-30", b"2026-01-31", b"0000-02-31"]
    decoded = decoder.decode(values)
    assert decoded.columns.to_pylist() == [None, None, {"day": date(2026, 1, 31)}, None]
    assert decoded.reasons == dict.fromkeys(
        (0, 1, 3), "malformed: A value does not fit into `date` - at `day`"
    )


@pytest.mark.parametrize(
    "more", [{}, {"patternProperties": {"^p": {"type": "number"}}}], ids=["ours", "library"]
)
def test_prices_are_multiples_of_a_cent(more: dict[str, Any]) -> None:
    schema = parse_json_schema(json.dumps({"properties": {"price": {"multipleOf": 0.01}}, **more}), {})
    decoder = JsonSchemaDecoder(ID, schema)
    prices = [b'{"price": %d.%02d}' % divmod(price, 100) for price in range(10_000)]
    assert decoder.decode(prices).reasons == {}
    assert list(decoder.decode([b'{"price": 1.005}', b'{"price": ' + b"9" * 310 + b"}"]).reasons) == [0]


NODE = {
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}
}


@pytest.mark.parametrize(
    "more", [{}, {"patternProperties": {"^x": {"type": "string"}}}], ids=["ours", "library"]
)
def test_deep_values_are_held_against_schemas(more: dict[str, Any]) -> None:
    tree = {"properties": {"tree": {"$ref": "#/$defs/node"}}, "$defs": {"node": {**NODE, **more}}}
    decoder = JsonSchemaDecoder(ID, parse_json_schema(json.dumps(tree), {}))
    values = [
        b'{"id": 1, "tree": ' + b'{"next": ' * 97 + last + b"}" * 98 for last in (b"null", b'{"v": "x"}')
    ]
    assert list(decoder.decode(values).reasons) == [1]


def test_deep_unread_avro_is_skipped() -> None:
    kids = ["null", {"type": "array", "items": ["null", {"type": "map", "values": "Node"}]}]
    fields = [{"name": "id", "type": "long"}, {"name": "kids", "type": kids}]
    schema = {"type": "record", "name": "Node", "fields": fields}
    value: dict[str, Any] = {"id": 0, "kids": None}
    for number in range(30):
        value = {"id": number, "kids": [{"k": value}]}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, json.loads(json.dumps(schema)), value)
    decoded = AvroDecoder(ID, parse_avro(json.dumps(schema))).decode([written.getvalue()])
    assert (decoded.columns.to_pylist(), decoded.reasons) == ([{"id": 29}], {})


def avro(*fields: dict[str, Any]) -> Any:
    return parse_avro(json.dumps({"type": "record", "name": "R", "fields": fields}))


def test_an_alias_takes_a_field_from_its_namesake() -> None:
    writer = avro({"name": "b", "type": "int"})
    reader = avro({"name": "a", "type": "int", "aliases": ["b"]}, {"name": "b", "type": "int", "default": 7})
    decoded = AvroDecoder(avro_columns(reader), writer, reader).decode([b"\x0a"])
    assert decoded.columns.to_pylist() == [{"a": 5, "b": 7}]


def timed(logical: str, kind: str = "long") -> Any:
    return avro({"name": "t", "type": {"type": kind, "logicalType": logical}})


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        ("timestamp-millis", "timestamp-micros", 1_769_855_400_000),
        ("timestamp-micros", "timestamp-millis", 1_769_855_400_000_000),
    ],
)
def test_units_of_avro_times_are_converted(writer: str, reader: str, value: int) -> None:
    written = io.BytesIO()
    fastavro.schemaless_writer(
        written, {"type": "record", "name": "R", "fields": [{"name": "t", "type": "long"}]}, {"t": value}
    )
    decoder = AvroDecoder(avro_columns(timed(reader)), timed(writer), timed(reader))
    instant = datetime(2026, 1, 31, 10, 30, tzinfo=timezone.utc)
    assert decoder.decode([written.getvalue()]).columns.to_pylist() == [{"t": instant}]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (timed("timestamp-millis"), timed("local-timestamp-millis")),
        (timed("date", "int"), timed("timestamp-millis")),
        (timed("time-micros"), timed("timestamp-micros")),
    ],
)
def test_other_logical_types_of_avro_are_refused(writer: Any, reader: Any) -> None:
    with pytest.raises(SchemaFault, match=r"`\$\.t` is `"):
        AvroDecoder(avro_columns(reader), writer, reader)
