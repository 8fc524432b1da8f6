"""What differs between kinds of databases: statements, types, and tables that a person has made."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.engine.default import DefaultDialect

from tests.mariadb import MariaDbServer
from tests.sinks.sql.sink import Sink, emission
from tidegate.errors import SettingsInvalid, SetupFailed, SinkRefused
from tidegate.extras import missing_extra
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.dialects.base import parameters
from tidegate.sinks.sql.dialects.merge import Merge
from tidegate.sinks.sql.schema import check_emissions

KEYS = ["a", "A", "a ", "á", "a\u0301", "ß", "ss", "😀"]


def test_keys_that_differ_only_in_form_stay_apart(url: str) -> None:
    sink = Sink(url, mode="upsert")
    sink.publish(1, [emission(key, at) for at, key in enumerate(KEYS)])
    sink.publish(2, [emission("A", None), emission("ss", 9)], 1)
    rows = {row["key"]: row["n"] for row in sink.rows()}
    expected = {key: at for at, key in enumerate(KEYS) if key != "A"} | {"ss": 9}
    assert rows == expected


def test_large_values_are_stored_whole(url: str) -> None:
    sink = Sink(url, value=pa.struct([("text", pa.string()), ("raw", pa.binary())]))
    value = {"text": "ä" * 100_000, "raw": b"\x00" * 100_000}
    sink.publish(1, [emission("k", value)])
    assert [{name: row[name] for name in value} for row in sink.rows()] == [value]


STATEMENTS = {
    "mssql": (
        mssql.dialect(),
        "MERGE INTO visitor_batches WITH (HOLDLOCK) AS t USING (SELECT :c0 AS [key], :c1 AS n",
        "NVARCHAR(750) COLLATE Latin1_General_100_BIN2",
        ";",
    ),
    "oracle": (
        oracle.dialect(),
        'MERGE INTO visitor_batches t USING (SELECT :c0 AS "KEY", :c1 AS n',
        "VARCHAR2(750 CHAR)",
        ")",
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_upsert_of_other_databases_is_a_merge(name: str) -> None:
    dialect, begin, key, end = STATEMENTS[name]
    assert dialect_named(name).name_type(dialect, 750).compile(dialect) == key
    table = Sink("", mode="upsert").layout().table
    statement = str(dialect_named(name).upsert(table, ["c0"]).compile(dialect=dialect))
    assert "WHEN MATCHED THEN UPDATE SET" in statement
    assert "WHEN NOT MATCHED THEN INSERT" in statement
    assert statement.startswith(begin[:40])
    assert statement.endswith(end)


def test_merge_replaces_and_inserts_in_postgresql(postgres_url: str) -> None:
    sink = Sink(postgres_url, mode="upsert", value=pa.struct([("a b", pa.int64())]))
    sink.publish(1, [emission("a", {"a b": 1})])
    layout = sink.layout()
    table = layout.table
    batch = next(sink.batches([emission("a", {"a b": 2}), emission("b", {"a b": 3})]))
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        rows = layout.rows(dialect_named("postgresql"), batch, ("visitors/1", 2), 0)
        connection.execute(Merge(table, [layout.keys["key"]]), parameters(rows))
    engine.dispose()
    assert [(row["key"], row["a b"], row["batch"]) for row in sink.rows()] == [("a", 2, 2), ("b", 3, 2)]


@pytest.mark.parametrize("name", ["mssql", "oracle", "mysql", "duckdb", "postgresql", "sqlite"])
def test_every_type_has_a_column_in_each_database(name: str) -> None:
    types = [pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()]
    types += [pa.date32(), pa.decimal128(20, 3), pa.timestamp("us"), pa.timestamp("us", tz="UTC")]
    types += [pa.list_(pa.int64())]
    dialects = {"mssql": mssql.dialect(), "oracle": oracle.dialect(), "mysql": mysql.dialect()}
    dialects |= dict.fromkeys(("duckdb", "postgresql"), postgresql.dialect())
    compiler = dialects.get(name, DefaultDialect())
    sql = dialect_named(name)
    assert all(sql.column_type(type_).compile(compiler) for type_ in types)


@pytest.mark.parametrize(
    ("name", "number", "says"),
    [
        ("mysql", "nan", "NaN, which MySQL"),
        ("mysql", "-inf", "Infinity, which MySQL"),
        ("sqlite", "nan", "NaN, which SQLite"),
    ],
)
def test_number_that_a_database_lacks_is_refused(name: str, number: str, says: str) -> None:
    sink = Sink("", value=pa.struct([("ratio", pa.float64())]))
    emissions = sink.batches([emission("k", {"ratio": float(number)})])
    with pytest.raises(SinkRefused, match=says):
        check_emissions(dialect_named(name), sink.layout(), emissions)


def test_sqlite_takes_infinite_numbers() -> None:
    sink = Sink("", value=pa.struct([("ratio", pa.float64())]))
    check_emissions(
        dialect_named("sqlite"), sink.layout(), sink.batches([emission("k", {"ratio": math.inf})])
    )


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("ENGINE = MyISAM", "its engine is MyISAM, which has no transactions"),
        ("COLLATE utf8mb4_general_ci", "collation utf8mb4_general_ci, to which keys that differ can be one"),
        (
            "COLLATE utf8mb4_nopad_bin; CREATE UNIQUE INDEX other ON visitor_batches (n)",
            "its unique index other lets a row replace that of another key",
        ),
    ],
)
def test_mysql_table_that_would_lose_rows_is_refused(mariadb: MariaDbServer, table: str, says: str) -> None:
    sink = Sink(mariadb.new_database(), mode="upsert")
    options, _, index = table.partition("; ")
    sink.query(f"CREATE TABLE visitor_batches (`key` varchar(200) PRIMARY KEY, n bigint) {options}")
    if index:
        sink.query(index)
    with pytest.raises(SinkRefused, match=says):
        sink.publish(1, [emission("a", 1)])
    assert sink.rows("n") == []


def test_value_is_never_cut_by_a_lenient_mysql(mariadb: MariaDbServer) -> None:
    sink = Sink(mariadb.new_database(), value=pa.struct([("name", pa.string())]))
    sink.query("SET GLOBAL sql_mode = ''")
    sink.publish(1, [emission("a", {"name": "x"})])
    sink.query("ALTER TABLE visitor_batches MODIFY name varchar(3)")
    with pytest.raises(SinkRefused, match="Data too long"):
        sink.publish(2, [emission("a", {"name": "xxxx"})], 1)
    assert [row["name"] for row in sink.rows()] == ["x"]


def test_missing_dialect_of_duckdb_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.dialects import registry

    monkeypatch.setattr(registry, "load", lambda name: (_ for _ in ()).throw(_no_module(name)))
    with pytest.raises(SetupFailed, match=r"tidegate\[duckdb\]"):
        Database("duckdb:////file.db", "TIDEGATE_SQL")
    assert missing_extra(ModuleNotFoundError(name=None)) is None


@pytest.mark.parametrize("name", ["bigquery", "clickhouse+http", "clickhousedb", "redshift+psycopg2"])
def test_database_without_exactly_once_is_refused(name: str) -> None:
    with pytest.raises(SettingsInvalid, match="cannot write to exactly once: ") as caught:
        Database(f"{name}://me:hunter2@host/db", "TIDEGATE_SQL")
    assert "hunter2" not in str(caught.value)
    assert ("`kind: clickhouse` writes to it" in str(caught.value)) == ("clickhouse" in name)


def _no_module(name: str) -> Exception:
    from sqlalchemy.exc import NoSuchModuleError

    return NoSuchModuleError(f"Can't load plugin: sqlalchemy.dialects:{name}")


def test_statement_of_a_table_is_executed_in_mysql(mariadb: MariaDbServer) -> None:
    sink = Sink(mariadb.new_database(), value=pa.struct([("n", pa.int32())]))
    sink.publish(1, [emission("a", {"n": 1})])
    wider = Sink(sink.url, value=pa.struct([("n", pa.int64())]))
    with pytest.raises(SinkRefused, match="no room") as caught:
        wider.publish(2, [emission("a", {"n": 2})], 1)
    engine = create_engine(sink.url)
    with engine.begin() as connection:
        connection.execute(text(caught.value.fix.split("`", 1)[1].rpartition("`")[0]))
    engine.dispose()
    assert wider.publish(2, [emission("a", {"n": 2**40})], 1) == 1


@pytest.mark.parametrize(
    ("key", "index", "says"),
    [
        ("citext PRIMARY KEY", "", "column key is citext.* to which keys that differ can be one"),
        ("text COLLATE nocase PRIMARY KEY", "", "COLLATE nocase, to which keys that differ can be one"),
        ("text", 'CREATE UNIQUE INDEX i ON visitor_batches ("key") WHERE n > 0', "of some rows only"),
        ("text UNIQUE DEFERRABLE", "", "or is deferrable"),
    ],
)
def test_postgresql_key_that_is_unfit_is_refused(postgres_url: str, key: str, index: str, says: str) -> None:
    sink = Sink(postgres_url, mode="upsert")
    sink.query("CREATE EXTENSION citext") if "citext" in key else None
    sink.query("CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    sink.query(f'CREATE TABLE visitor_batches ("key" {key}, n bigint)')
    if index:
        sink.query(index)
    with pytest.raises(SinkRefused, match=says):
        sink.publish(1, [emission("a", 1), emission("A", 2)])
    assert sink.rows("n") == []


def test_system_column_of_postgresql_is_refused(postgres_url: str) -> None:
    sink = Sink(postgres_url, value=pa.struct([("xmin", pa.int64())]))
    with pytest.raises(SinkRefused, match="has a column xmin already"):
        check_emissions(
            dialect_named("postgresql"), sink.layout(), sink.batches([emission("k", {"xmin": 1})])
        )


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_column_in_another_case_is_refused_early(tmp_path: Path, kind: str) -> None:
    sink = Sink(f"{kind}:///{tmp_path / 'd.db'}", value=pa.struct([("Total", pa.int64())]))
    sink.publish(1, [emission("k", {"Total": 1})])
    edited = replace(sink, value=pa.struct([("total", pa.int64())]))
    with pytest.raises(SinkRefused, match="has the column Total, and total is emitted"):
        edited.publish(2, [emission("k", {"total": 2})], 1)


def test_sqlite_key_that_ignores_case_is_refused(tmp_path: Path) -> None:
    sink = Sink(f"sqlite:///{tmp_path / 'd.db'}", mode="upsert")
    sink.query('CREATE TABLE visitor_batches ("key" text COLLATE NOCASE PRIMARY KEY, n bigint)')
    with pytest.raises(SinkRefused, match="collation NOCASE, to which keys that differ can be one"):
        sink.publish(1, [emission("a", 1), emission("A", 2)])
    assert sink.rows("n") == []
