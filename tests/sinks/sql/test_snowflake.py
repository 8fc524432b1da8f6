"""The statements for Snowflake. No server of it runs here: PostgreSQL runs those that it has in common with
Snowflake, and the others are compared with what Snowflake's documentation asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    MetaData,
    Table,
    Text,
    create_engine,
    select,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import ProgrammingError

from tests.sinks.sql.sink import Sink, emission
from tidegate.errors import SetupFailed, SinkRefused
from tidegate.kernel.rows import with_column
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import dialect_named, snowflake
from tidegate.sinks.sql.layout import EmittedType, Layout

SNOWFLAKE = snowflake.DIALECT
AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)


def engine_dialect() -> Dialect:
    """The dialect of snowflake-sqlalchemy; where it is not installed, SQLAlchemy's own under that name."""
    try:
        from snowflake.sqlalchemy.snowdialect import dialect
    except ImportError:
        own = DefaultDialect(paramstyle="pyformat")
        own.name = "snowflake"
        return own
    made: Dialect = dialect()
    return made


class Recorded:
    """A connection that records statements, and says of each how many rows it changes."""

    def __init__(self, *rowcounts: int) -> None:
        self.dialect = engine_dialect()
        self.statements: list[str] = []
        self.parameters: list[Any] = []
        self._rowcounts = iter(rowcounts)

    def execute(self, statement: Any, *_: Any, **__: Any) -> Any:
        compiled = statement.compile(dialect=self.dialect)
        self.statements.append(" ".join(str(compiled).split()))
        self.parameters.append([*compiled.params.values()])
        return SimpleNamespace(rowcount=next(self._rowcounts, 1), first=lambda: None)


def layout(mode: str = "upsert", value: pa.DataType | None = None) -> Layout:
    return Sink("", mode=mode, value=value or pa.struct([("n", pa.int64())])).layout()


def write(change: str, *arguments: Any, made: Layout | None = None) -> Recorded:
    """Let the writer of many rows change a table, and return what it executes."""
    connection: Any = Recorded()
    writer = SNOWFLAKE.bulk_writer(connection, (made or layout()).table, 1)
    getattr(writer, change)(*arguments)
    recorded: Recorded = connection
    return recorded


def rows(made: Layout, *emissions: Any) -> pa.RecordBatch:
    value = pa.struct([(part.name, part.type) for part in made.parts])
    (batch,) = Sink("", value=value).batches(emissions, len(emissions))
    return made.rows(SNOWFLAKE, batch, ("visitors/1", 1), 0)


def test_upsert_is_one_merge_of_texts() -> None:
    made = layout()
    recorded = write("upsert", ["c0"], rows(made, emission("a", 1), emission("b", 2)), made=made)
    (statement,) = recorded.statements
    assert statement.startswith("MERGE INTO visitor_batches t USING (SELECT v.c0 AS ")
    assert "CAST(v.c1 AS BIGINT) AS n, CAST(v.c2 AS TIMESTAMP_TZ) AS emitted_timestamp" in statement
    assert "WHEN MATCHED THEN UPDATE SET n = s.n" in statement
    assert recorded.parameters[0][:2] == ["a", "1"]
    assert {type(value) for value in recorded.parameters[0]} == {str}


def test_nested_values_are_parsed_in_a_select() -> None:
    value = pa.struct([("tags", pa.list_(pa.string())), ("raw", pa.binary())])
    made = layout("append", value)
    recorded = write("insert", rows(made, emission("a", {"tags": ["x"], "raw": b"\x00\xff"})), made=made)
    (statement,) = recorded.statements
    assert statement.startswith("INSERT INTO visitor_batches (")
    assert "parse_json(v.c1, 'd') AS tags, to_binary(v.c2, 'HEX') AS raw" in statement.replace(
        "PARSE", "parse"
    )
    assert '["x"]' in recorded.parameters[0]
    assert "00ff" in recorded.parameters[0]


def test_null_is_no_text() -> None:
    made = layout("append")
    recorded = write("insert", rows(made, emission("a", None)), made=made)
    assert "NULL" in recorded.statements[0]
    assert "None" not in recorded.parameters[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E-7"), "0.0000001"),
        (2**63 - 1, "9223372036854775807"),
        (0.1, "0.1"),
        (float("-inf"), "-inf"),
        (AT, "2026-01-02T03:04:05.000678+00:00"),
        (AT.date(), "2026-01-02"),
        (b"\x00\xff", "00ff"),
    ],
)
def test_text_of_a_value_is_exact(value: Any, text: str) -> None:
    assert snowflake._text(value) == text


@pytest.mark.parametrize(
    ("text", "count", "parts"),
    [("x", 2500, [1000, 1000, 500]), ("x" * 250_000, 3, [1, 1, 1]), ("€" * 100_000, 2, [1, 1])],
    ids=["many rows", "large rows", "characters of three bytes"],
)
def test_statement_holds_no_more_than_snowflake_takes(text: str, count: int, parts: list[int]) -> None:
    assert [
        len(part) for part in snowflake._parts(pa.RecordBatch.from_pydict({"c0": [text] * count}))
    ] == parts


def test_every_type_has_a_column_in_snowflake() -> None:
    types = {
        pa.timestamp("us", "UTC"): "TIMESTAMP_TZ",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
        pa.list_(pa.int64()): "VARIANT",
        pa.struct([("a", pa.int8())]): "VARIANT",
    }
    assert {type_: EmittedType(type_).compile(engine_dialect()) for type_ in types} == types
    scalars = [
        pa.bool_(),
        pa.int8(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.decimal128(9, 2),
    ]
    assert all(EmittedType(type_).compile(engine_dialect()) for type_ in scalars)


def test_key_has_no_collation_of_the_schema() -> None:
    assert SNOWFLAKE.name_type(engine_dialect(), 750).compile(engine_dialect()) == "VARCHAR COLLATE ''"


def progress_update(connection: Recorded) -> int:
    made = layout().table
    return SNOWFLAKE.updated(connection, made.update().values(c1=1))  # type: ignore[arg-type]


def test_progress_row_changes_after_the_lock_is_taken() -> None:
    connection = Recorded(1, 0)
    assert progress_update(connection) == 0
    first, second = connection.statements
    assert first.startswith("UPDATE tidegate_lock SET changes=")
    assert second.startswith("UPDATE visitor_batches")


def test_lock_without_its_row_is_refused() -> None:
    with pytest.raises(SinkRefused, match="DROP TABLE tidegate_lock"):
        progress_update(Recorded(0))


def test_table_that_another_process_created_is_temporary() -> None:
    def failed(number: int, state: str) -> ProgrammingError:
        error = SimpleNamespace(errno=number, sqlstate=state)
        return ProgrammingError("", None, error)  # type: ignore[arg-type]

    assert SNOWFLAKE.is_temporary(failed(2002, "42710"))
    assert SNOWFLAKE.is_temporary(failed(625, "57014"))  # waited too long for a lock
    assert not SNOWFLAKE.is_temporary(failed(1003, "42000"))


def test_missing_dialect_of_snowflake_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.dialects import registry
    from sqlalchemy.exc import NoSuchModuleError

    def missing(name: str) -> Any:
        raise NoSuchModuleError(name)

    monkeypatch.setattr(registry, "load", missing)
    with pytest.raises(SetupFailed, match=r"pip install snowflake-sqlalchemy\."):
        Database("snowflake://u:hunter2@account/db/schema", "TIDEGATE_SQL")


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_many_rows_are_written_in_postgresql(postgres_url: str) -> None:
    sink = Sink(
        postgres_url, mode="upsert", value=pa.struct([("n", pa.int64()), ("d", pa.decimal128(20, 3))])
    )
    sink.publish(1, [emission("a", {"n": 1, "d": None}), emission("b", {"n": 1, "d": None})])
    made = sink.layout()
    (batch,) = sink.batches([emission(key, {"n": 2, "d": Decimal("0.125")}) for key in "bc"], 2)
    new = made.rows(dialect_named("postgresql"), batch, ("visitors/1", 2), 0)
    with connected(postgres_url) as connection:
        writer = SNOWFLAKE.bulk_writer(connection, made.table, 2)
        assert writer is not None
        assert writer.upsert(["c0"], new) == 2
        writer.insert_missing(["c0"], with_column(new, "c0", pa.array(["c", "d"])))
        assert writer.delete(pa.RecordBatch.from_pydict({"c0": ["a", "unknown"]})) == 1
        connection.commit()
    stored = sorted((row["key"], row["n"], row["d"], row["batch"]) for row in sink.rows())
    assert stored == [(key, 2, Decimal("0.125"), 2) for key in "bcd"]


def unenforced_table(url: str) -> Table:
    """A table as in Snowflake: it has a key, which nothing enforces."""
    declared = (Column("shard", Text, primary_key=True), Column("seq", BigInteger), Column("done", Boolean))
    table = Table("progress_without_key", MetaData(), *declared)
    with connected(url) as connection:
        connection.exec_driver_sql(f"CREATE TABLE {table.name} (shard text, seq bigint, done boolean)")
        SNOWFLAKE.lock_for_changes(connection)
        connection.commit()
    return table


def test_second_first_publisher_waits_and_inserts_nothing(postgres_url: str) -> None:
    # PostgreSQL has the two rules of Snowflake: locks of an UPDATE, and READ COMMITTED for each statement.
    table = unenforced_table(postgres_url)
    row = {"shard": "s", "seq": 1}

    def publish(before_commit: Callable[[], None]) -> bool:
        with connected(postgres_url) as connection:
            is_first = SNOWFLAKE.inserted(connection, table, row)
            before_commit()
            connection.commit()
        return is_first

    with ThreadPoolExecutor(1) as pool:
        second: list[Any] = []

        def start_second() -> None:
            second.append(pool.submit(publish, lambda: None))
            with pytest.raises(TimeoutError):
                second[0].result(0.5)

        assert publish(start_second)
        assert not second[0].result(20)
    with connected(postgres_url) as connection:
        assert connection.execute(select(table.c.shard, table.c.seq)).all() == [("s", 1)]
