"""Which rows a database refuses is places out before the batch is decided, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event, make_url

from tests.sinks.sql.conftest import new_database
from tests.sinks.sql.sink import Sink, emission
from tidegate.errors import SinkRefused, SinkUnavailable
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.schema import unfit_emissions

KINDS = ["sqlite", "postgresql", "postgresql, staged", "mariadb"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database that can try rows."""
    return new_database(request.param, request, tmp_path)


def checked(url: str, mode: str = "append", rule: str = "CHECK (n < 5)", **settings: Any) -> Sink:
    """A sink whose table a person has made, with a rule on the column `n`."""
    sink = Sink(url, mode=mode, **settings)
    with sink.database() as database, database.transaction() as connection:
        sink.layout().table.create(connection)
        if url.startswith("sqlite"):  # which adds no rules to a table
            connection.exec_driver_sql(f"ALTER TABLE {sink.table} RENAME TO old")
            (made,) = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'old'").scalars()
            new = made.replace('"old"', sink.table).replace("\tn BIGINT", f"\tn BIGINT {rule}")
            connection.exec_driver_sql("DROP TABLE old")
            connection.exec_driver_sql(new)
        else:
            connection.exec_driver_sql(f"ALTER TABLE {sink.table} ADD {rule}")
    return sink


def refused(
    sink: Sink, seq: int, emissions: Sequence[Any], last_published: int = 0, size: int = 3
) -> dict[int, str]:
    with sink.database() as database:
        publisher = sink.publisher(database)
        return publisher.refused(seq, "first", sink.batches(emissions, size), last_published)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["append", "upsert", "insert_ignore", "history"])
def test_refused_rows_are_named_and_nothing_is_written(url: str, mode: str) -> None:
    sink = checked(url, mode)
    emissions = [emission(f"k{n}", n) for n in (1, 9, 2, 7, 3, 8, 4)]
    places = refused(sink, 1, emissions)
    assert sorted(places) == [1, 3, 5]
    assert all("constraint" in why.lower() for why in places.values())
    assert sink.rows("n") == []
    remaining = [row for place, row in enumerate(emissions) if place not in places]
    assert refused(sink, 1, remaining) == {}
    assert sink.publish(1, remaining) == 4
    assert sorted(row["n"] for row in sink.rows("n")) == [1, 2, 3, 4]


def test_all_rows_of_a_batch_can_be_refused(url: str) -> None:
    sink = checked(url, "upsert")
    assert sorted(refused(sink, 1, [emission(f"k{n}", 9) for n in range(7)])) == list(range(7))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("most", "refusals", "savepoints"), [(None, 64, 79), (2, 3, 7), (0, 1, 5), (64, 64, 79)]
)
def test_trial_ends_when_too_many_rows_are_refused(
    url: str, most: int | None, refusals: int, savepoints: int
) -> None:
    sink = checked(url)
    opened: list[str] = []
    with sink.database() as database:
        event.listen(database._engine, "savepoint", lambda _, name: opened.append(name))
        batches = sink.batches([emission(f"k{n}", 9) for n in range(64)], 64)
        places = sink.publisher(database).refused(1, "first", batches, 0, most)
    assert sorted(places) == [*range(refusals)]
    assert len(opened) == savepoints


def test_good_row_of_a_key_stands_in(url: str) -> None:
    sink = checked(url, "upsert")
    emissions = [emission("a", 1), emission("a", 8), emission("a", 9), emission("b", 2), emission("b", None)]
    assert sorted(refused(sink, 1, emissions)) == [1, 2]
    sink.query(f"DROP TABLE {sink.table}")
    first = checked(url, "insert_ignore")
    assert sorted(refused(first, 1, [emission("a", 9), emission("a", 8), emission("a", 1)])) == [0, 1]


def test_every_refused_row_of_a_key_is_named(url: str) -> None:
    sink = checked(url, "upsert")
    emissions = [emission("a", 1), *(emission("a", 9) for _ in range(20))]
    assert sorted(refused(sink, 1, emissions, size=21)) == list(range(1, 21))


def test_second_row_of_a_unique_column_is_refused(url: str) -> None:
    sink = checked(url, rule="UNIQUE" if url.startswith("sqlite") else "UNIQUE (n)")
    sink.publish(1, [emission("a", 1)])
    assert sorted(refused(sink, 2, [emission("b", 2), emission("c", 1), emission("d", 2)], 1)) == [1, 2]


def test_missing_table_refuses_nothing(url: str) -> None:
    sink = Sink(url)
    assert refused(sink, 1, [emission("a", 9)]) == {}
    with sink.database() as database, database.reading() as connection:
        assert not connection.dialect.has_table(connection, sink.table)


def test_missing_column_is_there_in_the_trial(url: str) -> None:
    checked(url)
    wider = Sink(url, value=pa.struct([("n", pa.int64()), ("extra", pa.string())]))
    emissions = [emission("a", {"n": 1, "extra": "x"}), emission("b", {"n": 9, "extra": "y"})]
    assert sorted(refused(wider, 1, emissions)) == [1]
    assert wider.publish(1, emissions[:1]) == 1


def test_rows_of_another_ledger_are_not_refused(url: str) -> None:
    def none(seq: int, is_of: Any) -> None:
        raise SinkRefused(f"batch {seq} is not of this ledger")

    sink = Sink(url)
    sink.publish(1, [emission("a", 1)])
    sink.require_committed = none
    with pytest.raises(SinkRefused, match="batch 1 is not of this ledger"):
        refused(sink, 1, [emission("a", 1)])


def test_refused_deletion_halts_the_batch(postgres_url: str) -> None:
    sink = Sink(postgres_url, mode="upsert")
    sink.publish(1, [emission("a", 1)])
    sink.query(f"CREATE TABLE child (key text REFERENCES {sink.table})")
    sink.query("INSERT INTO child VALUES ('a')")
    with pytest.raises(SinkRefused, match="foreign key"):
        refused(sink, 2, [emission("b", 1), emission("a", None)], 1)


def test_deferred_constraints_are_checked_in_the_trial(postgres_url: str) -> None:
    sink = checked(postgres_url, rule="UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
    assert sorted(refused(sink, 1, [emission("a", 1), emission("b", 1)])) == [1]


def test_errors_about_the_table_are_not_about_rows(tmp_path: Path) -> None:
    sink = Sink(f"sqlite:///{tmp_path / 'database.db'}")
    sink.publish(1, [emission("a", 1)])
    sink.query(f"CREATE TRIGGER log AFTER INSERT ON {sink.table} BEGIN INSERT INTO missing VALUES (1); END")
    with pytest.raises(SinkRefused, match=r"no such table: main\.missing"):
        refused(sink, 2, [emission("b", 2)], 1)


def test_value_that_is_too_long_is_refused_alone(url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("SQLite has no lengths")
    value = pa.struct([("name", pa.string())])
    sink = Sink(url, value=value)
    sink.publish(1, [emission("a", {"name": "x"})])
    kind = "MODIFY COLUMN name VARCHAR(3)" if url.startswith("mysql") else "ALTER COLUMN name TYPE varchar(3)"
    sink.query(f"ALTER TABLE {sink.table} {kind}")
    names = [emission(f"k{n}", {"name": name}) for n, name in enumerate(["abc", "abcd", "é" * 3, "é" * 4])]
    places = refused(sink, 2, names, 1)
    assert sorted(places) == [1, 3]
    assert "too long" in places[1]


def test_reason_names_no_password(postgres_url: str) -> None:
    password = make_url(postgres_url).password
    sink = checked(postgres_url)
    assert all(str(password) not in why for why in refused(sink, 1, [emission("a", 9)]).values())


def test_unfit_values_have_their_places(url: str) -> None:
    value = pa.struct([("ratio", pa.float64()), ("day", pa.timestamp("us"))])
    sink = Sink(url, value=value)
    rows = [emission("a", {"ratio": 1.0, "day": None}), emission("b", {"ratio": float("nan"), "day": None})]
    chunks = list(sink.batches(rows, 1))
    late = pa.array([None, 253402300800000000 + 10**15], pa.int64()).cast(pa.timestamp("us"))
    struct = pa.StructArray.from_arrays([pa.array([1.0, 2.0]), late], fields=list(value))
    whole = next(sink.batches([rows[0], rows[0]], 2))
    chunks.append(whole.set_column(whole.schema.get_field_index("value"), "value", struct))
    dialect = dialect_named(make_url(url).get_backend_name())
    places = dict(unfit_emissions(dialect, sink.layout(), chunks))
    expected = {3: "its column day holds a time outside of the years 1 to 9999"}
    if not dialect.has_nan:
        expected[1] = f"its column ratio holds NaN, which {dialect.title} does not have"
    assert places == expected


def test_lost_connection_is_no_refusal(tmp_path: Path) -> None:
    sink = checked(f"sqlite:///{tmp_path / 'database.db'}", wait_s=0.1)
    with sink.database() as other, other.transaction(), pytest.raises(SinkUnavailable):
        refused(sink, 1, [emission("a", 1)])
