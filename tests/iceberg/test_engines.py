"""What Spark reads of Iceberg tables without tidegate, by a SQL catalog and by a REST catalog.

Both catalogs are opened by their names alone, as a platform's are.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.conftest import REPOSITORY
from tests.iceberg.rest_catalog import jars, rest_catalog
from tests.sinks.iceberg.lakehouse import NAME, UPSERT, Lakehouse
from tests.storage import spark_reader
from tests.storage.files_for_tests import row
from tests.storage.tables_for_tests import (
    VALUES,
    batch,
    catch_up,
    change_of,
    newest_rows_sql,
    put_several_rows_of_an_entry,
    put_wider_rows,
    written,
)
from tidegate.errors import LakeDamaged
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.iceberg.tables import IcebergFormat
from tidegate.storage.schema import STATE_COLUMNS
from tidegate.storage.store import Store
from tidegate.storage.tables import SharedTable, TableChange

pytestmark = [pytest.mark.spark, pytest.mark.long]

Rows = list[dict[str, Any]]


def _put_an_uncommitted_attempt(table: SharedTable) -> None:
    written(table, "attempt-9", [row(9, 9)])
    catch_up(table, [batch(table, 1), batch(table, 2)])


def _put_a_snapshot(table: SharedTable) -> None:
    changes = [batch(table, 1), batch(table, 2)]
    folded = written(table, "snapshot-2", [row(1, 1), row(2, 2)])
    removed = {file.path: file.bytes for change in changes for file in change.added}
    catch_up(table, [*changes, TableChange({"snapshots": 2}, (folded,), removed, is_rearranged=True)])


def _put_promoted_columns(table: SharedTable) -> None:
    narrow = pa.struct([("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(9, 2))])
    wide = pa.struct([("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(14, 2))])
    for seq, type_ in enumerate([narrow, wide, narrow], start=1):
        value = pa.array([{"n": seq, "f": 0.5, "d": seq}], type_)
        schema = pa.schema([pa.field("hash", pa.int64()), pa.field("value", type_)])
        file = written(table, f"a{seq}", [{"hash": seq, "value": value[0].as_py()}], schema)
        catch_up(table, [change_of(seq, file)])


def _put_values_of_every_type(table: SharedTable) -> None:
    schema = pa.schema([pa.field("value", pa.struct([pa.field(name, VALUES[name][0]) for name in VALUES]))])
    rows = [{"value": {name: VALUES[name][1] for name in VALUES}}]
    catch_up(table, [change_of(1, written(table, "a1", rows, schema))])


TABLES: dict[str, tuple[Callable[[SharedTable], object], str]] = {
    "uncommitted": (_put_an_uncommitted_attempt, "SELECT hash, updated_seq FROM {table} ORDER BY hash"),
    "rearranged": (_put_a_snapshot, "SELECT hash, updated_seq FROM {table} ORDER BY hash"),
    "skipped": (_put_a_snapshot, "SELECT hash FROM {table} WHERE hash = 2"),
    "several": (
        put_several_rows_of_an_entry,
        "SELECT hash, window_start, updated_seq FROM ({view}) ORDER BY hash, window_start",
    ),
    "wider": (put_wider_rows, "SELECT value.more, bytes FROM {table} ORDER BY hash"),
    "promoted": (
        _put_promoted_columns,
        "SELECT value.n, value.f, int(value.d) AS d FROM {table} ORDER BY hash",
    ),
    "values": (_put_values_of_every_type, "SELECT value FROM {table}"),
}


def config_of(uri: str, warehouse: Path) -> CatalogConfig:
    properties = {"uri": uri, "name": "sql", "warehouse": str(warehouse)}
    return CatalogConfig.parse(json.dumps({"uri": uri} if uri.startswith("http") else properties))


def table_of(config: CatalogConfig, folder: Path, name: str) -> SharedTable:
    return IcebergFormat(config).table_in(Store(str(folder / "lake")), f"{name}/g1/s/state", STATE_COLUMNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def rest(folder: Path) -> Iterator[str]:
    with rest_catalog(folder) as url:
        yield url


@pytest.fixture(scope="module")
def seen(folder: Path, rest: str) -> dict[str, Rows]:
    """Return Spark's answers by catalog and table."""
    queries = {}
    for kind, uri in {"sql": f"sqlite:///{folder}/catalog.db", "rest": rest}.items():
        config = config_of(uri, folder / "warehouse")
        for name, (fill, query) in TABLES.items():
            fill(table_of(config, folder, f"{kind}_{name}"))
            source = f"{kind}.{kind}_{name}_g1.s_state"
            view = newest_rows_sql(source).replace('"', "`")
            queries[f"{kind}:{name}"] = query.format(table=source, view=view)
    asked, results, options = (folder / name for name in ("queries.json", "results", "options.json"))
    asked.write_text(json.dumps(list(queries.values())))
    options.write_text(
        json.dumps(
            {
                "spark.sql.catalog.sql": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.sql.type": "jdbc",
                "spark.sql.catalog.sql.uri": f"jdbc:sqlite:{folder}/catalog.db",
                "spark.sql.catalog.sql.warehouse": str(folder / "warehouse"),
                "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.rest.type": "rest",
                "spark.sql.catalog.rest.uri": rest,
            }
        )
    )
    sqlite = [jar for jar in jars("rest") if jar.name.startswith("sqlite")]
    arguments = [",".join(map(str, [*jars("spark"), *sqlite])), str(asked), str(results), str(options)]
    command = [sys.executable, "-m", spark_reader.__name__, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Rows] = pickle.loads(results.read_bytes())
    return dict(zip(queries, answers, strict=True))


CATALOGS = pytest.mark.parametrize("kind", ["sql", "rest"])


@CATALOGS
def test_spark_sees_rows_of_committed_batches_only(seen: dict[str, Rows], kind: str) -> None:
    for name in ("uncommitted", "rearranged"):
        assert seen[f"{kind}:{name}"] == [{"hash": seq, "updated_seq": seq} for seq in (1, 2)]
    assert seen[f"{kind}:skipped"] == [{"hash": 2}]


@CATALOGS
def test_page_view_has_one_row_per_live_entry(seen: dict[str, Rows], kind: str) -> None:
    rows = [tuple(answer.values()) for answer in seen[f"{kind}:several"]]
    assert rows == [(1, None, 2), (3, 0, 1), (3, 10, 2)]


@CATALOGS
def test_spark_follows_an_edit_of_columns(seen: dict[str, Rows], kind: str) -> None:
    assert [tuple(answer.values()) for answer in seen[f"{kind}:wider"]] == [(None, None), ("x", 7)]
    promoted = [tuple(answer.values()) for answer in seen[f"{kind}:promoted"]]
    assert promoted == [(seq, 0.5, seq) for seq in (1, 2, 3)]


@CATALOGS
@pytest.mark.parametrize("name", VALUES)
def test_spark_reads_values_of_every_type(seen: dict[str, Rows], kind: str, name: str) -> None:
    (read,) = seen[f"{kind}:values"]
    _, value = VALUES[name]
    expected = dict(value) if name == "pairs" else value
    if isinstance(expected, datetime) and read["value"][name].tzinfo is None:
        expected = expected.replace(tzinfo=None)  # PySpark's instants are naive, in the process's zone
    assert read["value"][name] == expected


def test_rest_catalog_refuses_an_overtaken_commit(folder: Path, rest: str) -> None:
    config = config_of(rest, folder)
    table = table_of(config, folder, "overtaken")
    changes = [batch(table, seq) for seq in (1, 2)]
    catch_up(table, changes[:1])
    with table.opened() as version:
        assert version is not None
        catch_up(table, changes)
        error = version.apply(changes[1])
        assert isinstance(error, version.conflict)
    assert RestCatalog("x", uri=rest).load_table("overtaken_g1.s_state").scan().to_arrow().num_rows == 2


def test_rest_catalog_knows_the_lake_of_a_table(folder: Path, rest: str) -> None:
    config = config_of(rest, folder)
    table = table_of(config, folder, "placed")
    catch_up(table, [batch(table, 1)])
    with pytest.raises(LakeDamaged, match="another installation's"):
        table_of(config, folder / "other", "placed").check()
    table.remove()
    table.check()


def test_sink_publishes_through_a_rest_catalog(tmp_path: Path, rest: str) -> None:
    stream = Lakehouse(tmp_path, UPSERT, properties=json.dumps({"uri": rest}))
    stream.decide(1, ("a", 1), ("b", 1))
    stream.decide(2, ("a", 2), ("b", None))
    rows = RestCatalog("x", uri=rest).load_table(NAME).scan(selected_fields=("key", "n")).to_arrow()
    assert rows.to_pylist() == [{"key": "a", "n": 2}]
