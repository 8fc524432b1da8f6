"""What a row of the table is made of: types, names, keys, and what cannot be held."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, inspect, make_url

from tests.sinks.sql.sink import Sink, emission
from tidegate.errors import SinkRefused
from tidegate.kernel.json_text import encoder
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.schema import check_emissions

SCALARS = pa.struct(
    [
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("ratio", pa.float64()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(30, 12)),
    ]
)
ONE_OF_EACH: dict[str, Any] = {
    "flag": True,
    "small": -1,
    "big": 2**63 - 1,
    "ratio": 0.1,
    "name": "Zoë 'quoted' % :x",
    "raw": b"\x00\xff",
    "moment": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc),
    "local": datetime(2026, 1, 2, 3, 4, 5),
    "day": date(2026, 1, 2),
    "price": Decimal("123456789012345678.000000000001"),
}


def test_scalars_are_stored_as_what_they_are(url: str) -> None:
    sink = Sink(url, value=SCALARS)
    sink.publish(1, [emission("k", ONE_OF_EACH), emission("k", dict.fromkeys(ONE_OF_EACH))])
    first, second = sink.rows()
    assert {name: second[name] for name in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH)
    if url.startswith("sqlite"):
        text = {"flag": 1, "moment": "2026-01-02 03:04:05.678901", "local": "2026-01-02 03:04:05.000000"}
        expected = ONE_OF_EACH | text | {"day": "2026-01-02", "price": str(ONE_OF_EACH["price"])}
        assert {name: first[name] for name in ONE_OF_EACH} == expected
    elif url.startswith("mysql"):  # no time zone: the type has none, and the values are in UTC
        expected = ONE_OF_EACH | {"flag": 1, "moment": ONE_OF_EACH["moment"].replace(tzinfo=None)}
        assert {name: first[name] for name in ONE_OF_EACH} == expected
    else:
        assert {name: first[name] for name in ONE_OF_EACH} == ONE_OF_EACH


def test_column_types_are_those_of_postgresql(postgres_url: str) -> None:
    sink = Sink(postgres_url, value=SCALARS)
    sink.publish(1, [emission("k", ONE_OF_EACH)])
    columns = inspect(create_engine(postgres_url)).get_columns(sink.table)
    assert {column["name"]: str(column["type"]) for column in columns} == {
        "key": "TEXT",
        "flag": "BOOLEAN",
        "small": "INTEGER",
        "big": "BIGINT",
        "ratio": "DOUBLE PRECISION",
        "name": "TEXT",
        "raw": "BYTEA",
        "moment": "TIMESTAMP",
        "local": "TIMESTAMP",
        "day": "DATE",
        "price": "NUMERIC(30, 12)",
        "emitted_timestamp": "TIMESTAMP",
        "source": "TEXT",
        "stream": "TEXT",
        "batch": "BIGINT",
        "ordinal": "BIGINT",
        "deleted": "BOOLEAN",
    }


def test_an_emission_carries_where_it_comes_from(url: str) -> None:
    sink = Sink(url, with_key=True)
    sink.publish(7, [emission("ab", 1, at=5), emission("ab", None, at=6)])
    common = {"key": "ab", "customerId": 2, "stream": "visitors/1", "batch": 7}
    assert sink.rows() == [
        common | {"n": 1, "emitted_timestamp": 5, "source": "events/0/5", "ordinal": 0, "deleted": False},
        common | {"n": None, "emitted_timestamp": 6, "source": "events/0/6", "ordinal": 1, "deleted": True},
    ]


def test_only_windowed_stages_have_window_columns(url: str) -> None:
    plain, windowed = Sink(url), Sink(url, table="per_window", windowed=True, shard="other")
    plain.publish(1, [emission("k", 1)])
    windowed.publish(1, [emission("k", 1, window=20)])
    assert "window_start" not in plain.rows()[0]
    assert (windowed.rows()[0]["window_start"], windowed.rows()[0]["window_end"]) == (20, 30)


def test_nested_values_are_json(url: str) -> None:
    event = pa.struct([("visitorId", pa.int64()), ("action", pa.string())])
    sink = Sink(url, value=pa.struct([("events", pa.list_(event))]))
    sink.publish(1, [emission("k", {"events": [{"visitorId": 1, "action": 'a"ë'}, {"visitorId": None}]})])
    stored = sink.rows()[0]["events"]
    events = json.loads(stored) if isinstance(stored, str) else stored  # some drivers parse it
    assert events == [{"visitorId": 1, "action": 'a"ë'}, {"visitorId": None, "action": None}]


def test_json_text_is_exact_and_legal() -> None:
    type_ = pa.struct(
        [
            ("d", pa.decimal128(30, 10)),
            ("f", pa.list_(pa.float64())),
            ("s", pa.float32()),
            ("m", pa.map_(pa.int32(), pa.bool_())),
            ("t", pa.timestamp("us", tz="UTC")),
            ("b", pa.binary()),
        ]
    )
    value = pa.array(
        [
            {
                "d": Decimal("12345678901234567890.0000000001"),
                "f": [float("nan"), float("-inf"), 0.1],
                "s": 0.1,
                "m": [(1, True), (2, None)],
                "t": datetime(2026, 1, 2, tzinfo=timezone.utc),
                "b": b"\x00\x01",
            }
        ],
        type_,
    ).to_pylist()[0]
    text = encoder(type_)(value)
    assert text == (
        '{"d":12345678901234567890.0000000001,"f":["NaN","-Infinity",0.1],"s":0.1,'
        '"m":{"1":true,"2":null},"t":"2026-01-02T00:00:00.000000Z","b":"AAE="}'
    )
    assert json.loads(text)["s"] == 0.1


ODD = ['a"b', "select", "percent%s", "colon:x", "CamelCase", "ünïcode", "br(ack)et", "c0"]


def test_names_may_be_odd(url: str) -> None:
    refused = dialect_named(make_url(url).get_backend_name()).refused_in_names or "\0"
    odd = [name.replace(refused, "") for name in ODD]
    value = pa.struct([(name, pa.int64()) for name in odd])
    for mode in ("append", "upsert"):
        table = f'Odd %s "{mode}":t'.replace(refused, "")
        sink = Sink(url, table=table, mode=mode, shard=mode, value=value)
        sink.publish(1, [emission("k", {name: at for at, name in enumerate(odd)})])
        sink.publish(2, [emission("k", {name: at + 1 for at, name in enumerate(odd)})], 1)
        engine = create_engine(url)
        with engine.connect() as connection:
            quoted = sink.layout().table
            rows = [dict(row) for row in connection.execute(quoted.select()).mappings()]
        assert [rows[-1][name] for name in odd] == [at + 1 for at in range(len(odd))]
        assert len(rows) == (2 if mode == "append" else 1)


def test_a_table_may_be_in_a_schema(postgres_url: str) -> None:
    sink = Sink(postgres_url, table="reports.visitors")
    sink.query("CREATE SCHEMA reports")
    sink.publish(1, [emission("a", 1)])
    Sink(postgres_url, table="reports.visitors", with_key=True).publish(2, [emission("ab", 2)], 1)
    rows = sink.query('SELECT key, n, "customerId" FROM reports.visitors ORDER BY batch')
    assert [tuple(row.values()) for row in rows] == [("a", 1, None), ("ab", 2, 2)]


@pytest.mark.parametrize("name", ["batch", "KEY", "deleted"])
def test_emitted_column_cannot_repeat_a_table_column(name: str) -> None:
    with pytest.raises(SinkRefused, match=f"event_{name}"):
        Sink("sqlite://", value=pa.struct([(name, pa.int64())])).layout()


def test_name_is_reserved_only_where_it_exists(url: str) -> None:
    sink = Sink(url, mode="upsert", value=pa.struct([("deleted", pa.string())]))
    sink.publish(1, [emission("a", {"deleted": "yes"})])
    assert sink.rows()[0]["deleted"] == "yes"


def test_emitted_key_column_is_stored_once(url: str) -> None:
    sink = Sink(url, with_key=True, value=pa.struct([("customerId", pa.int64()), ("n", pa.int64())]))
    sink.publish(1, [emission("ab", {"customerId": 2, "n": 1}), emission("ab", None)])
    assert [(row["customerId"], row["n"]) for row in sink.rows()] == [(2, 1), (2, None)]


def test_too_long_name_is_refused_not_cut(postgres_url: str) -> None:
    with pytest.raises(SinkRefused, match="63"):
        Sink(postgres_url, table="t" * 64).publish(1, [emission("k", 1)])


TOO_LATE = pa.struct([("at", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize(
    ("sink", "given", "why"),
    [
        (Sink("", value=pa.struct([("s", pa.string())])), emission("k", {"s": "a\0b"}), "the code 0"),
        (Sink(""), emission("k\0", 1), "the code 0"),
        (Sink("", value=TOO_LATE), emission("k", {"at": 400_000_000_000_000_000}), "years 1 to 9999"),
        (Sink("", mode="upsert"), emission("k" * 3000, 1), "3000 bytes"),
        (Sink("", value=pa.struct([("ü" * 32, pa.int64())])), emission("k", None), "64 bytes"),
    ],
    ids=[
        "zero in a text",
        "zero in a key",
        "a time without a year",
        "a key too long for an index",
        "a name that would be cut",
    ],
)
def test_value_beyond_postgresql_is_found_before_the_commit(sink: Sink, given: Any, why: str) -> None:
    with pytest.raises(SinkRefused, match=why):
        check_emissions(dialect_named("postgresql"), sink.layout(), sink.batches([given]))
