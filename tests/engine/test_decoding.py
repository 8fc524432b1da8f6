"""From Kafka records to columns, keys and reasons, in real Spark: what is used, what is not, and why."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.spec import Source, parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLOCK_MS = 1_700_000_000_000
DAY_MS = 86_400_000
JSON = {
    "topics": ["t"],
    "format": "json",
    "columns": "s string, n int, b bigint, d double, at timestamp, l array<int>",
}


def source(**fields: Any) -> Source:
    stage = {"name": "out", "emit": {"on": "update"}}
    return parse_case_pipeline(
        {"pipeline": "p", "source": {**JSON, **fields}, "stages": [stage]}, "test"
    ).source


def decoded(spark: SparkSession, of: Source, *records: dict[str, Any]) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812

    from tidegate.engine.source import RECORD_SCHEMA, decode

    rows = []
    for offset, record in enumerate(records):
        at = datetime.fromtimestamp(record.get("timestamp", 1000) / 1000, tz=timezone.utc)
        rows.append(
            {"key": b"k", "topic": "t", "partition": 0, "offset": offset, "headers": None}
            | record
            | {"timestamp": at}
        )
    frame = decode(spark.createDataFrame(rows, RECORD_SCHEMA), of, F.lit(CLOCK_MS + DAY_MS))
    return [row.asDict() for row in frame.orderBy("__offset").collect()]


def one(spark: SparkSession, of: Source, **record: Any) -> dict[str, Any]:
    return decoded(spark, of, record)[0]


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


MALFORMED = {
    "not JSON": b"{oops",
    "cut off": b'{"s": "x"',
    "empty": b"",
    "blanks": b"  ",
    "not UTF-8": b"\xff\xfe\x00",
    "a text that is not UTF-8": b'{"s": "\xff"}',
    "a name that is not UTF-8": b'{"s": "x", "\xc3": 1}',
    "UTF-16": '{"s": "x"}'.encode("utf-16"),
    "null": b"null",
    "a number": b"5",
    "a text": b'"x"',
    "an empty list": b"[]",
    "a list of objects": b'[{"s": "x"}]',
    "text for a number": body(n="five"),
    "a fraction for an integer": body(n=1.5),
    "a boolean for a number": body(n=True),
    "an int too large": body(n=2**31),
    "a bigint too large": body(b=2**63),
    "an object for a number": body(n={"x": 1}),
    "a text in a list of numbers": body(l=[1, "x"]),
    "a time without a date": body(at="10:30"),
    "more after the object": b'{"n": 1} and so on',
    "two objects": b'{"n": 1}\n{"n": 2}',
    "two objects with a comma": b'{"n": 1}, {"n": 2}',
    "single quotes": b"{'n': 1}",
    "NaN, which is not JSON": b'{"d": NaN}',
    "a number too large for an integer": b'{"b": 1e400}',
    "a number of 5000 digits": b'{"d": ' + b"9" * 5000 + b"}",
    "deep nesting of a field that is not declared": b'{"more": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    "deep nesting": b'{"s": ' + b"[" * 3000 + b"]" * 3000 + b"}",
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed(spark: SparkSession, value: bytes) -> None:
    row = one(spark, source(), value=value)
    assert row["__reason"] == "malformed"
    assert row["__input"]["value"] == value
    assert [row[name] for name in ("s", "n", "b", "d", "at", "l")] == [None] * 6


USED = {
    "all there": (
        body(s="x", n=1, b=2, d=0.5, l=[1, None]),
        {"s": "x", "n": 1, "b": 2, "d": 0.5, "l": [1, None]},
    ),
    "a missing field is null": (body(s="x"), {"s": "x", "n": None}),
    "an unknown field is ignored": (body(s="x", more=1), {"s": "x"}),
    "an explicit null": (body(s=None), {"s": None}),
    "a number for a text": (body(s=5), {"s": "5"}),
    "of a field given twice the last counts": (b'{"n": 1, "n": 2}', {"n": 2}),
    "a number beyond all bounds": (b'{"d": -1e400}', {"d": -math.inf}),
    "infinity as a text": (b'{"d": "Infinity"}', {"d": math.inf}),
    "blanks around": (b' {"n": 1}\r\n', {"n": 1}),
    "a huge value": (body(s="x" * 10_000_000), {"s": "x" * 10_000_000}),
    "a time with a zone": (body(at="2026-01-31T10:30:00+02:00"), {"at": datetime(2026, 1, 31, 8, 30)}),
    "a time without a zone is UTC": (
        body(at="2026-01-31 10:30:00.5"),
        {"at": datetime(2026, 1, 31, 10, 30, 0, 500_000)},
    ),
}


@pytest.mark.parametrize(("value", "columns"), USED.values(), ids=USED.keys())
def test_used(spark: SparkSession, value: bytes, columns: dict[str, Any]) -> None:
    row = one(spark, source(), value=value)
    assert row["__reason"] is None
    assert {name: row[name] for name in columns} == columns


def test_the_key_is_the_records_own_as_text(spark: SparkSession) -> None:
    assert one(spark, source(), key="clé".encode(), value=body())["__key"] == "clé"


NOT_TEXT = {
    "a long": (2**63 - 2).to_bytes(8, "big"),
    "Avro": b"\x00\x00\x00\x00\x07\xc8\x01",
    "cut": "é".encode()[:1],
}


@pytest.mark.parametrize("key", NOT_TEXT.values(), ids=NOT_TEXT.keys())
@pytest.mark.parametrize("value", [body(s="x"), None], ids=["a value", "a tombstone"])
def test_a_key_that_is_not_text_is_quarantined_whole(spark: SparkSession, key: bytes, value: Any) -> None:
    row = one(spark, source(), key=key, value=value)
    assert (row["__reason"], bytes(row["__input"]["key"])) == ("key_not_text", key)


def test_where_the_key_comes_from_columns_only_a_tombstones_own_key_has_to_be_text(
    spark: SparkSession,
) -> None:
    key = NOT_TEXT["a long"]
    for columns in (["s"], ["n", "s"]):
        rows = decoded(
            spark, source(key=columns), {"key": key, "value": body(s="x", n=1)}, {"key": key, "value": None}
        )
        assert [row["__reason"] for row in rows] == [None, "key_not_text"]


def test_a_chain_that_is_not_text_is_quarantined_whatever_the_records_are_deduplicated_by(
    spark: SparkSession,
) -> None:
    headers = [("tidegate-source", b"a/0/1;\xff")]
    for way in ("offset", "root"):
        row = one(spark, source(deduplicate=way), value=body(), headers=headers)
        assert row["__reason"] == "malformed_source_chain"
    assert one(spark, source(), value=body(), headers=[("other", b"\xff")])["__reason"] is None


def test_keys_of_several_columns_tell_microseconds_apart(spark: SparkSession) -> None:
    rows = decoded(
        spark,
        source(key=["s", "at"]),
        {"value": body(s="x", at="2026-01-31T10:30:00.000001Z")},
        {"value": body(s="x", at="2026-01-31T10:30:00.000002Z")},
        {"key": b'{"s":"x","at":"2026-01-31T10:30:00.000002Z"}', "value": None},
        {"key": b'{"s":"x","at":"10:30"}', "value": None},
    )
    first, second, deletion, undated = (row["__key"] for row in rows)
    assert first == '{"s":"x","at":"2026-01-31T10:30:00.000001Z"}'
    assert (second != first, deletion, undated) == (True, second, None)


def test_a_null_key_is_quarantined_unless_the_key_comes_from_columns(spark: SparkSession) -> None:
    assert one(spark, source(), key=None, value=body(s="x"))["__reason"] == "null_key"
    row = one(spark, source(key=["s"]), key=None, value=body(s="x"))
    assert (row["__key"], row["__reason"]) == ("x", None)


def test_several_key_columns_make_a_json_object_in_declared_order(spark: SparkSession) -> None:
    assert one(spark, source(key=["n", "s"]), value=body(s='q"', n=1))["__key"] == '{"n":1,"s":"q\\""}'


def test_a_null_in_a_key_column_is_quarantined(spark: SparkSession) -> None:
    assert one(spark, source(key=["n", "s"]), value=body(s="x"))["__reason"] == "null_key_column"


def test_a_tombstones_key_columns_come_from_its_own_key(spark: SparkSession) -> None:
    of = source(key=["n", "s"])
    rows = decoded(
        spark,
        of,
        {"key": b'{"s": "x", "n": 1}', "value": None},
        {"key": b"x", "value": None},
        {"key": b'{"n": 1}', "value": None},
        {"key": None, "value": None},
    )
    assert [(row["__key"], row["__reason"]) for row in rows] == [
        ('{"n":1,"s":"x"}', None),
        (None, "tombstone_without_key"),
        (None, "tombstone_without_key"),
        (None, "tombstone_without_key"),
    ]


def test_timestamps_more_than_a_day_past_the_clock_or_before_1970_are_quarantined(
    spark: SparkSession,
) -> None:
    rows = decoded(
        spark,
        source(),
        *(
            {"value": body(), "timestamp": each}
            for each in (CLOCK_MS + DAY_MS, CLOCK_MS + DAY_MS + 1, 0, -1000)
        ),
    )
    assert [row["__reason"] for row in rows] == [None, "future_timestamp", None, "negative_timestamp"]


def test_the_timestamp_can_be_a_column(spark: SparkSession) -> None:
    assert one(spark, source(timestamp="b"), value=body(b=77))["__timestamp"] == 77
    assert one(spark, source(timestamp="at"), value=body(at="1970-01-01T00:00:01Z"))["__timestamp"] == 1000
    assert one(spark, source(timestamp="b"), value=body())["__reason"] == "no_timestamp"
    assert one(spark, source(timestamp="b"), value=None)["__timestamp"] == 1000


def test_string_and_bytes_have_the_one_column_value(spark: SparkSession) -> None:
    of_text = source(format="string", columns=None)
    assert one(spark, of_text, value="é".encode())["value"] == "é"
    assert one(spark, source(format="bytes", columns=None), value=b"\xff")["value"] == b"\xff"
    assert one(spark, of_text, value=None)["__tombstone"] is True
    assert one(spark, of_text, value=b"\xff")["__reason"] == "malformed"


def test_the_chain_is_the_newest_of_its_headers(spark: SparkSession) -> None:
    headers = [("tidegate-source", b"a/0/1"), ("other", b"x"), ("tidegate-source", b"b/0/2;c/1/3")]
    assert one(spark, source(), value=body(), headers=headers)["__chain"] == "b/0/2;c/1/3"
    assert one(spark, source(), value=body(), headers=[("other", b"x")])["__chain"] is None


def test_an_expression_that_spark_calls_nondeterministic_is_refused(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from tidegate.engine.rows import require_deterministic
    from tidegate.errors import PipelineInvalid

    with pytest.raises(PipelineInvalid, match="deterministic"):
        require_deterministic(spark.range(1).select(F.rand()), "p")
