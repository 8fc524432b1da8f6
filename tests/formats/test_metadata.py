"""Metadata and headers of records as columns, where records are decoded."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.test_frame import body, decoded, layout, records, single_row
from tidegate.expressions import Expression
from tidegate.expressions.types import INT, STRING
from tidegate.formats import FrameDecoder
from tidegate.formats.metadata import METADATA, RecordMetadata
from tidegate.formats.records import SequenceParts
from tidegate.model.condition import compiled_expression

ALL = RecordMetadata({f"kafka_{name}": name for name in METADATA})
UTC = timezone.utc


def of_headers(**columns: tuple[str, pa.DataType]) -> RecordMetadata:
    return RecordMetadata(headers=columns)


def reasons(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row["__reason"] for row in rows]


def test_metadata_has_names_and_types_of_spark() -> None:
    headers = [("a", b"1"), ("b", None)]
    row = single_row(layout(metadata=ALL), headers=headers, timestamp=1001)
    assert {name: row[f"kafka_{name}"] for name in METADATA} == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 1000, UTC),
        "timestamp_type": "CreateTime",
        "key": "k",
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert [str(field.type) for field in ALL.schema] == [
        *("string", "int32", "int64", "timestamp[us, tz=UTC]", "string", "string"),
        "list<item: struct<key: string, value: binary>>",
    ]


def test_timestamp_type_is_that_of_the_record() -> None:
    typed = replace(records({}, {}, {}, {}), timestamp_types=[0, 1, 2, None])
    (rows,) = FrameDecoder(layout(metadata=ALL), None, False).decode(typed)
    assert rows.column("kafka_timestamp_type").to_pylist() == [
        *("NoTimestampType", "CreateTime", "LogAppendTime", None)
    ]


def test_missing_key_headers_and_timestamp_are_null() -> None:
    of_value = layout(metadata=ALL, key=("s",), timestamp="b")
    row = single_row(of_value, key=None, timestamp=-1, value=body(s="x", b=5))
    assert (row["kafka_key"], row["kafka_headers"], row["kafka_timestamp"]) == (None, None, None)
    assert row["__reason"] is None


def test_timestamp_beyond_the_calendar_is_null() -> None:
    row = single_row(layout(metadata=ALL, timestamp="b"), timestamp=2**62, value=body(b=5))
    assert (row["kafka_timestamp"], row["__reason"]) == (None, None)


def test_key_as_a_column_must_be_text() -> None:
    rows = decoded(
        layout(metadata=ALL, key=("s",)), {"key": b"\xff", "value": body(s="x")}, {"value": body(s="x")}
    )
    assert reasons(rows) == ["key_not_text", None]


def test_last_header_of_a_name_counts() -> None:
    metadata = of_headers(trace=("x-trace", pa.string()), raw=("x-trace", pa.binary()))
    headers = [("x-trace", b"1"), ("X-TRACE", b"3"), ("x-trace", b"2")]
    row = single_row(layout(metadata=metadata), headers=headers)
    assert (row["trace"], row["raw"]) == ("2", b"2")


@pytest.mark.parametrize("headers", [None, [], [("other", b"1")], [("h", b"1"), ("h", None)]])
def test_missing_header_is_null(headers: list[tuple[str, bytes | None]] | None) -> None:
    row = single_row(layout(metadata=of_headers(h=("h", pa.int32()))), headers=headers)
    assert (row["h"], row["__reason"]) == (None, None)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.int64(), b"-7", -7),
        (pa.float64(), b"1.5e3", 1500.0),
        (pa.bool_(), b"true", True),
        (pa.string(), b"", ""),
        (pa.timestamp("us", "UTC"), b"2026-01-31T10:30:00+01:00", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
    ],
)
def test_header_is_the_text_of_its_type(type_: pa.DataType, text: bytes, value: Any) -> None:
    row = single_row(layout(metadata=of_headers(h=("h", type_))), headers=[("h", text)])
    assert row["h"] == value


@pytest.mark.parametrize(
    ("text", "why"), [(b"x", "Expected `int`"), (b"", "Expected `int`"), (b"\xff", "UTF-8")]
)
def test_header_of_another_type_makes_the_record_unusable(text: bytes, why: str) -> None:
    metadata = of_headers(n_header=("x-n", pa.int32()))
    row = single_row(layout(metadata=metadata), headers=[("x-n", text)])
    assert row["__reason"].startswith("malformed_header: ")
    assert why in row["__reason"]
    assert row["__reason"].endswith("at `x-n`")
    assert row["__input"]["value"] == b"{}"


def test_unusable_value_has_no_metadata() -> None:
    row = single_row(layout(metadata=ALL), value=b"{")
    assert {row[f"kafka_{name}"] for name in METADATA if name != "headers"} == {None}


def test_tombstone_has_metadata_as_columns() -> None:
    row = single_row(layout(metadata=ALL), value=None)
    assert (row["__tombstone"], row["kafka_topic"], row["kafka_offset"], row["n"]) == (True, "t", 7, None)


@pytest.mark.parametrize(
    ("key", "own", "canonical"),
    [
        (("kafka_topic",), None, "t"),
        (("kafka_topic",), b"\xff", "t"),
        (("kafka_topic", "n"), b"5", '{"kafka_topic":"t","n":5}'),
        (("s", "kafka_partition"), b"5", '{"s":"5","kafka_partition":3}'),
        (("n", "s", "kafka_topic"), b'{"s":"x","n":5}', '{"n":5,"s":"x","kafka_topic":"t"}'),
        (("kafka_topic", "n"), b"five", None),
        (("kafka_topic", "n"), None, None),
    ],
)
def test_tombstone_with_metadata_in_its_key(key: tuple[str, ...], own: bytes | None, canonical: str) -> None:
    metadata = RecordMetadata({"kafka_topic": "topic", "kafka_partition": "partition"})
    row = single_row(layout(metadata=metadata, key=key), value=None, key=own)
    assert row["__key"] == canonical
    assert row["__reason"] == (None if canonical else "tombstone_without_key")


def test_value_and_tombstone_have_one_key() -> None:
    metadata = RecordMetadata({"kafka_topic": "topic"})
    rows = decoded(
        layout(metadata=metadata, key=("kafka_topic", "n")),
        {"value": body(n=5)},
        {"value": None, "key": b"5"},
    )
    assert rows[0]["__key"] == rows[1]["__key"]


def test_tombstone_has_the_time_of_its_header() -> None:
    timed = layout(metadata=of_headers(at=("at", pa.int64())), timestamp="at")
    rows = decoded(timed, {"value": None, "headers": [("at", b"500")]}, {"value": None})
    assert [row["__timestamp"] for row in rows] == [500, None]
    assert reasons(rows) == [None, "no_timestamp"]


def test_tombstone_has_the_sequence_of_its_metadata() -> None:
    ordered = layout(metadata=ALL, sequence=SequenceParts(columns=("kafka_offset",)))
    rows = decoded(ordered, {}, {"value": None})
    assert [row["__sequence"] for row in rows] == [f"{7:019}", f"{8:019}"]


def condition(text: str) -> Expression:
    expression = compiled_expression(text, {"kafka_topic": STRING, "kafka_partition": INT, "n": INT})
    assert expression is not None
    return expression


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("kafka_topic = 'other'", [True, True]),
        ("case when kafka_partition = 3 then false else true end", [True, True]),
        ("kafka_topic = 't'", [False, False]),
        ("kafka_topic = 'other' and n > 0", [True, False]),
        ("false", [True, False]),
    ],
)
def test_filter_of_metadata_alone_removes_deletions(text: str, removed: list[bool]) -> None:
    metadata = RecordMetadata({"kafka_topic": "topic", "kafka_partition": "partition"})
    rows = decoded(layout(metadata=metadata, filter=condition(text)), {"value": body(n=1)}, {"value": None})
    assert [row["__removed"] for row in rows] == removed


def test_unusable_header_is_not_removed_by_a_filter() -> None:
    metadata = RecordMetadata({"kafka_topic": "topic"}, {"h": ("h", pa.int32())})
    filtered = layout(metadata=metadata, filter=condition("kafka_topic = 'other'"))
    row = single_row(filtered, headers=[("h", b"x")])
    assert (row["__removed"], row["__reason"].partition(":")[0]) == (False, "malformed_header")


def test_elements_of_a_record_share_its_metadata() -> None:
    columns = pa.schema([("l", pa.list_(pa.int64()))])
    rows = decoded(layout(columns=columns, explode="l", metadata=ALL), {"value": body(l=[1, 2])})
    assert [(row["l"], row["kafka_offset"], row["kafka_topic"]) for row in rows] == [(1, 7, "t"), (2, 7, "t")]
