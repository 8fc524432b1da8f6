"""The rows of a ClickHouse table, as a reader with FINAL sees them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.batch import committed
from tests.sinks.clickhouse.house import House
from tidegate import failpoints
from tidegate.batch import validate_batch
from tidegate.errors import SinkRefused
from tidegate.sinks.clickhouse import rows
from tidegate.sinks.clickhouse.rows import column_type


def test_appended_rows_have_their_batch(appending: House) -> None:
    appending.decide(1, ("a", 1), ("b", 2))
    appending.decide(2, ("a", None))
    assert appending.rows() == [("a", 1, 1), ("a", None, 2), ("b", 2, 1)]
    read = "SELECT stream, seq, ordinal, is_deleted FROM visitors FINAL ORDER BY seq, ordinal"
    assert appending.ask(read) == [("visitors/1", 1, 0, 0), ("visitors/1", 1, 1, 0), ("visitors/1", 2, 0, 1)]


def test_upsert_shows_the_last_row_of_each_key(upserting: House) -> None:
    upserting.decide(1, ("a", 1), ("b", 2), ("a", 3), ("c", 4))
    assert upserting.rows() == [("a", 3, 1), ("b", 2, 1), ("c", 4, 1)]
    upserting.decide(2, ("b", None), ("a", 5), ("d", None), ("e", None), ("e", 6))
    assert upserting.rows() == [("a", 5, 2), ("c", 4, 1), ("e", 6, 2)]


def test_upserted_rows_equal_a_fold_of_emissions(upserting: House) -> None:
    dice, expected = random.Random(7), dict[str, tuple[int, int]]()
    for seq in range(1, 6):
        keys = [f"key-{dice.randint(0, 12):04}" for _ in range(dice.randint(1, 9))]
        emitted = [(key, dice.choice([None, seq, seq * 10])) for key in keys]
        upserting.decide(seq, *emitted)
        for key, value in emitted:
            expected.pop(key, None)
            if value is not None:
                expected[key] = (value, seq)
    assert upserting.rows() == sorted((key, *row) for key, row in expected.items())


def test_merged_parts_show_the_same_rows(upserting: House) -> None:
    for seq in range(1, 5):
        upserting.decide(seq, ("a", seq), ("b", None if seq == 4 else seq))
    upserting.ask("OPTIMIZE TABLE visitors FINAL")
    assert (upserting.rows(), upserting.stored()) == ([("a", 4, 4)], 2)


def test_large_batch_is_inserted_in_parts(appending: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_INSERT_BYTES", 1)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    appending.outbox_files = 3
    appending.decide(1, *((f"k{number}", number) for number in range(30)))
    assert len(appending.rows()) == 30
    assert appending.ask("SELECT uniqExact(ordinal), max(ordinal) FROM visitors") == [(30, 29)]
    assert failpoints._hits["clickhouse.insert"] == 3


TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int8(), -128, -128),
    (pa.int16(), 2**15 - 1, 2**15 - 1),
    (pa.int32(), -(2**31), -(2**31)),
    (pa.int64(), 2**53, 2**53),
    (pa.float32(), 1.5, 1.5),
    (pa.float64(), 0.1, 0.1),
    (pa.decimal128(10, 2), Decimal("12345678.90"), 12345678.9),
    (pa.string(), "it's `é\n", "it's `é\n"),
    (pa.binary(), b"abc", "abc"),
    (pa.date32(), date(1900, 1, 1), "1900-01-01"),
    (
        pa.timestamp("us", "UTC"),
        datetime(2299, 12, 31, 23, 59, 59, 999_999, timezone.utc),
        "2299-12-31 23:59:59.999999",
    ),
    (pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),
    (pa.list_(pa.int64()), [1, None], "[1,null]"),
    (pa.map_(pa.string(), pa.int32()), [("s", 3)], '{"s":3}'),
    (pa.struct([("name", pa.string())]), {"name": "t"}, '{"name":"t"}'),
]


def test_values_of_each_type_survive(appending: House) -> None:
    names = [f"c{number}" for number in range(len(TYPES))]
    columns = ", ".join(
        f"{name} {column_type(type_)}" for name, (type_, *_) in zip(names, TYPES, strict=True)
    )
    appending.ask(f"CREATE TABLE t ({columns}, number Int64) ENGINE = MergeTree ORDER BY number")
    values = {
        name: rows._stored(pa.array([value, None], type_))
        for name, (type_, value, _) in zip(names, TYPES, strict=True)
    }
    with appending.sink._opened() as table:
        table._server.insert("t", pa.table(values | {"number": pa.array([1, 2])}))
    read = appending.ask(f"SELECT {', '.join(names)} FROM t ORDER BY number")
    assert read == [tuple(shown for *_, shown in TYPES), (None,) * len(TYPES)]


def test_version_orders_by_epoch_batch_and_place() -> None:
    places = [(1, 9, 9), (2, 1, 1), (2, 1, 2), (2, 2, 0), (2**32, 0, 0), (2**32 + 1, 0, 0)]
    versions = [
        int.from_bytes(rows.versions(term, seq, np.array([ordinal]))[0].as_py(), "little")
        for term, seq, ordinal in places
    ]
    assert versions == sorted(set(versions))


def test_windows_of_a_key_have_own_rows(upserting: House, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = committed._outbox

    def windowed(emitted: Sequence[committed.Row], column: str, seq: int) -> pa.Table:
        """Give each emission the window that its value names, in seconds."""
        table = outbox(emitted, column, seq)
        starts = pa.array([(value or 0) // 10 * 1000 for _, value in emitted], pa.int64())
        for name, times in (("window_start", starts), ("window_end", pc.add(starts, 1000))):
            table = table.set_column(table.column_names.index(name), name, times)
        return table

    monkeypatch.setattr(committed, "_outbox", windowed)
    text = upserting.file.read_text()
    in_windows = 'window: {tumbling: 1s}, reduce: {n: "max(n)"}, emit: {on: update}'
    upserting.file.write_text(text.replace("select: {n: n}, reduce: latest, emit: {on: update}", in_windows))
    upserting.decide(1, ("a", 1), ("a", 11), ("a", 2), ("b", 1))
    upserting.decide(2, ("a", 12), ("b", None))
    read = upserting.ask("SELECT key, toString(window_start), n FROM visitors FINAL ORDER BY ALL")
    first, second = (f"1970-01-01 00:00:0{second}.000000" for second in (0, 1))
    assert read == [("a", first, 2), ("a", second, 12)]


def test_new_column_extends_the_table(appending: House) -> None:
    appending.decide(1, ("a", 1))
    text = appending.file.read_text()
    appending.file.write_text(text.replace("kind: clickhouse,", "kind: clickhouse, with_key: true,"))
    appending.decide(2, ("bb", 2))
    assert appending.ask("SELECT key, customerId FROM visitors FINAL ORDER BY key") == [
        ("a", None),
        ("bb", 2),
    ]


CREATE = """CREATE TABLE visitors (key String, n {n}, timestamp DateTime64(6, 'UTC'), reason Nullable(String),
seq Int64, stream String, ordinal Int64, is_deleted UInt8, row_version UInt128) ENGINE = {engine}"""
ENGINE = "ReplacingMergeTree(row_version) ORDER BY (stream, seq, ordinal)"


@pytest.mark.parametrize(
    ("n", "engine", "message"),
    [
        ("Int64", ENGINE, r"column n of the type Int64, and Nullable\(Int32\) is emitted"),
        ("Nullable(Int32)", "MergeTree ORDER BY key", "has the engine MergeTree"),
        (
            "Nullable(Int32)",
            "ReplacingMergeTree(row_version) ORDER BY key",
            "ordered by key, and not",
        ),
        (
            "Nullable(Int32)",
            "ReplacingMergeTree(row_version, is_deleted) ORDER BY (stream, seq, ordinal)",
            r"and not ReplacingMergeTree\(row_version\), ordered by stream, seq, ordinal",
        ),
    ],
)
def test_unfit_table_is_refused_early(appending: House, n: str, engine: str, message: str) -> None:
    appending.ask(CREATE.format(n=n, engine=engine))
    plan = appending.compute(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match=message):
        validate_batch(appending.app, plan, "test")


def test_statement_of_the_error_changes_the_column(appending: House) -> None:
    appending.ask(CREATE.format(n="Nullable(Int8)", engine=ENGINE))
    appending.commit(1, {"first": [("a", 1)]})
    appending.lease.release()
    with pytest.raises(SinkRefused, match="MODIFY COLUMN") as caught:
        appending.publish(1)
    statement = caught.value.fix.removeprefix("Change it by ").partition(";")[0]
    appending.ask(statement)
    appending.publish(1)
    assert appending.rows() == [("a", 1, 1)]


def test_fitting_table_of_a_person_takes_rows(appending: House) -> None:
    appending.ask(
        CREATE.format(n="Nullable(Int32)", engine=ENGINE.replace("ORDER", "PARTITION BY seq ORDER"))
    )
    appending.decide(1, ("a", 1))
    assert appending.rows() == [("a", 1, 1)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.date32(), date(1, 1, 1)),
        (pa.date32(), date(9999, 12, 31)),
        (pa.timestamp("us", "UTC"), datetime(9999, 12, 31, tzinfo=timezone.utc)),
        (pa.timestamp("us"), datetime(1, 1, 1)),
    ],
)
def test_time_that_no_column_can_have_is_refused(appending: House, type_: pa.DataType, value: Any) -> None:
    del appending
    from tidegate.sinks.clickhouse.rows import check_times

    batch = pa.RecordBatch.from_pydict({"at": pa.array([None, value], type_)})
    with pytest.raises(SinkRefused, match=r"The column at emits .* from 1900-01-01 to 2299-12-31 only"):
        check_times([batch])
