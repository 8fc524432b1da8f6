"""Events of CloudEvents 1.0: both modes, what is refused and why, and that what is written is read again."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats.cloudevents import CloudEventsDecoder, EventRecord, event_headers, event_texts
from tidegate.formats.frame import FrameDecoder
from tidegate.formats.metadata import Header
from tidegate.formats.records import RecordLayout, Records
from tidegate.kernel.json_text import json_texts

SCHEMA = pa.schema(
    [
        ("ce_type", pa.string()),
        ("id", pa.int64()),
        ("ce_time", pa.timestamp("us", "UTC")),
        ("ce_count", pa.int32()),
        ("ce_final", pa.bool_()),
    ]
)
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shop",
    "type": "order.changed",
    "time": "2026-01-31T10:30:00.5+01:00",
    "count": 3,
    "final": True,
    "data": {"id": 7, "more": [1]},
}
AT = datetime(2026, 1, 31, 9, 30, 0, 500_000, tzinfo=timezone.utc)
ROW = {"ce_type": "order.changed", "id": 7, "ce_time": AT, "ce_count": 3, "ce_final": True}
STRUCTURED = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)
BINARY: tuple[Header, ...] = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"e-1"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order.changed"),
    ("ce_time", b"2026-01-31T10:30:00.5+01:00"),
    ("ce_count", b"3"),
    ("ce_final", b"true"),
    ("content-type", b"application/json"),
)


def text(**changes: Any) -> bytes:
    return json.dumps(EVENT | changes).encode()


def headers(**changes: bytes | None) -> dict[str, bytes | None]:
    """The headers of binary mode; `_` stands for `-` in `content_type`."""
    changed = {name.replace("content_type", "content-type"): content for name, content in changes.items()}
    return {name: content for name, content in {**dict(BINARY), **changed}.items() if content is not None}


def decoded(value: bytes, own_headers: Any = ()) -> tuple[Any, dict[int, str]]:
    result = CloudEventsDecoder(SCHEMA).decode([EventRecord(value, dict(own_headers))])
    return result.columns.to_pylist()[0], dict(result.reasons)


@pytest.mark.parametrize("own_headers", [(), STRUCTURED, (("trace", b"1"),)], ids=str)
def test_structured_event_has_attributes_and_data(own_headers: Any) -> None:
    assert decoded(text(), own_headers) == (ROW, {})


@pytest.mark.parametrize(
    "content_type", [b"application/json", b"application/vnd.shop+json; v=1", b"text/json", None]
)
def test_binary_event_has_the_same_columns(content_type: bytes | None) -> None:
    assert decoded(b'{"id": 7}', headers(content_type=content_type)) == (ROW, {})


@pytest.mark.parametrize("data", [{}, {"data": None}])
def test_event_without_data_is_a_deletion(data: dict[str, None]) -> None:
    without = {name: value for name, value in EVENT.items() if name != "data"}
    assert decoded(json.dumps(without | data).encode()) == (None, {})
    assert decoded(b"", headers()) == (None, {})


def test_missing_attribute_is_null() -> None:
    row, reasons = decoded(text(time=None, count=None, final=None))
    assert (row, reasons) == (ROW | {"ce_time": None, "ce_count": None, "ce_final": None}, {})


REFUSED = [
    (text(specversion="0.3"), {}, "Expected the version 1.0 of CloudEvents, got '0.3' - at `$.specversion`"),
    (b'{"id": 7}', {}, "Expected the version 1.0 of CloudEvents, got nothing - at `$.specversion`"),
    (text(id=""), {}, "Expected a text that is not empty - at `$.id`"),
    (text(source=None), {}, "Expected a text that is not empty - at `$.source`"),
    (text(type=[1]), {}, "Expected a text, a number or a boolean - at `$.type`"),
    (text(data={"id": "7"}), {}, "Expected `int | null`, got `str` - at `$.data.id`"),
    (text(data="7"), {}, "Expected `object`, got `str` - at `$.data`"),
    (text(time="soon"), {}, "at `ce_time`"),
    (text(count="many"), {}, "Expected `int` - at `ce_count`"),
    (text(count=2**40), {}, "does not fit into `int` - at `ce_count`"),
    (text(data_base64="e30="), {}, "Expected JSON data, got `data_base64` - at `$`"),
    (b"[]", {}, "Expected `object`, got `array`"),
    (b"\xff", {}, "it is not UTF-8"),
    (b"{", {}, "Input data was truncated"),
    (b'{"id": 7}', headers(ce_specversion=b"2"), "got '2' - at `ce_specversion`"),
    (b'{"id": 7}', headers(ce_type=None), "Expected a text that is not empty - at `ce_type`"),
    (b'{"id": 7}', headers(ce_id=b"\xff"), "it is not UTF-8 - at `ce_id`"),
    (b"<a/>", headers(content_type=b"text/xml"), "Expected JSON data, got 'text/xml' - at `content-type`"),
    (b'{"id": "7"}', headers(), "Expected `int | null`, got `str` - at `$.id`"),
]


@pytest.mark.parametrize(("value", "own_headers", "reason"), REFUSED, ids=str)
def test_unusable_event_has_a_reason(value: bytes, own_headers: Any, reason: str) -> None:
    row, reasons = decoded(value, own_headers)
    assert row is None
    assert reasons[0].startswith("malformed: ")
    assert reason in reasons[0]


def test_neighbours_of_an_unusable_event_stay() -> None:
    values = [
        EventRecord(text(), {}),
        None,
        EventRecord(b"{", {}),
        EventRecord(b'{"id": 8}', headers()),
        EventRecord(text(id=""), {}),
    ]
    result = CloudEventsDecoder(SCHEMA).decode(values)
    assert [row and row["id"] for row in result.columns.to_pylist()] == [7, None, None, 8, None]
    assert sorted(result.reasons) == [2, 4]


def test_older_names_are_those_of_the_data() -> None:
    result = CloudEventsDecoder(SCHEMA, {"id": ("number",)}).decode(
        [EventRecord(text(data={"number": 9}), {})]
    )
    assert result.columns.to_pylist()[0]["id"] == 9


def test_attributes_alone_are_columns() -> None:
    schema = pa.schema([("ce_type", pa.string())])
    result = CloudEventsDecoder(schema).decode([EventRecord(text(), {}), EventRecord(b"[1]", headers())])
    assert result.columns.to_pylist() == [{"ce_type": "order.changed"}, None]


def test_time_of_an_event_can_be_the_timestamp() -> None:
    layout = RecordLayout("cloudevents", SCHEMA, key=("id",), timestamp="ce_time")
    records = Records("in", 0, [0, 1], [5, 6], [b"7", b"7"], [text(), b'{"id": 7}'], [None, BINARY])
    (rows,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    assert rows.column("__timestamp").to_pylist() == [int(AT.timestamp() * 1000)] * 2
    assert rows.column("__key").to_pylist() == ["7", "7"]


def test_deletion_finds_the_key_of_its_record() -> None:
    layout = RecordLayout("cloudevents", SCHEMA, key=("id",))
    values = [None, json.dumps({**EVENT, "data": None}).encode(), b""]
    records = Records("in", 0, [0, 1, 2], [5, 6, 7], [b"7"] * 3, values, [BINARY, None, BINARY])
    (rows,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    assert rows.column("__tombstone").to_pylist() == [True] * 3
    assert rows.column("__key").to_pylist() == ["7"] * 3
    assert rows.column("__reason").null_count == 3


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1)
INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(timezone.utc))
EVENTS = st.lists(st.tuples(TEXTS, TEXTS, INSTANTS, st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1)


@examples(60)
@given(EVENTS)
def test_written_events_are_read_again(drawn: list[tuple[str, str, datetime, int | None]]) -> None:
    # Python's own parser is the reference of the structured mode
    ids, types, times, numbers = (list(column) for column in zip(*drawn, strict=True))
    attributes = {
        "specversion": pa.array(["1.0"] * len(drawn)),
        "id": pa.array(ids, pa.string()),
        "source": pa.array(["/s"] * len(drawn)),
        "type": pa.array(types, pa.string()),
        "time": pa.array(times, pa.timestamp("us", "UTC")),
        "datacontenttype": pa.array([None if number is None else "application/json" for number in numbers]),
    }
    values = pa.array(
        [None if number is None else {"id": number} for number in numbers], pa.struct([("id", pa.int64())])
    )
    data = json_texts(values)
    structured = event_texts(attributes, data).to_pylist()
    for event, (id_, type_, time, number) in zip(map(json.loads, structured), drawn, strict=True):
        assert (event["id"], event["type"], event.get("data")) == (
            id_,
            type_,
            None if number is None else {"id": number},
        )
        assert datetime.fromisoformat(event["time"].replace("Z", "+00:00")) - time == timedelta(0)
        assert ("datacontenttype" in event) == (number is not None)
    columns = event_headers(attributes)
    binary = [
        EventRecord((text or "").encode(), {name: column[row].as_py() for name, column in columns.items()})
        for row, text in enumerate(data.to_pylist())
    ]
    expected = [
        None
        if number is None
        else {"ce_type": type_, "id": number, "ce_time": time, "ce_count": None, "ce_final": None}
        for _, type_, time, number in drawn
    ]
    for records in ([EventRecord(event.encode(), {}) for event in structured], binary):
        result = CloudEventsDecoder(SCHEMA).decode(records)
        assert (result.columns.to_pylist(), dict(result.reasons)) == (expected, {})
