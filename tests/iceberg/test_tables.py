"""Tables for other engines in an Iceberg catalog, where they differ from Delta tables (`tests/app`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.sinks.iceberg.lakehouse import Lakehouse, duck
from tests.storage.files_for_tests import SCHEMA, row
from tests.storage.s3_server import BUCKET, s3_of_this_process
from tests.storage.tables_for_tests import (
    FOLDER,
    VALUES,
    batch,
    catch_up,
    change_of,
    newest_rows_sql,
    put_several_rows_of_an_entry,
    put_wider_rows,
    written,
)
from tidegate import failpoints
from tidegate.errors import (
    LakeDamaged,
    SchemaChanged,
    SettingsInvalid,
    SinkRefused,
    SinkUnavailable,
    Transient,
)
from tidegate.iceberg import tables
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.iceberg.tables import IcebergFormat
from tidegate.settings import Settings
from tidegate.storage.delta_tables import DeltaFormat
from tidegate.storage.schema import STATE_COLUMNS
from tidegate.storage.store import Store
from tidegate.storage.tables import SharedTable, TableChange

NAME = "availability_g1.s_state"


def format_in(folder: Path) -> IcebergFormat:
    url = f"sqlite:///{folder}/catalog.db"
    return IcebergFormat(CatalogConfig.parse(json.dumps({"uri": url, "warehouse": f"file://{folder}/w"})))


def table_in(folder: Path, lake: str = "a lake") -> SharedTable:
    return format_in(folder).table_in(Store(str(folder / lake)), FOLDER, STATE_COLUMNS)


def in_catalog(folder: Path) -> Table:
    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db").load_table(NAME)


def scan(folder: Path) -> str:
    return f"iceberg_scan('{in_catalog(folder).metadata_location}')"


def values_of(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of all rows, by two readers."""
    read = in_catalog(folder).scan(selected_fields=columns).to_arrow().select(list(columns))
    rows = sorted((tuple(stored.values()) for stored in read.to_pylist()), key=str)
    assert duck(f"SELECT {', '.join(columns)} FROM {scan(folder)}") == rows
    return rows


def decimals(precision: int, scale: int) -> pa.Schema:
    value = pa.struct([pa.field("n", pa.decimal128(precision, scale))])
    return pa.schema([pa.field("hash", pa.int64()), pa.field("value", value)])


@pytest.fixture
def table(tmp_path: Path) -> SharedTable:
    return table_in(tmp_path)


def test_summary_names_batch_and_offsets(table: SharedTable, tmp_path: Path) -> None:
    facts = {"seq": "1", "offsets": '{"events-0": 7}'}
    change = TableChange({"availability/1": 1}, batch(table, 1).added, batch=lambda: facts)
    catch_up(table, [change])
    summary = in_catalog(tmp_path).metadata.snapshots[-1].summary
    assert summary is not None
    assert (summary["tidegate.seq"], summary["tidegate.offsets"]) == ("1", '{"events-0": 7}')


def test_iceberg_names_the_files_of_batches(table: SharedTable, tmp_path: Path) -> None:
    change = batch(table, 1)
    catch_up(table, [change])
    (task,) = in_catalog(tmp_path).scan().plan_files()
    assert task.file.file_path == table.store.uri(change.added[0].path)
    (file,) = change.added
    with table.opened() as version:
        assert version is not None
        assert version.files() == {file.path: file.bytes}


def test_edit_adds_columns_as_null(table: SharedTable, tmp_path: Path) -> None:
    put_wider_rows(table)
    catch_up(table, [batch(table, 3)])
    assert values_of(tmp_path, "hash", "updated_seq") == [(1, 1), (2, 2), (3, 3)]
    query = f"SELECT value.more, bytes FROM {scan(tmp_path)} ORDER BY hash"
    assert duck(query) == [("x", 7), (None, None), (None, None)]


def test_promoted_column_reads_older_files(table: SharedTable, tmp_path: Path) -> None:
    narrow = pa.struct([("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(9, 2))])
    wide = pa.struct([("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(14, 2))])
    for seq, type_ in enumerate([narrow, wide, narrow], start=1):
        value = pa.array([{"n": seq, "f": 0.5, "d": seq}], type_)
        schema = pa.schema([pa.field("hash", pa.int64()), pa.field("value", type_)])
        file = written(table, f"a{seq}", [{"hash": seq, "value": value[0].as_py()}], schema)
        catch_up(table, [change_of(seq, file)])
    assert duck(f"SELECT value.n, value.f, value.d::int FROM {scan(tmp_path)}") == [
        (seq, 0.5, seq) for seq in (1, 2, 3)
    ]


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_read(tmp_path: Path, table: SharedTable, name: str) -> None:
    type_, value = VALUES[name]
    schema = pa.schema([pa.field("value", pa.struct([pa.field(name, type_)]))])
    catch_up(table, [change_of(1, written(table, "a1", [{"value": {name: value}}], schema))])
    assert in_catalog(tmp_path).scan().to_arrow()["value"].to_pylist() == [{name: value}]
    ((stored,),) = duck(f"SELECT value FROM {scan(tmp_path)}")
    assert stored == {name: dict(value) if name == "pairs" else value}


def test_unsupported_promotion_is_refused_before_commit(table: SharedTable) -> None:
    first, second = (
        written(table, name, [{"hash": 1, "value": None}], schema)
        for name, schema in [("a1", decimals(9, 2)), ("a2", decimals(14, 4))]
    )
    catch_up(table, [change_of(1, first)])
    with pytest.raises(SchemaChanged, match=r"availability_g1\.s_state cannot take .*\. Raise `generation`"):
        table.check([second])


def test_view_gives_one_row_per_live_entry(table: SharedTable, tmp_path: Path) -> None:
    expected = put_several_rows_of_an_entry(table)
    query = f"SELECT hash, window_start, updated_seq FROM ({newest_rows_sql(scan(tmp_path))})"
    assert sorted(duck(query), key=str) == expected


def test_rearranged_snapshot_is_a_replacement(table: SharedTable, tmp_path: Path) -> None:
    changes = [batch(table, 1), batch(table, 2)]
    folded = written(table, "snapshot-2", [row(1, 1), row(2, 2)])
    removed = {file.path: file.bytes for change in changes for file in change.added}
    catch_up(table, [*changes, TableChange({"snapshots": 2}, (folded,), removed, is_rearranged=True)])
    operations = [snapshot.summary.operation.value for snapshot in _snapshots(tmp_path) if snapshot.summary]
    assert operations == ["append", "append", "replace"]
    assert values_of(tmp_path, "hash", "updated_seq") == [(1, 1), (2, 2)]


def _snapshots(folder: Path) -> Sequence[Any]:
    return in_catalog(folder).metadata.snapshots


def test_table_keeps_a_bounded_number_of_snapshots(
    table: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SNAPSHOTS", 3)
    for seq in range(1, 7):
        catch_up(table, [batch(table, seq)])
    assert len(_snapshots(tmp_path)) == 3
    assert len(values_of(tmp_path, "hash")) == 6


def test_expired_snapshots_leave_no_metadata(
    table: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(table, [batch(table, seq) for seq in (1, 2, 3)])
    folded = written(table, "snapshot-2", [row(1, 1), row(2, 2), row(3, 3)])
    with table.opened() as version:
        assert version is not None
        removed = version.files()
    catch_up(table, [TableChange({"snapshots": 3}, (folded,), removed, is_rearranged=True)])
    before = len(table.store.listed(f"{FOLDER}/metadata"))
    table.expire("snapshots", 3, until=0)
    assert len(_snapshots(tmp_path)) == 1
    assert len(table.store.listed(f"{FOLDER}/metadata")) == before + 1  # too young to be removed
    table.expire("snapshots", 3, until=4e9)
    lists = [file for file in table.store.listed(f"{FOLDER}/metadata") if "snap-" in file.path]
    assert len(lists) == 1
    assert values_of(tmp_path, "hash") == [(1,), (2,), (3,)]


def test_branch_keeps_its_snapshot(table: SharedTable, tmp_path: Path) -> None:
    catch_up(table, [batch(table, 1)])
    first = _snapshots(tmp_path)[0].snapshot_id
    in_catalog(tmp_path).manage_snapshots().create_tag(first, "audit").commit()
    catch_up(table, [batch(table, 2), TableChange({"snapshots": 2})])
    table.expire("snapshots", 2, until=4e9)
    assert [snapshot.snapshot_id == first for snapshot in _snapshots(tmp_path)] == [True, False]
    assert in_catalog(tmp_path).scan(snapshot_id=first).to_arrow().num_rows == 1


def test_rolled_back_table_gets_its_batches_again(table: SharedTable, tmp_path: Path) -> None:
    changes = [batch(table, seq) for seq in (1, 2)]
    catch_up(table, changes)
    first = _snapshots(tmp_path)[0].snapshot_id
    in_catalog(tmp_path).manage_snapshots().set_current_snapshot(first).commit()
    assert table.number("availability/1") == 1
    catch_up(table, changes)
    assert values_of(tmp_path, "hash") == [(1,), (2,)]


def test_table_of_another_lake_is_refused(table: SharedTable, tmp_path: Path) -> None:
    catch_up(table, [batch(table, 1)])
    other = table_in(tmp_path, "another lake")
    for use in (other.check, lambda: catch_up(other, [])):
        with pytest.raises(LakeDamaged, match="another installation's"):
            use()


def test_table_of_another_program_is_refused(table: SharedTable, tmp_path: Path) -> None:
    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("availability_g1")
    catalog.create_table(NAME, SCHEMA)
    with pytest.raises(LakeDamaged, match="was not made by tidegate"):
        table.check()


@pytest.mark.parametrize("first", ["delta", "iceberg"])
def test_table_of_another_format_is_never_left_behind(tmp_path: Path, first: str) -> None:
    store = Store(str(tmp_path / "lake"))
    iceberg = format_in(tmp_path).table_in(store, FOLDER, STATE_COLUMNS)
    delta = DeltaFormat().table_in(store, FOLDER, STATE_COLUMNS)
    older, newer = (delta, iceberg) if first == "delta" else (iceberg, delta)
    change = batch(older, 1)
    catch_up(older, [change])
    with pytest.raises(SettingsInvalid, match=rf"has the format {first}, and TIDEGATE_TABLES asks for"):
        catch_up(newer, [change])
    older.remove()
    catch_up(newer, [change])
    assert newer.number("availability/1") == 1


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", ["tables.expire", "tables.clean", "tables.remove", "iceberg.commit"])
def test_failed_maintenance_is_completed_later(
    table: SharedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    catch_up(table, [batch(table, 1), TableChange({"snapshots": 1})])
    monkeypatch.setattr(failpoints, "_hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")

    def maintain() -> None:
        table.expire("snapshots", 1, until=4e9)
        table.remove()

    with pytest.raises((failpoints.FailpointRaised, Transient)):
        maintain()
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    maintain()
    assert table.store.listed(f"{FOLDER}/metadata") == []
    catch_up(table, [batch(table, 2)])
    assert values_of(tmp_path, "hash") == [(2,)]


def test_postgresql_catalog_has_tables_and_sinks(tmp_path: Path, postgres_url: str) -> None:
    stream = Lakehouse(tmp_path, catalog=postgres_url)
    stream.decide(1, ("a", 1))
    stream.decide(2, ("b", 2))
    assert stream.rows() == [("a", 1, 1), ("b", 2, 2)]
    shared = IcebergFormat(CatalogConfig.parse(stream.environment["TIDEGATE_ICEBERG"]))
    table = shared.table_in(Store(str(tmp_path / "lake")), FOLDER, STATE_COLUMNS)
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: catch_up(table, changes), range(3)))
    assert stream.catalog.load_table(NAME).scan().to_arrow().num_rows == 3
    assert table.number("availability/1") == 3


def test_engines_may_not_delete_data_files(table: SharedTable, tmp_path: Path) -> None:
    catch_up(table, [batch(table, 1)])
    assert in_catalog(tmp_path).properties["gc.enabled"] == "false"


def test_unreachable_catalog_is_a_typed_error(table: SharedTable, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(SinkUnavailable, match="TIDEGATE_ICEBERG"):
        table.check()


def test_address_without_a_catalog_is_refused(tmp_path: Path) -> None:
    folder = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), folder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = CatalogConfig.parse(f"http://127.0.0.1:{server.server_port}/elsewhere")
        try:
            with pytest.raises(SinkRefused, match=r"TIDEGATE_ICEBERG.*404"), config.opened():
                pass
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("", None),
        ("delta", None),
        ("iceberg", "TIDEGATE_ICEBERG"),
        ("iceberg:lake", "TIDEGATE_ICEBERG_LAKE"),
    ],
)
def test_setting_names_the_format_of_tables(text: str, variable: str | None) -> None:
    tables_ = Settings.from_environment({"TIDEGATE_TABLES": text}).tables
    assert (tables_ and tables_.variable) == variable


@pytest.mark.parametrize("text", ["hudi", "iceberg:", "delta:lake", "iceberg:Lake"])
def test_unknown_format_of_tables_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"TIDEGATE_TABLES is .* Write delta, iceberg, or iceberg:NAME"):
        Settings.from_environment({"TIDEGATE_TABLES": text})


def test_lake_in_an_object_store_has_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_of_this_process(tmp_path / "s3", monkeypatch, attempts=3) as server:
        root = f"s3://{BUCKET}/a lake"
        table = format_in(tmp_path).table_in(Store(root), FOLDER, STATE_COLUMNS)
        catch_up(table, [batch(table, 1), batch(table, 2)])
        region = {"s3.endpoint": server.url, "s3.region": "eu-north-1"}
        read = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", **region).load_table(NAME)
        assert read.location().startswith(root)
        assert sorted(read.scan().to_arrow()["hash"].to_pylist()) == [1, 2]
