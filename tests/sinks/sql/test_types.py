"""Columns of JSON, arrays and times: what a reader of the table sees, exactly, in each kind of database."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.dialects import mssql, mysql, oracle

from tests.mariadb import MariaDbServer
from tests.sinks.sql.conftest import new_database
from tests.sinks.sql.sink import TIMES, Sink, emission
from tidegate.errors import SinkRefused
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.schema import check_emissions, check_table, unfit_emissions

MODES = ["append", "upsert", "insert_ignore", "history"]
KINDS = ["sqlite", "postgresql", "postgresql, staged", "postgresql, in shards", "mariadb", "duckdb"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind; PostgreSQL with rows one by one, and by COPY."""
    return new_database(request.param, request, tmp_path)


def has_arrays(url: str) -> bool:
    return dialect_named(make_url(url).get_backend_name()).has_arrays


def read(stored: Any) -> Any:
    """JSON as Python has it: psycopg parses it, and the other drivers give its text."""
    return json.loads(stored, parse_float=Decimal) if isinstance(stored, str) else stored


def texts(sink: Sink, name: str) -> list[str | None]:
    """The texts of a column, in the order of keys: drivers parse numbers of JSON as floats."""
    type_ = "CHAR" if sink.url.startswith("mysql") else "TEXT"
    query = (
        f"SELECT cast({sink.quoted(name)} AS {type_}) AS t FROM visitor_batches ORDER BY {sink.quoted('key')}"
    )
    return [row["t"] for row in sink.query(query)]


def check(sink: Sink) -> None:
    """Check the table of a sink as the step `plan` does."""
    with sink.database() as database, database.reading() as connection:
        check_table(connection, sink.layout())


def column_types(url: str, table: str = "visitor_batches") -> dict[str, str]:
    engine = create_engine(url)
    columns = inspect(engine).get_columns(table)
    return {column["name"]: column["type"].compile(engine.dialect) for column in columns}


LISTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [2**63 - 1, None, -(2**63)]),
    "small": (pa.int32(), [1, 2]),
    "flags": (pa.bool_(), [True, None]),
    "names": (pa.string(), ['a"b', "", "NULL", "{x,y}", "back\\slash", "Zoë\n", None]),
    "prices": (pa.decimal128(30, 12), [Decimal("123456789012345678.000000000001"), None]),
    "ratios": (pa.float64(), [0.1, 1e300, None]),
    "days": (pa.date32(), [date(2026, 1, 2)]),
    "moments": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)]),
    "raws": (pa.binary(), [b"\x00\xff\\", None]),
}
ARRAYS = pa.struct([(name, pa.list_(type_)) for name, (type_, _) in LISTS.items()])


@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", MODES)
def test_arrays_are_stored_whole(url: str, mode: str) -> None:
    sink = Sink(url, mode=mode, value=ARRAYS)
    values = {name: items for name, (_, items) in LISTS.items()}
    empty = {name: [] for name in LISTS}
    sink.publish(1, [emission("a", values), emission("b", empty), emission("c", dict.fromkeys(LISTS))])
    whole, without_items, without_arrays = sink.rows(sink.quoted("key"))
    assert {without_arrays[name] for name in LISTS} == {None}
    if has_arrays(url):
        assert {name: whole[name] for name in LISTS} == values
        assert {name: without_items[name] for name in LISTS} == empty
    else:
        assert read(whole["whole"]) == values["whole"]
        assert read(whole["prices"]) == values["prices"]
        assert {without_items[name] for name in LISTS} == {"[]"}


def test_array_types_are_those_of_postgresql(postgres_url: str) -> None:
    Sink(postgres_url, value=ARRAYS).publish(1, [emission("k", None)])
    types = column_types(postgres_url)
    assert [types[name] for name in LISTS] == [
        *("BIGINT[]", "INTEGER[]", "BOOLEAN[]", "TEXT[]", "NUMERIC(30, 12)[]"),
        *("DOUBLE PRECISION[]", "DATE[]", "TIMESTAMP WITH TIME ZONE[]", "BYTEA[]"),
    ]


NESTED = pa.struct(
    [
        ("order", pa.struct([("total", pa.decimal128(30, 10)), ("id", pa.int64()), ("note", pa.string())])),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int64())]))),
        ("grid", pa.list_(pa.list_(pa.int64()))),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
ORDER: dict[str, Any] = {
    "order": {"total": Decimal("12345678901234567890.0000000001"), "id": 2**63 - 1, "note": 'Zoë "\\\n'},
    "lines": [{"sku": "a", "n": None}, None],
    "grid": [[1, 2], [], None],
    "counts": [("b", 1), ("a", None)],
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", MODES)
def test_nested_values_are_exact_json(url: str, mode: str) -> None:
    sink = Sink(url, mode=mode, value=NESTED)
    sink.publish(1, [emission("k", ORDER), emission("l", dict.fromkeys(ORDER))])
    row, nothing = sink.rows(sink.quoted("key"))
    assert {nothing[name] for name in ORDER} == {None}
    assert texts(sink, "order")[1] is None
    assert read(row["lines"]) == ORDER["lines"]
    assert read(row["grid"]) == ORDER["grid"]
    assert read(row["counts"]) == dict(ORDER["counts"])
    assert read(texts(sink, "order")[0]) == ORDER["order"]


def test_decimals_in_jsonb_keep_their_digits(postgres_url: str) -> None:
    sink = Sink(postgres_url, value=NESTED)
    sink.publish(1, [emission("k", ORDER)])
    assert column_types(postgres_url)["order"] == "JSONB"
    query = "SELECT \"order\"->>'total' AS total, lines->0->>'sku' AS sku FROM visitor_batches"
    assert sink.query(query) == [{"total": "12345678901234567890.0000000001", "sku": "a"}]


@pytest.mark.parametrize(("type_", "column"), [(pa.int64(), "JSON"), (pa.decimal128(30, 10), "LONGTEXT")])
def test_json_of_mysql_has_no_decimals(type_: pa.DataType, column: str) -> None:
    nested = pa.list_(pa.struct([("n", type_)]))
    compiled = dialect_named("mysql").column_type(nested).compile(mysql.dialect())
    assert compiled.split()[0] == column
    assert dialect_named("mysql").lacks_room(mysql.JSON(), nested) == (column != "JSON")


TEXTS = ['{"b":1,"a":[1.50,null]}', "7", '"x"', "null", None, '{"big":12345678901234567890123}']
PAYLOAD = pa.struct([("payload", pa.string())])


@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", MODES)
def test_string_can_be_stored_as_json(url: str, mode: str) -> None:
    sink = Sink(url, mode=mode, value=PAYLOAD, types=(("payload", "json"),))
    sink.publish(1, [emission(f"k{n}", {"payload": text}) for n, text in enumerate(TEXTS)])
    stored = texts(sink, "payload")
    assert [read(text) for text in stored] == [read(text) for text in TEXTS]
    assert [text is None for text in stored] == [text is None for text in TEXTS]


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{'a': 1}",
        "NaN",
        "1e400",
        "[1e-20000]",
        '{"a":1} x',
        '"\ud800"'.encode("ascii", "backslashreplace").decode(),
        "[" * 9000,
    ],
)
def test_text_that_is_no_json_is_refused(url: str, text: str) -> None:
    sink = Sink(url, value=PAYLOAD, types=(("payload", "json"),))
    dialect = dialect_named(make_url(url).get_backend_name())
    batches = sink.batches([emission("a", {"payload": "{}"}), emission("b", {"payload": text})])
    assert list(unfit_emissions(dialect, sink.layout(), batches)) == [
        (1, "its column payload holds a text that is no JSON")
    ]


ZERO = [
    (pa.list_(pa.string()), ["a", "b\0"], ["b\\u0000"]),
    (pa.struct([("s", pa.string())]), {"s": "\0"}, {"s": "\\\\u0000"}),
    (pa.map_(pa.string(), pa.string()), [("\0", "x")], [("\\", "x")]),
    (pa.string(), '{"s":"\\\\\\u0000"}', '{"s":"\\\\u0000"}'),
]


@pytest.mark.parametrize(("depth", "is_refused"), [(31, False), (32, True)])
def test_deep_json_is_refused_by_mariadb(mariadb: MariaDbServer, depth: int, is_refused: bool) -> None:
    sink = Sink(mariadb.new_database(), value=PAYLOAD, types=(("payload", "json"),))
    emissions = [emission("k", {"payload": '{"a":' * (depth - 1) + "[]" + "}" * (depth - 1)})]
    unfit = dict(unfit_emissions(dialect_named("mysql"), sink.layout(), sink.batches(emissions)))
    assert unfit == (
        {0: "its column payload holds JSON that is nested more than 31 deep"} if is_refused else {}
    )
    if is_refused:
        with pytest.raises(SinkRefused, match="CONSTRAINT"):
            sink.publish(1, emissions)
    else:
        sink.publish(1, emissions)


@pytest.mark.parametrize(("type_", "zero", "escaped"), ZERO, ids=["array", "struct", "map", "json text"])
def test_zero_character_in_a_nested_text_is_refused(
    postgres_url: str, type_: pa.DataType, zero: Any, escaped: Any
) -> None:
    types = (("v", "json"),) if type_ == pa.string() else ()
    sink = Sink(postgres_url, value=pa.struct([("v", type_)]), types=types)
    emissions = [emission("a", {"v": escaped}), emission("b", {"v": zero})]
    dialect = dialect_named("postgresql")
    assert list(unfit_emissions(dialect, sink.layout(), sink.batches(emissions))) == [
        (1, "its column v holds a character with the code 0")
    ]
    sink.publish(1, emissions[:1])
    with pytest.raises(SinkRefused, match="the code 0"):
        check_emissions(dialect, sink.layout(), sink.batches(emissions[1:]))


def test_array_can_be_stored_as_json_or_text(url: str) -> None:
    value = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.list_(pa.int64()))])
    sink = Sink(url, value=value, types=(("a", "json"), ("b", "text")))
    sink.publish(1, [emission("k", {"a": [1, None], "b": [2, None]})])
    (row,) = sink.rows()
    assert read(row["a"]) == [1, None]
    assert row["b"] == "[2,null]"


def test_scalar_cannot_be_stored_as_json(url: str) -> None:
    with pytest.raises(SinkRefused, match="n of the SQL table visitor_batches is bigint, which cannot have"):
        Sink(url, types=(("n", "json"),)).layout()


@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", MODES)
def test_own_times_are_timestamps(url: str, mode: str) -> None:
    sink = Sink(url, mode=mode, windowed=True)
    start = 1_767_323_045_678
    sink.publish(1, [emission("k", 1, at=start + 5, window=start), emission("k", 2, at=7, window=-1)])
    sink.publish(2, [emission("k", 3, at=start + 7, window=start)], 1)
    rows = sink.rows("window_start, batch")
    assert [rows[0][name] for name in ("window_start", "window_end", "emitted_timestamp")] == [-1, 9, 7]
    assert [rows[-1][name] for name in ("window_start", "window_end")] == [start, start + 10]
    assert len(rows) == (3 if mode in ("append", "history") else 2)


def test_times_have_a_zone_in_postgresql(postgres_url: str) -> None:
    sink = Sink(postgres_url, mode="history", windowed=True)
    sink.publish(1, [emission("k", 1, at=1_767_323_045_678, window=0)])
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    assert sink.query("SELECT valid_from, emitted_timestamp FROM visitor_batches") == [
        {"valid_from": moment, "emitted_timestamp": moment}
    ]
    assert {type_ for name, type_ in column_types(postgres_url).items() if name in TIMES} == {
        "TIMESTAMP WITH TIME ZONE"
    }


def test_deletion_finds_the_row_of_its_window(url: str) -> None:
    sink = Sink(url, mode="upsert", windowed=True)
    sink.publish(1, [emission("k", 1, window=10), emission("k", 2, window=20)])
    sink.publish(2, [emission("k", None, window=10)], 1)
    assert [row["window_start"] for row in sink.rows()] == [20]


@pytest.mark.parametrize("column", ["emitted_timestamp", "window_start"])
def test_time_outside_of_the_calendar_is_refused(url: str, column: str) -> None:
    sink = Sink(url, windowed=True)
    late = {"emitted_timestamp": {"timestamp": 10**15}, "window_start": {"window_start": -(10**15)}}[column]
    batches = sink.batches([emission("k", 1, window=5), emission("k", 1, window=5) | late])
    dialect = dialect_named(make_url(url).get_backend_name())
    assert list(unfit_emissions(dialect, sink.layout(), batches)) == [
        (1, f"its column {column} holds a time outside of the years 1 to 9999")
    ]


def test_first_and_last_time_are_stored(postgres_url: str) -> None:
    sink = Sink(postgres_url)
    for seq, (last, beyond) in enumerate([(-62_135_596_800_000, -1), (253_402_300_799_999, 1)], start=1):
        batches = sink.batches([emission("k", 1, at=last), emission("k", 1, at=last + beyond)])
        places = [place for place, _ in unfit_emissions(dialect_named("postgresql"), sink.layout(), batches)]
        assert places == [1]
        sink.publish(seq, [emission("k", 1, at=last)], seq - 1)
    assert [row["emitted_timestamp"] for row in sink.rows()] == [-62_135_596_800_000, 253_402_300_799_999]


def test_column_of_numbers_takes_no_times(url: str) -> None:
    sink = Sink(url)
    own = "stream varchar(99), batch bigint, ordinal bigint, PRIMARY KEY (stream, batch, ordinal)"
    sink.query(f"CREATE TABLE visitor_batches (emitted_timestamp bigint, {own})")
    with pytest.raises(
        SinkRefused, match=r"emitted_timestamp of the SQL table visitor_batches is BIGINT.*writes"
    ):
        check(sink)


def test_duckdb_times_without_zone_are_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    sink = Sink(f"duckdb:///{tmp_path / 'database.db'}")
    own = "stream text, batch bigint, ordinal bigint, PRIMARY KEY (stream, batch, ordinal)"
    sink.query(f"CREATE TABLE visitor_batches (emitted_timestamp timestamp, {own})")
    sink.publish(1, [emission("k", 1, at=1_767_323_045_678)])
    stored = sink.query("SELECT emitted_timestamp FROM visitor_batches")
    assert stored == [{"emitted_timestamp": datetime(2026, 1, 2, 3, 4, 5, 678000)}]


def test_postgresql_times_without_zone_are_utc(postgres_url: str) -> None:
    sink = Sink(postgres_url)
    sink.query("ALTER ROLE CURRENT_USER SET timezone = 'Asia/Tokyo'")
    sink.publish(1, [emission("k", 1)])
    sink.query("ALTER TABLE visitor_batches ALTER COLUMN emitted_timestamp TYPE timestamp")
    sink.publish(2, [emission("k", 1, at=1_767_323_045_678)], 1)
    stored = sink.query("SELECT emitted_timestamp FROM visitor_batches WHERE batch = 2")
    assert stored == [{"emitted_timestamp": datetime(2026, 1, 2, 3, 4, 5, 678000)}]


EDITS = [
    (pa.list_(pa.int32()), pa.list_(pa.int64()), [2**40]),
    (pa.list_(pa.int64()), pa.list_(pa.decimal128(22, 2)), [Decimal("1.25")]),
]


@pytest.mark.parametrize(("before", "after", "value"), EDITS)
def test_narrow_array_is_refused_with_its_statement(
    postgres_url: str, before: pa.DataType, after: pa.DataType, value: Any
) -> None:
    Sink(postgres_url, value=pa.struct([("v", before)])).publish(1, [emission("k", {"v": [1]})])
    wider = Sink(postgres_url, value=pa.struct([("v", after)]))
    with pytest.raises(SinkRefused, match="has no room for every array") as caught:
        wider.publish(2, [emission("k", {"v": value})], 1)
    wider.query(caught.value.fix.split("`")[1])
    wider.publish(2, [emission("k", {"v": value})], 1)
    assert wider.rows()[-1]["v"] == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.list_(pa.int64()), NESTED.field("lines").type),
        (NESTED.field("lines").type, pa.list_(pa.int64())),
        (pa.string(), pa.list_(pa.string())),
        (NESTED.field("order").type, pa.string()),
        (NESTED.field("order").type, pa.int64()),
    ],
    ids=["array to json", "json to array", "text to array", "json to text", "json to number"],
)
def test_column_of_another_kind_is_refused_in_postgresql(
    postgres_url: str, before: pa.DataType, after: pa.DataType
) -> None:
    Sink(postgres_url, value=pa.struct([("v", before)])).publish(1, [emission("k", None)])
    sink = Sink(postgres_url, value=pa.struct([("v", after)]))
    with pytest.raises(
        SinkRefused, match=r"column v of the SQL table visitor_batches is .*, and tidegate writes"
    ):
        check(sink)


def test_text_column_of_a_user_takes_json(url: str) -> None:
    texts = pa.struct([("v", pa.string())])
    Sink(url, value=texts).publish(1, [emission("k", None)])
    sink = Sink(url, value=pa.struct([("v", NESTED.field("lines").type)]))
    sink.publish(2, [emission("k", {"v": ORDER["lines"]})], 1)
    assert sink.rows()[-1]["v"] == '[{"sku":"a","n":null},null]'


def test_columns_of_new_types_are_added(url: str) -> None:
    Sink(url).publish(1, [emission("k", 1)])
    value = pa.struct([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("o", NESTED.field("order").type)])
    sink = Sink(url, value=value)
    sink.publish(2, [emission("k", {"n": 2, "tags": ["a"], "o": ORDER["order"]})], 1)
    old, new = sink.rows()
    assert (old["tags"], old["o"]) == (None, None)
    assert read(new["tags"]) == ["a"]
    assert read(new["o"])["id"] == ORDER["order"]["id"]


@pytest.mark.parametrize(
    ("dialect", "window", "nested"),
    [
        (mssql.dialect(), "DATETIMEOFFSET(6)", "NVARCHAR(max)"),
        (oracle.dialect(), "TIMESTAMP WITH LOCAL TIME ZONE", "CLOB"),
    ],
    ids=["mssql", "oracle"],
)
def test_other_databases_have_times_and_json_texts(dialect: Any, window: str, nested: str) -> None:
    value = pa.struct([("tags", pa.list_(pa.string())), ("payload", pa.string())])
    table = Sink("", mode="upsert", windowed=True, value=value, types=(("payload", "json"),)).layout().table
    types = {column.name: column.type.compile(dialect) for column in table.columns}
    assert types["window_start"] == types["emitted_timestamp"] == window
    assert types["tags"] == types["payload"] == nested


def test_trial_of_mariadb_finds_broken_json(mariadb: MariaDbServer) -> None:
    sink = Sink(mariadb.new_database(), value=PAYLOAD, types=(("payload", "json"),))
    sink.publish(1, [emission("k", {"payload": "{}"})])
    with sink.database() as database:
        refused = sink.publisher(database).refused(
            2, "first", sink.batches([emission("a", {"payload": "{"}), emission("b", {"payload": "[]"})]), 1
        )
    assert list(refused) == [0]
