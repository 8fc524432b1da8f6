"""Tables for others: each change is there once, whatever goes wrong, and nothing that is not committed."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from tests.storage.files_for_tests import SCHEMA, row
from tests.storage.tables_for_tests import (
    APPLICATION,
    NARROW,
    NARROW_ROW,
    VALUES,
    WIDENED,
    WIDER,
    batch,
    catch_up,
    change_of,
    duck,
    newest_rows_sql,
    number,
    opened,
    put_several_rows_of_an_entry,
    put_widened_rows,
    put_wider_rows,
    scan,
    shared_table,
    values_of,
    written,
)
from tidegate.errors import LakeDamaged, LakeUnavailable, SchemaChanged
from tidegate.storage.delta_tables import SharedDeltaTable, SharedDeltaVersion
from tidegate.storage.manifest import DataFile
from tidegate.storage.store import Store
from tidegate.storage.tables import TableChange


@pytest.fixture
def table(tmp_path: Path) -> SharedDeltaTable:
    return shared_table(Store(str(tmp_path / "a lake")))


def rows_of(table: SharedDeltaTable) -> list[tuple[Any, ...]]:
    """(hash, updated_seq) of all rows."""
    return values_of(table, "hash", "updated_seq")


def operations(table: SharedDeltaTable) -> list[str]:
    return [commit["operation"] for commit in reversed(opened(table).history())]


def test_plain_reader_sees_committed_rows_only(table: SharedDeltaTable) -> None:
    changes = [batch(table, seq) for seq in (1, 2)]
    written(table, "attempt-9", [row(9, 9)])
    catch_up(table, changes)
    assert rows_of(table) == [(1, 1), (2, 2)]
    assert number(table) == 2


def test_empty_table_has_the_columns_of_stages(table: SharedDeltaTable) -> None:
    catch_up(table, [])
    assert number(table) == 0
    assert duck(f"SELECT * FROM ({newest_rows_sql(scan(table), by_place=True)})") == []
    assert pa.schema(opened(table).schema().to_arrow()) == table.columns


def test_applied_changes_are_not_repeated(table: SharedDeltaTable) -> None:
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    catch_up(table, changes[:2])
    catch_up(table, changes)
    assert rows_of(table) == [(1, 1), (2, 2), (3, 3)]
    assert operations(table) == ["CREATE TABLE", "ADD COLUMN", "WRITE", "WRITE", "WRITE"]


def test_the_log_entry_of_a_change_is_flushed(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, flushed = [batch(table, seq) for seq in (1, 2)], list[Path]()
    monkeypatch.setattr("tidegate.storage.store._flush_place", flushed.append)
    catch_up(table, changes)
    log = Path(table.store.uri(table.folder), "_delta_log")
    assert {*log.glob("*.json"), log} <= set(flushed)


def test_a_change_without_files_is_a_number(table: SharedDeltaTable) -> None:
    catch_up(table, [batch(table, 1), TableChange({APPLICATION: 40})])
    assert (number(table), rows_of(table)) == (40, [(1, 1)])


def test_two_applications_count_for_themselves(table: SharedDeltaTable) -> None:
    catch_up(table, [batch(table, 5), batch(table, 1, application="other")])
    assert (number(table), number(table, "other")) == (5, 1)


def test_checkpoints_know_how_far_the_table_is(table: SharedDeltaTable) -> None:
    change = batch(table, 30)
    catch_up(table, [*(TableChange({APPLICATION: seq}) for seq in range(1, 30)), change])
    log = [file.path for file in table.store.listed(f"{table.folder}/_delta_log")]
    assert sum(path.endswith(".checkpoint.parquet") for path in log) == 1
    catch_up(table, [change])
    assert (number(table), rows_of(table)) == (30, [(30, 30)])


def test_concurrent_catch_ups_add_each_change_once(table: SharedDeltaTable) -> None:
    changes = [batch(table, seq) for seq in range(1, 6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: catch_up(table, changes), range(6)))
    assert rows_of(table) == [(seq, seq) for seq in range(1, 6)]
    assert operations(table) == ["CREATE TABLE", "ADD COLUMN", *["WRITE"] * 5]


def test_concurrent_widening_adds_no_change_twice(table: SharedDeltaTable) -> None:
    newer = written(table, "attempt-2", [row(2, 2) | {"value": {"n": 2, "more": "x"}, "bytes": 7}], WIDER)
    changes = [batch(table, 1), change_of(2, newer), batch(table, 3)]
    catch_up(table, changes[:1])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: catch_up(table, changes), range(6)))
    assert rows_of(table) == [(1, 1), (2, 2), (3, 3)]


def test_one_that_is_late_changes_nothing(table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has looked, and then sleeps until others have gone on, and removed what it would add."""
    first, second = batch(table, 1), batch(table, 2)
    catch_up(table, [batch(table, 9, application="earlier")])
    write = SharedDeltaTable.write

    def late(self: SharedDeltaTable, *arguments: Any) -> None:
        monkeypatch.setattr(SharedDeltaTable, "write", write)
        removed = {file.path: file.bytes for file in first.added}
        catch_up(table, [first, second, TableChange({APPLICATION: 3}, removed=removed)])
        write(self, *arguments)

    monkeypatch.setattr(SharedDeltaTable, "write", late)
    catch_up(table, [first])
    assert rows_of(table) == [(2, 2), (9, 9)]


def test_adding_columns_looks_again_before_adding_files(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding columns brings it to the newest version: Delta would not refuse what others did by then."""
    change = batch(table, 1)
    requested = SharedDeltaTable.requested

    def overtaken(self: SharedDeltaTable, *arguments: Any) -> Any:
        monkeypatch.setattr(SharedDeltaTable, "requested", requested)
        catch_up(table, [TableChange({APPLICATION: 1})])
        return requested(self, *arguments)

    catch_up(table, [])
    monkeypatch.setattr(SharedDeltaTable, "requested", overtaken)
    catch_up(table, [change])
    assert rows_of(table) == []


@pytest.mark.parametrize("error", [OSError("no answer"), DeltaError("no answer")])
def test_change_with_a_lost_answer_exists_once(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    commit = DeltaTable.create_write_transaction

    def lose(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        commit(self, *arguments, **options)
        raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose)
    catch_up(table, [batch(table, 1), batch(table, 2)])
    assert rows_of(table) == [(1, 1), (2, 2)]
    assert operations(table).count("WRITE") == 2


def test_failed_change_is_typed_and_applied_later(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = batch(table, 1)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full\nsecond line")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", fail)
        with pytest.raises(LakeUnavailable, match=r"s/state cannot be used: disk full\."):
            catch_up(table, [change])
    catch_up(table, [change])
    assert rows_of(table) == [(1, 1)]


def test_change_that_always_conflicts_ends_in_error(table: SharedDeltaTable) -> None:
    with pytest.raises(LakeUnavailable, match="is not kept"):
        table.catch_up(lambda _: TableChange({APPLICATION: 1}))


def test_snapshot_replaces_the_files_it_folded(table: SharedDeltaTable) -> None:
    changes = [batch(table, 1, 1, 2), batch(table, 2, 2, 3), batch(table, 3)]
    folded = written(table, "snapshot-2", [row(1, 1), row(2, 2), row(3, 2)])
    replaced = {file.path: file.bytes for change in changes[:2] for file in change.added}
    catch_up(table, [*changes, TableChange({"snapshots": 2}, (folded,), replaced, is_rearranged=True)])
    assert rows_of(table) == [(1, 1), (2, 2), (3, 2), (3, 3)]
    assert (number(table), number(table, "snapshots")) == (3, 2)


def test_version_files_have_the_manifest_paths(table: SharedDeltaTable) -> None:
    change = batch(table, 1)
    other = written(table, "a name that needs escapes %41", [row(2, 2)])
    catch_up(table, [change, change_of(2, other)])
    expected = {file.path: file.bytes for file in (*change.added, other)}
    assert SharedDeltaVersion(table, opened(table)).files() == expected


def test_a_file_outside_of_the_table_is_refused(table: SharedDeltaTable) -> None:
    file = replace(written(table, "a1", [row(1, 1)]))
    elsewhere = replace(file, path=f"elsewhere/{file.path}")
    table.store.write(elsewhere.path, table.store.read(file.path))
    with pytest.raises(LakeDamaged, match="not below the table"):
        catch_up(table, [change_of(1, elsewhere)])


def test_a_file_that_is_missing_is_never_named(table: SharedDeltaTable) -> None:
    missing = DataFile("state", "s", f"{table.folder}/_files/a1/0.parquet", 1, 1, "", 1, "")
    with pytest.raises(LakeDamaged, match="lacks the file"):
        catch_up(table, [change_of(1, missing)])
    assert number(table) == 0


def test_vacuum_keeps_files_of_uncommitted_batches(table: SharedDeltaTable) -> None:
    catch_up(table, [batch(table, 1)])
    pending = batch(table, 2)
    for full in (True, False):
        opened(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    catch_up(table, [pending])
    assert rows_of(table) == [(1, 1), (2, 2)]


def test_vacuum_keeps_files_a_snapshot_replaced(table: SharedDeltaTable) -> None:
    """Somebody may read the state as of that batch."""
    change = batch(table, 1)
    removed = {file.path: file.bytes for file in change.added}
    catch_up(table, [change, TableChange({"snapshots": 1}, removed=removed, is_rearranged=True)])
    for full in (True, False):
        opened(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert [file.path for file in table.store.listed(f"{table.folder}/_files")] == list(removed)


def test_edit_adds_columns_as_null_to_older_rows(table: SharedDeltaTable) -> None:
    put_wider_rows(table)
    catch_up(table, [batch(table, 3)])
    assert rows_of(table) == [(1, 1), (2, 2), (3, 3)]
    query = f"SELECT value.more, bytes FROM {scan(table)} ORDER BY hash"
    assert duck(query) == [(None, None), ("x", 7), (None, None)]


def test_fields_are_added_inside_of_lists_and_maps(tmp_path: Path) -> None:
    table = shared_table(Store(str(tmp_path)))
    inner = pa.struct([pa.field("a", pa.int64())])
    wider = pa.struct([*inner, pa.field("b", pa.int64())])
    for seq, (type_, value) in enumerate([(inner, {"a": 1}), (wider, {"a": 1, "b": 2})], start=1):
        schema = pa.schema([("many", pa.list_(type_)), ("pairs", pa.map_(pa.string(), type_))])
        rows = [{"many": [value], "pairs": [("k", value)]}]
        catch_up(table, [change_of(seq, written(table, f"a{seq}", rows, schema))])
    query = f"SELECT many[1].b, pairs['k'].b FROM {scan(table)} ORDER BY 1 NULLS FIRST"
    assert duck(query) == [(None, None), (2, 2)]


def test_edit_widens_columns_of_older_rows(table: SharedDeltaTable) -> None:
    put_widened_rows(table)
    rows = opened(table).to_pyarrow_table(columns=["hash", "value"]).sort_by("hash")
    assert rows["value"].to_pylist() == WIDENED
    engine = QueryBuilder().register("shared", opened(table))
    by_datafusion = engine.execute("SELECT hash, value FROM shared ORDER BY hash").read_all()
    assert pa.table(by_datafusion)["value"].to_pylist() == WIDENED
    by_duck = [value for (value,) in duck(f"SELECT value FROM {scan(table)} ORDER BY hash")]
    assert by_duck == [{**value, "pairs": dict(value["pairs"])} for value in WIDENED]
    assert duck(f"SELECT hash FROM {scan(table)} WHERE value.n > 1") == [(2,)]


def test_narrower_file_can_follow_wider_ones(table: SharedDeltaTable) -> None:
    """Add a narrower file, such as that of a batch that was planned before the edit, to a table that is
    made anew.
    """
    put_widened_rows(table)
    version = opened(table).version()
    schema = pa.schema([pa.field("hash", pa.int64()), pa.field("value", NARROW)])
    catch_up(table, [change_of(3, written(table, "a3", [{"hash": 3, "value": NARROW_ROW}], schema))])
    assert opened(table).version() == version + 1, "the columns have not changed"
    assert duck(f"SELECT hash, value.n FROM {scan(table)} ORDER BY hash") == [(1, 1), (2, 2**40), (3, 1)]


def test_widening_keeps_other_table_properties(table: SharedDeltaTable) -> None:
    catch_up(table, [])
    before = opened(table)
    put_widened_rows(table)
    after = opened(table)
    assert (after.metadata().id, after.metadata().configuration) == (
        before.metadata().id,
        before.metadata().configuration,
    )
    assert after.protocol() == before.protocol()
    assert number(table) == 2


def test_concurrent_widening_adds_files_once(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen = SharedDeltaTable.widen

    def overtaken(self: SharedDeltaTable, *arguments: Any) -> None:
        monkeypatch.setattr(SharedDeltaTable, "widen", widen)
        put_widened_rows(shared_table(table.store))
        widen(self, *arguments)

    schema = pa.schema([pa.field("hash", pa.int64()), pa.field("value", NARROW)])
    first = written(table, "attempt-1", [{"hash": 1, "value": NARROW_ROW}], schema)
    catch_up(table, [change_of(1, first)])
    monkeypatch.setattr(SharedDeltaTable, "widen", overtaken)
    put_widened_rows(table)
    assert duck(f"SELECT hash, value.n FROM {scan(table)} ORDER BY hash") == [(1, 1), (2, 2**40)]


def test_columns_are_wider_although_the_answer_was_lost(
    table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(table, [batch(table, 1)])
    wider = SCHEMA.set(
        SCHEMA.get_field_index("value"), pa.field("value", pa.struct([("n", pa.decimal128(30, 2))]))
    )
    change = change_of(2, written(table, "a2", [row(2, 2) | {"value": {"n": Decimal("2.50")}}], wider))
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "tables.widen=lose")
    with pytest.raises(LakeUnavailable):
        catch_up(table, [change])
    catch_up(table, [change])
    assert duck(f"SELECT hash, value.n FROM {scan(table)} ORDER BY hash") == [
        (1, Decimal("1001.00")),
        (2, Decimal("2.50")),
    ]


def test_column_of_another_type_is_refused(table: SharedDeltaTable) -> None:
    value = pa.field("value", pa.struct([pa.field("n", pa.string())]))
    schema = SCHEMA.set(SCHEMA.get_field_index("value"), value)
    catch_up(table, [batch(table, 1)])
    with pytest.raises(SchemaChanged, match=r"column value\.n was long .* and is string"):
        catch_up(table, [change_of(2, written(table, "a2", [row(2, 2) | {"value": {"n": "x"}}], schema))])
    assert rows_of(table) == [(1, 1)]


def test_unreleased_table_format_is_refused(table: SharedDeltaTable) -> None:
    rows = pa.table({"key": ["k"], "attempt": ["a1"]})
    write_deltalake(table.store.uri(table.folder), rows, partition_by=["attempt"])
    for use in (table.check, lambda: catch_up(table, [])):
        with pytest.raises(LakeDamaged, match="before the first release"):
            use()


@pytest.mark.parametrize(
    ("configuration", "message"),
    [({}, "was not made by tidegate"), ({"tidegate.format": "2"}, "has format 2")],
)
def test_a_table_of_another_format_is_refused(
    table: SharedDeltaTable, configuration: dict[str, str | None], message: str
) -> None:
    schema = Schema.from_arrow(SCHEMA)
    options: dict[str, Any] = {"configuration": configuration, "raise_if_key_not_exists": False}
    DeltaTable.create(table.store.uri(table.folder), schema, **options)
    with pytest.raises(LakeDamaged, match=message):
        catch_up(table, [batch(table, 1)])


def test_missing_table_is_not_refused(table: SharedDeltaTable) -> None:
    table.check()
    assert table.store.listed("") == []


def test_readers_can_skip_files_by_their_hashes(table: SharedDeltaTable) -> None:
    catch_up(table, [batch(table, 1, -5, 2**60)])
    log = table.store.read(f"{table.folder}/_delta_log/{opened(table).version():020}.json").decode()
    (added,) = (json.loads(line)["add"] for line in log.splitlines() if '"add"' in line)
    statistics = json.loads(added["stats"])
    assert statistics["minValues"] == {"hash": -5}
    assert statistics["maxValues"] == {"hash": 2**60}


def test_view_gives_one_row_per_live_entry(table: SharedDeltaTable) -> None:
    expected = put_several_rows_of_an_entry(table)
    columns = "hash, window_start, updated_seq"
    assert sorted(duck(f"SELECT {columns} FROM ({newest_rows_sql(scan(table))})"), key=str) == expected
    engine = QueryBuilder().register("state", opened(table))
    rows = engine.execute(f"SELECT {columns} FROM ({newest_rows_sql('state')})").read_all()
    assert sorted((tuple(row.values()) for row in pa.table(rows).to_pylist()), key=str) == expected


@pytest.mark.heavy
@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_survive_the_table(tmp_path: Path, name: str) -> None:
    type_, value = VALUES[name]
    schema = pa.schema([pa.field("value", pa.struct([pa.field(name, type_)]))])
    table = shared_table(Store(str(tmp_path)))
    for seq in (1, 2):  # the second finds the column
        catch_up(table, [change_of(seq, written(table, f"a{seq}", [{"value": {name: value}}], schema))])
    assert opened(table).to_pyarrow_table()["value"].to_pylist() == [{name: value}] * 2
    for (stored,) in duck(f"SELECT value FROM {scan(table)}"):
        assert stored == {name: dict(value) if name == "pairs" else value}
