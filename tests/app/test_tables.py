"""Tables for others follow the head: through crashes, compactions and cleanings, whoever is at work."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.batch.aged import STAGE, Aged
from tests.sinks.iceberg import lakehouse
from tests.storage.tables_for_tests import duck, newest_rows_sql, opened, scan, values_of
from tests.storage.tables_for_tests import shared_table as delta_table
from tidegate import failpoints, maintenance
from tidegate.app import App
from tidegate.app.tables import (
    MOST_WITHOUT_FILES,
    batches_of,
    catch_up_tables,
    drop_tables,
    remove_tables_ahead,
    replace_files,
    shared_table,
    snapshots_of,
)
from tidegate.batch import Trigger, plan_batch
from tidegate.errors import Fenced, LakeDamaged, Transient
from tidegate.ledger import LedgerReader, ManifestRef, Stream
from tidegate.storage import attempt_name
from tidegate.storage.delta_tables import SharedDeltaTable
from tidegate.storage.manifest import Kind
from tidegate.storage.tables import SharedTable

SharedRows = list[tuple[Any, ...]]


class Shared(Aged):
    """A stream with its tables for others, in Delta's format."""

    def table(self, kind: Kind = "state") -> SharedTable:
        return shared_table(self.app, self.stream, kind, STAGE)

    def catch_up(self) -> None:
        catch_up_tables(self.app, self.stream, [self.pipeline])

    def numbers(self, kind: Kind = "state") -> tuple[int, int]:
        """Return the last batch and the last snapshot in a table."""
        batch, snapshot = (self.table(kind).number(name(self.stream)) for name in (batches_of, snapshots_of))
        return batch, snapshot

    def values(self, kind: Kind, *columns: str) -> SharedRows:
        """Return the columns of all rows of a table, by readers that know nothing of tidegate."""
        return values_of(delta_table(self.lake.store, self.table(kind).folder), *columns)

    def rows(self) -> SharedRows:
        """Return all rows of the state's table."""
        return self.values("state", "key", "updated_seq")

    def query(self, kind: Kind, query: str) -> SharedRows:
        """Return the rows of a query of DuckDB, in which `{table}` is the table, or its view."""
        return duck(query.format(table=scan(delta_table(self.lake.store, self.table(kind).folder))))

    def view(self) -> SharedRows:
        """One row per key, as the documented view gives it."""
        return sorted(self.query("state", f"SELECT key, updated_seq FROM ({newest_rows_sql('{table}')})"))

    def uris(self, kind: Kind) -> list[str]:
        """The files that a table names."""
        return opened(delta_table(self.lake.store, self.table(kind).folder)).file_uris()

    def named(self) -> list[str]:
        """The attempts and snapshots whose files the state's table names."""
        return sorted({uri.split("/")[-2] for uri in self.uris("state")})

    def missing(self) -> list[str]:
        """Files that tables name, and that are not there."""
        kinds: list[Kind] = ["state", "outbox"]
        uris = [uri for kind in kinds for uri in self.uris(kind)]
        return [uri for uri in uris if not Path(uri).exists()]

    def lose_log(self) -> None:
        """Remove the state's table, but not the files."""
        shutil.rmtree(Path(self.lake.root) / self.table().folder / "_delta_log")


class IcebergShared(Shared):
    """A stream with its tables for others, in Iceberg's format."""

    def __init__(self, folder: Path) -> None:
        self.catalog_url = f"sqlite:///{folder}/catalog.db"
        properties = json.dumps({"uri": self.catalog_url, "warehouse": f"file://{folder}/warehouse"})
        super().__init__(folder, iceberg=properties, tables="iceberg")

    def catalog_table(self, kind: Kind = "state") -> Table:
        """Return a table as another program opens it."""
        return SqlCatalog("default", uri=self.catalog_url).load_table(f"visitors_g1.{STAGE}_{kind}")

    def values(self, kind: Kind, *columns: str) -> SharedRows:
        read = self.catalog_table(kind).scan(selected_fields=columns).to_arrow().select(list(columns))
        rows = sorted((tuple(row.values()) for row in read.to_pylist()), key=str)
        assert self.query(kind, f"SELECT {', '.join(columns)} FROM {{table}}") == rows
        return rows

    def query(self, kind: Kind, query: str) -> SharedRows:
        table = self.catalog_table(kind)
        return lakehouse.duck(query.format(table=f"iceberg_scan('{table.metadata_location}')"))

    def uris(self, kind: Kind) -> list[str]:
        return [task.file.file_path for task in self.catalog_table(kind).scan().plan_files()]

    def lose_log(self) -> None:
        SqlCatalog("default", uri=self.catalog_url).drop_table(f"visitors_g1.{STAGE}_state")
        shutil.rmtree(Path(self.lake.root) / self.table().folder / "metadata")


@pytest.fixture(params=[Shared, IcebergShared], ids=["delta", "iceberg"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    stream: Shared = request.param(tmp_path)
    return stream


@pytest.fixture
def plain(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def keys_of(*seqs: int) -> SharedRows:
    return [(f"k{seq}", seq) for seq in seqs]


def test_publication_brings_the_tables_to_the_head(shared: Shared) -> None:
    for seq in (1, 2):
        shared.batch(seq, emitted=[(f"k{seq}", seq)])
        shared.publish(seq)
    assert shared.rows() == keys_of(1, 2)
    assert shared.values("outbox", "key", "seq") == keys_of(1, 2)
    assert shared.query("outbox", "SELECT value.m FROM {table} ORDER BY 1") == [(1,), (2,)]


def test_finished_publication_brings_tables_to_the_head(plain: Shared) -> None:
    plain.batch(1)
    plain.publish(1)
    plain.batch(2)
    plain.publish(1)
    assert plain.rows() == keys_of(1, 2)


def test_what_is_not_committed_is_in_no_table(shared: Shared) -> None:
    shared.batch(1)
    shared.write(attempt_name(1, 1), 1)
    shared.compute(2, {STAGE: [("k2", 2)]})
    shared.catch_up()
    assert shared.rows() == keys_of(1)
    assert shared.values("outbox", "key") == []


def test_each_stage_has_state_and_outbox_tables(
    plain: Shared,
) -> None:
    plain.batch(1)
    plain.catch_up()
    first_entry = f"/_delta_log/{0:020}.json"
    listed = [file.path for file in plain.lake.store.listed(plain.lake.base)]
    tables = [path.removesuffix(first_entry) for path in listed if path.endswith(first_entry)]
    expected = ("first/state", "second/outbox", "second/state")
    assert tables == [f"{plain.lake.base}/{table}" for table in expected]


def test_concurrent_catch_ups_change_once(shared: Shared) -> None:
    for seq in range(1, 5):
        shared.batch(seq, emitted=[(f"k{seq}", seq)])
    maintenance.compact_state(shared.app, shared.stream)
    shared.batch(5)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: shared.catch_up(), range(4)))
    assert shared.rows() == shared.view() == keys_of(1, 2, 3, 4, 5)
    assert shared.values("outbox", "key", "seq") == keys_of(1, 2, 3, 4)
    assert shared.numbers() == (5, 4)


@pytest.mark.heavy
@pytest.mark.sample(3)
@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("name", ["tables.create", "tables.read", "tables.widen", "tables.commit"])
def test_crashed_catch_up_is_completed_later(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, name: str, action: str
) -> None:
    for seq in (1, 2, 3):
        shared.batch(seq, emitted=[(f"k{seq}", seq)])
    maintenance.compact_state(shared.app, shared.stream)
    for hit in range(1, 7):
        monkeypatch.setattr(failpoints, "_hits", Counter())
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{name}={action}@{hit}")
        with suppress(failpoints.FailpointRaised, Transient):
            shared.catch_up()
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    shared.catch_up()
    assert shared.rows() == keys_of(1, 2, 3)
    assert shared.values("outbox", "key", "seq") == keys_of(1, 2, 3)
    assert shared.numbers() == (3, 3)


@pytest.mark.heavy
def test_batches_without_table_files_are_rarely_read(plain: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    manifest = App.manifest

    def counting(app: App, stream: Stream, reference: ManifestRef) -> Any:
        read.append(reference.name)
        return manifest(app, stream, reference)

    monkeypatch.setattr(App, "manifest", counting)
    for seq in range(1, 2 * MOST_WITHOUT_FILES + 2):
        plain.batch(seq)
        read.clear()
        plain.catch_up()
        assert len(read) == (seq - 1) % MOST_WITHOUT_FILES + 1
    assert plain.numbers("outbox") == (2 * MOST_WITHOUT_FILES, 0)
    assert len(plain.rows()) == 2 * MOST_WITHOUT_FILES + 1


# snapshots


def test_compacted_table_has_snapshot_and_later_files(
    shared: Shared,
) -> None:
    for seq in (1, 2):
        shared.batch(seq)
    shared.catch_up()
    snapshot = maintenance.compact_state(shared.app, shared.stream).snapshot
    later = shared.batch(3, keys=["k1"])
    shared.catch_up()
    assert shared.named() == sorted([later, str(snapshot)])
    assert shared.rows() == [("k1", 1), ("k1", 3), ("k2", 2), ("k3", 3)]
    assert shared.view() == [("k1", 3), ("k2", 2), ("k3", 3)]
    assert shared.numbers() == (3, 2)


def test_batch_is_added_before_its_snapshot(plain: Shared) -> None:
    """Add a batch first, so that a consumer of the table sees each batch as new rows, and a snapshot as
    no change.
    """
    for seq in (1, 2):
        plain.batch(seq)
    maintenance.compact_state(plain.app, plain.stream)
    plain.catch_up()
    log = plain.lake.store.listed(f"{plain.table().folder}/_delta_log")
    changed = [b'"dataChange":true' in plain.lake.store.read(file.path) for file in log]
    assert changed == [False, False, True, True, False]  # created, widened, two batches, the snapshot
    assert plain.rows() == keys_of(1, 2)


def test_files_that_a_snapshot_names_again_stay(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.storage.compaction.ROW_GROUP_ROWS", 1)
    old = shared.batch(1, keys=["a", "b", "c", "d"])
    for seq in (2, 3):
        shared.batch(seq)
    shared.catch_up()
    snapshot = maintenance.compact_state(shared.app, shared.stream).snapshot
    shared.catch_up()
    assert shared.named() == sorted([old, str(snapshot)])
    assert shared.view() == [*((key, 1) for key in "abcd"), *keys_of(1, 2, 3)]


def test_foreign_files_are_corrected_by_the_next_snapshot(plain: Shared) -> None:
    for seq in (1, 2):
        plain.batch(seq)
        plain.catch_up()
    opened(delta_table(plain.lake.store, plain.table().folder)).optimize.compact()
    plain.batch(3)
    snapshot = maintenance.compact_state(plain.app, plain.stream).snapshot
    plain.catch_up()
    assert plain.named() == [snapshot]
    assert plain.rows() == keys_of(1, 2, 3)


# cleaning


def test_tables_drop_files_before_their_removal(shared: Shared) -> None:
    for seq in (1, 2, 3):
        shared.batch(seq, emitted=[(f"k{seq}", seq)])
    shared.catch_up()
    maintenance.compact_state(shared.app, shared.stream)
    shared.clean(days=40)
    assert len(shared.clean(days=2).names) == 3
    assert shared.missing() == []
    assert shared.view() == keys_of(1, 2, 3)
    assert len(shared.values("outbox", "key")) == 3


def test_table_that_lags_keeps_its_files(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    for seq in (1, 2):
        shared.batch(seq)
    shared.catch_up()
    maintenance.compact_state(shared.app, shared.stream)
    shared.clean(days=40)
    before = shared.names()
    monkeypatch.setattr(failpoints, "_hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "tables.read=lose")
    with pytest.raises(Transient):
        shared.clean(days=2)
    assert shared.names() == before
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert len(shared.clean().names) == 2


def test_lost_table_is_rebuilt_from_kept_state(shared: Shared) -> None:
    for seq in (1, 2, 3):
        shared.batch(seq)
    shared.snapshot(2)
    shared.clean(days=40)
    assert len(shared.clean(days=2).names) == 2
    shared.lose_log()
    shared.catch_up()
    assert shared.missing() == []
    assert shared.rows() == keys_of(1, 2, 3)
    assert shared.numbers() == (3, 2)


def test_late_batch_of_expired_state_adds_nothing(plain: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has looked at a table that lacked all; meanwhile others made it from a snapshot."""
    for seq in (1, 2):
        plain.batch(seq)
    write = SharedDeltaTable.write

    def late(self: SharedDeltaTable, *arguments: Any) -> None:
        monkeypatch.setattr(SharedDeltaTable, "write", write)
        maintenance.compact_state(plain.app, plain.stream)
        plain.clean(days=40)
        plain.clean(days=2)
        write(self, *arguments)

    monkeypatch.setattr(SharedDeltaTable, "write", late)
    plain.catch_up()
    assert plain.missing() == []
    assert plain.rows() == keys_of(1, 2)


def test_erased_files_are_in_no_version(shared: Shared) -> None:
    for seq in (1, 2):
        shared.batch(seq)
    shared.catch_up()
    (first, _) = sorted(shared.lake.store.listed(f"{shared.table().folder}/_files"))
    for _ in range(2):  # the second time there is nothing to do
        replace_files(shared.app, shared.stream, [shared.pipeline], 1, {first.path: None})
    assert shared.rows() == keys_of(2)
    assert shared.numbers() == (2, 0)


def test_erasure_leaves_no_earlier_iceberg_snapshot(tmp_path: Path) -> None:
    shared = IcebergShared(tmp_path)
    for seq in (1, 2):
        shared.batch(seq)
    shared.catch_up()
    assert len(shared.catalog_table().metadata.snapshots) == 2
    replace_files(shared.app, shared.stream, [shared.pipeline], 1, {})
    assert len(shared.catalog_table().metadata.snapshots) == 1
    assert shared.rows() == keys_of(1, 2)


def test_iceberg_snapshot_names_batch_and_offsets(tmp_path: Path) -> None:
    shared = IcebergShared(tmp_path)
    shared.batch(1)
    shared.catch_up()
    (snapshot,) = shared.catalog_table().metadata.snapshots
    summary = snapshot.summary
    assert summary is not None
    assert [summary[f"tidegate.{name}"] for name in ("stream", "seq")] == ["visitors/1", "1"]
    assert json.loads(summary["tidegate.offsets"]).keys() == {"events-0"}


def test_dropped_stream_leaves_no_iceberg_table(tmp_path: Path) -> None:
    shared = IcebergShared(tmp_path)
    shared.batch(1)
    shared.catch_up()
    for _ in range(2):
        drop_tables(shared.app, shared.stream)
    assert SqlCatalog("default", uri=shared.catalog_url).list_namespaces() == []


# what is not the stream's


def test_table_ahead_of_the_ledger_is_fenced(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fence a table whose ledger was restored from a backup: its next batches have other files."""
    for seq in (1, 2, 3):
        shared.batch(seq)
    shared.catch_up()
    head, committed = LedgerReader.head, LedgerReader.committed
    monkeypatch.setattr(
        LedgerReader,
        "committed",
        lambda *arguments: [entry for entry in committed(*arguments) if entry[0] < 3],
    )
    monkeypatch.setattr(
        LedgerReader, "head", lambda *arguments: type(actual := head(*arguments))(actual.stream, 2)
    )
    with pytest.raises(Fenced, match="at batch 2, but batch 3 is in its tables already"):
        shared.catch_up()
    assert remove_tables_ahead(shared.app, shared.stream, [shared.pipeline]) == [shared.table().folder]
    shared.catch_up()
    assert shared.rows() == keys_of(1, 2)


def test_overtaken_catch_up_reads_the_ledger_again(plain: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.batch(1)
    plain.catch_up()
    committed = LedgerReader.committed

    def overtaken(*arguments: Any) -> list[tuple[int, ManifestRef]]:
        monkeypatch.setattr(LedgerReader, "committed", committed)
        entries = committed(*arguments)
        for seq in (2, 3):
            plain.batch(seq)
        plain.catch_up()
        return entries

    monkeypatch.setattr(LedgerReader, "committed", overtaken)
    plain.catch_up()
    assert plain.rows() == keys_of(1, 2, 3)


def test_unreleased_lake_format_is_refused_first(plain: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"key": ["k"], "attempt": ["a1"]})
    write_deltalake(plain.lake.store.uri(plain.table().folder), rows, partition_by=["attempt"])
    settings = replace(plain.app.settings, connections={"TIDEGATE_KAFKA": "localhost:1"})
    app = replace(plain.app, settings=settings)
    with pytest.raises(LakeDamaged, match=r"before the first release\..* Set TIDEGATE_LAKE to a new place\."):
        plan_batch(app, plain.pipeline, Trigger("run-1", 1_000))
    assert app.ledger.last_planned(plain.stream) is None
