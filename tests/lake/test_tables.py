"""Tables for others: each change is there once, whatever goes wrong, and nothing that is not committed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tests.lake.files_for_tests import SCHEMA, row
from tidegate.errors import LakeDamaged, LakeUnavailable
from tidegate.lake.layout import files_folder
from tidegate.lake.manifest import DataFile
from tidegate.lake.store import Store
from tidegate.lake.tables import SharedTable, TableChange, newest_rows_sql
from tidegate.lake.writer import RowWriter

APPLICATION, FOLDER = "availability/g1", "availability/g1/s/state"


@pytest.fixture
def table(tmp_path: Path) -> SharedTable:
    return SharedTable(Store(str(tmp_path / "a lake")), FOLDER, SCHEMA)


def written(table: SharedTable, name: str, rows: Sequence[dict[str, Any]]) -> DataFile:
    path = f"{files_folder(table.folder, name)}/0.parquet"
    with RowWriter(table.store, path, "state", "s") as file:
        file.write(pa.RecordBatch.from_pylist(rows, table.schema))
    assert file.file is not None
    return file.file


def batch(table: SharedTable, seq: int, *hashes: int) -> TableChange:
    return TableChange(seq, (written(table, f"attempt-{seq}", [row(h, seq) for h in hashes or (seq,)]),))


def duck(query: str) -> list[tuple[Any, ...]]:
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return connection.execute(query).fetchall()


def scan(table: SharedTable) -> str:
    return f"delta_scan('{table.store.uri(table.folder)}')"


def rows_of(table: SharedTable) -> list[tuple[int, int]]:
    """(hash, updated_seq) of all rows, by three readers that know nothing of tidegate."""
    opened = DeltaTable(table.store.uri(table.folder))
    by_arrow = opened.to_pyarrow_table(columns=["hash", "updated_seq"])
    by_datafusion = pa.table(
        QueryBuilder().register("state", opened).execute("SELECT hash, updated_seq FROM state").read_all()
    )
    rows = sorted(duck(f"SELECT hash, updated_seq FROM {scan(table)}"))
    for other in (by_arrow, by_datafusion):
        assert sorted(tuple(stored.values()) for stored in other.to_pylist()) == rows
    return rows


def test_a_plain_reader_sees_the_rows_of_committed_batches_and_no_others(table: SharedTable) -> None:
    changes = [batch(table, seq) for seq in (1, 2)]
    written(table, "attempt-9", [row(9, 9)])
    table.catch_up(APPLICATION, changes)
    assert rows_of(table) == [(1, 1), (2, 2)]
    assert table.last_number(APPLICATION) == 2


def test_before_the_first_change_there_is_none(table: SharedTable) -> None:
    assert table.last_number(APPLICATION) == 0
    table.catch_up(APPLICATION, [])
    assert table.last_number(APPLICATION) == 0


def test_changes_that_the_table_has_are_not_applied_again(table: SharedTable) -> None:
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    table.catch_up(APPLICATION, changes[:2])
    table.catch_up(APPLICATION, changes)
    assert rows_of(table) == [(1, 1), (2, 2), (3, 3)]
    assert DeltaTable(table.store.uri(table.folder)).version() == 3


def test_two_applications_count_for_themselves(table: SharedTable) -> None:
    table.catch_up(APPLICATION, [batch(table, 5)])
    table.catch_up("other", [batch(table, 1)])
    assert (table.last_number(APPLICATION), table.last_number("other")) == (5, 1)


def test_of_many_that_catch_up_at_once_each_change_is_there_once(table: SharedTable) -> None:
    changes = [batch(table, seq) for seq in range(1, 6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: table.catch_up(APPLICATION, changes), range(6)))
    assert rows_of(table) == [(seq, seq) for seq in range(1, 6)]
    # delta-rs may create a table twice, of two at once; the second time changes nothing
    operations = [commit["operation"] for commit in DeltaTable(table.store.uri(table.folder)).history()]
    assert operations.count("WRITE") == len(changes)


def test_one_that_is_late_changes_nothing(table: SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has looked, and then sleeps until others have gone on, and removed what it would add."""
    first, second = batch(table, 1), batch(table, 2)
    table.catch_up(APPLICATION, [batch(table, 0)])
    commit = SharedTable._commit

    def late(self: SharedTable, *arguments: Any) -> None:
        monkeypatch.setattr(SharedTable, "_commit", commit)
        rearranged = TableChange(3, (), first.added)
        table.catch_up(APPLICATION, [first, second, rearranged])
        commit(self, *arguments)

    monkeypatch.setattr(SharedTable, "_commit", late)
    table.catch_up(APPLICATION, [first])
    assert rows_of(table) == [(2, 2)]


@pytest.mark.parametrize("error", [OSError("no answer"), DeltaError("no answer")])
def test_a_change_whose_answer_was_lost_is_there_once(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    commit = DeltaTable.create_write_transaction

    def lose(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        commit(self, *arguments, **options)
        raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose)
    table.catch_up(APPLICATION, [batch(table, 1), batch(table, 2)])
    assert rows_of(table) == [(1, 1), (2, 2)]
    assert DeltaTable(table.store.uri(table.folder)).version() == 2


def test_a_change_that_failed_is_a_typed_error_and_comes_the_next_time(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = batch(table, 1)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full\nsecond line")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", fail)
        with pytest.raises(LakeUnavailable, match=r"s/state cannot be used: disk full\."):
            table.catch_up(APPLICATION, [change])
    table.catch_up(APPLICATION, [change])
    assert rows_of(table) == [(1, 1)]


def test_a_snapshot_takes_the_place_of_what_it_was_folded_from(table: SharedTable) -> None:
    changes = [batch(table, 1, 1, 2), batch(table, 2, 2, 3), batch(table, 3)]
    table.catch_up(APPLICATION, changes)
    folded = written(table, "snapshot-2", [row(1, 1), row(2, 2), row(3, 2)])
    gone = (*changes[0].added, *changes[1].added)
    snapshot = TableChange(2, (folded,), gone, is_rearranged=True)
    table.catch_up(f"{APPLICATION}/snapshots", [snapshot])
    assert rows_of(table) == [(1, 1), (2, 2), (3, 2), (3, 3)]
    assert table.last_number(APPLICATION) == 3


def test_a_file_outside_of_the_table_is_refused(table: SharedTable) -> None:
    change = TableChange(1, (DataFile("state", "s", "elsewhere/1", 1, 1, ""),))
    with pytest.raises(LakeDamaged, match="not below the table"):
        table.catch_up(APPLICATION, [change])


def test_a_vacuum_leaves_files_alone_whose_batch_is_not_committed_yet(table: SharedTable) -> None:
    table.catch_up(APPLICATION, [batch(table, 1)])
    pending = batch(table, 2)
    opened = DeltaTable(table.store.uri(table.folder))
    opened.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table.catch_up(APPLICATION, [pending])
    assert rows_of(table) == [(1, 1), (2, 2)]


def test_columns_and_fields_that_an_edit_adds_are_null_in_older_rows(table: SharedTable) -> None:
    table.catch_up(APPLICATION, [batch(table, 1)])
    value = pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())])
    schema = SCHEMA.set(SCHEMA.get_field_index("value"), pa.field("value", value))
    wider = SharedTable(table.store, table.folder, schema.append(pa.field("bytes", pa.int64())))
    newer = row(2, 2) | {"value": {"n": 2, "more": "x"}, "bytes": 7}
    wider.catch_up(APPLICATION, [TableChange(2, (written(wider, "attempt-2", [newer]),))])
    table.catch_up(APPLICATION, [batch(table, 3)])  # by one that still has the older file
    assert rows_of(table) == [(1, 1), (2, 2), (3, 3)]
    query = f"SELECT value.more, bytes FROM {scan(table)} ORDER BY hash"
    assert duck(query) == [(None, None), ("x", 7), (None, None)]


def test_readers_can_skip_files_by_their_hashes(table: SharedTable) -> None:
    table.catch_up(APPLICATION, [batch(table, 1, -5, 2**60)])
    (log,) = (table.store.root / Path(table.folder) / "_delta_log").glob("*1.json")
    (added,) = (json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line)
    statistics = json.loads(added["stats"])
    assert statistics["minValues"] == {"hash": -5}
    assert statistics["maxValues"] == {"hash": 2**60}


def test_the_view_gives_one_row_per_entry_that_is_live(table: SharedTable) -> None:
    changes = [
        [row(1, 1), row(2, 1), row(3, 1, window=0), row(3, 1, window=10)],
        [row(1, 2), row(2, 2, live=False), row(3, 2, window=10)],
    ]
    table.catch_up(
        APPLICATION,
        [TableChange(n, (written(table, f"a{n}", rows),)) for n, rows in enumerate(changes, start=1)],
    )
    expected = [(1, None, 2), (3, 0, 1), (3, 10, 2)]
    columns = "hash, window_start, updated_seq"
    assert sorted(duck(f"SELECT {columns} FROM ({newest_rows_sql(scan(table))})"), key=str) == expected
    engine = QueryBuilder().register("state", DeltaTable(table.store.uri(table.folder)))
    rows = engine.execute(f"SELECT {columns} FROM ({newest_rows_sql('state')})").read_all()
    assert sorted((tuple(found.values()) for found in pa.table(rows).to_pylist()), key=str) == expected


VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "small": (pa.int8(), -3),
    "real": (pa.float64(), 0.5),
    "exact": (pa.decimal128(20, 2), Decimal("12345678901234567.89")),
    "raw": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), date(2024, 2, 29)),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc)),
    "local": (pa.timestamp("us"), datetime(2024, 2, 29, 1, 2, 3, 4)),
    "many": (pa.list_(pa.struct([pa.field("key", pa.string())])), [{"key": "a"}]),
    "pairs": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_read_as_they_were_written(tmp_path: Path, name: str) -> None:
    type_, value = VALUES[name]
    schema = pa.schema([pa.field("value", pa.struct([pa.field(name, type_)]))])
    table = SharedTable(Store(str(tmp_path)), FOLDER, schema)
    table.catch_up(APPLICATION, [TableChange(1, (written(table, "a1", [{"value": {name: value}}]),))])
    opened = DeltaTable(table.store.uri(table.folder))
    assert opened.to_pyarrow_table()["value"].to_pylist() == [{name: value}]
    ((found,),) = duck(f"SELECT value FROM {scan(table)}")
    assert found == {name: dict(value) if name == "pairs" else value}
