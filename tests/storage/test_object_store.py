"""The lake in an object store, by the environment's settings alone, when requests fail, stall or get lost."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from tests.sinks.table.appending import append
from tests.storage.files_for_tests import SCHEMA, row, write
from tests.storage.s3_server import BUCKET, FaultKind, S3Server, s3_of_this_process
from tests.storage.tables_for_tests import APPLICATION, batch, catch_up, number, opened, shared_table
from tidegate.batch.lookups import _pinned_table, _table_id
from tidegate.cli import cli
from tidegate.errors import LakeDamaged, LakeUnavailable, LookupMissing
from tidegate.model.lookup import Lookup
from tidegate.spark.lookups import DeltaVersion
from tidegate.storage.compaction import FoldRule, SnapshotTarget, compact
from tidegate.storage.datafile import open_data, verify
from tidegate.storage.delta import open_table, puts_if_absent, storage_options
from tidegate.storage.delta_tables import SharedDeltaTable
from tidegate.storage.layout import snapshot_name
from tidegate.storage.manifest import DataFile, read_manifest, write_manifest
from tidegate.storage.state import StateReader
from tidegate.storage.store import Store
from tidegate.storage.tables import TableChange

pytestmark = pytest.mark.process

LARGE = bytes(range(256)) * 48_000
"""More than one part of an upload."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with s3_of_this_process(tmp_path / "s3", monkeypatch, attempts=3) as running:
        yield running


@pytest.fixture
def store(server: S3Server) -> Store:
    return Store(f"s3://{BUCKET}/a lake")


@pytest.fixture
def table(store: Store) -> SharedDeltaTable:
    return shared_table(store)


def numbers(table: SharedDeltaTable) -> list[int]:
    return sorted(opened(table).to_pyarrow_table(columns=["hash"])["hash"].to_pylist())


def taken(store: Store, files: list[DataFile], *hashes: int) -> list[tuple[int, int]]:
    with StateReader(store, files, SCHEMA) as state:
        rows = state.take(np.array(hashes, np.int64))
    return list(zip(rows["hash"].to_pylist(), rows["updated_seq"].to_pylist(), strict=True))


def test_files_are_written_read_listed_and_removed(store: Store, server: S3Server) -> None:
    written = store.write("a/b", b"content")
    assert (server.folder / BUCKET / "a lake" / "a" / "b").read_bytes() == b"content"
    assert store.digest("a/b") == written
    assert [(file.path, file.bytes) for file in store.listed("a")] == [("a/b", 7)]
    store.delete("a/b")
    store.delete("a/b")
    assert store.listed("a") == []


def test_a_large_file_goes_in_parts(store: Store) -> None:
    with store.create("large") as sink:
        for start in range(0, len(LARGE), 1_000_000):
            sink.write(LARGE[start : start + 1_000_000])
    assert store.digest("large") == sink.written
    assert store.read("large") == LARGE


def test_it_can_be_sent_to_another_process(store: Store) -> None:
    store.write("a", b"x")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"x"


def test_a_file_that_is_not_there_is_damage(store: Store) -> None:
    with pytest.raises(LakeDamaged, match="lacks the file a/b"):
        store.open("a/b")


def test_state_on_an_object_store_is_verified(store: Store, server: S3Server) -> None:
    files = [write(store, seq, [row(h, seq) for h in range(seq, 9)]) for seq in (1, 2, 3)]
    assert taken(store, files, 1, 2, 5) == [(1, 1), (2, 2), (5, 3)]
    name = snapshot_name(3)
    snapshot = compact(
        store, SnapshotTarget(name, 3, lambda stage: f"{stage}/{name}"), files, {"s": FoldRule(False, True)}
    )
    noted = write_manifest(store, f"m/{name}", snapshot)
    folded = list(read_manifest(store, f"m/{name}", noted).files)
    assert taken(store, folded, 1, 2, 5) == [(1, 1), (2, 2), (5, 3)]
    path = server.folder / BUCKET / "a lake" / folded[0].path
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert [error.what.split(": ")[-1] for error in verify(store, folded)] == [
        "its content has another digest"
    ]


def test_file_is_opened_by_reading_its_footer_once(store: Store, server: S3Server) -> None:
    file = write(store, 1, [row(h, 1) for h in range(9)])
    sizes, reads = (server.fault("none", method, "1.parquet", times=99) for method in ("HEAD", "GET"))
    with open_data(store, file) as parquet:
        assert parquet.metadata.num_rows == 9
    assert (sizes.met, reads.met) == (1, 1)


def test_concurrent_readers_catch_tables_up_once(table: SharedDeltaTable) -> None:
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: catch_up(table, changes), range(4)))
    assert numbers(table) == [1, 2, 3]
    assert number(table) == 3


def test_a_stale_writer_loses(table: SharedDeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    catch_up(table, [batch(table, 1)])
    second, third = batch(table, 2), batch(table, 3)
    write_change = SharedDeltaTable.write

    def late(self: SharedDeltaTable, *arguments: object) -> None:
        monkeypatch.setattr(SharedDeltaTable, "write", write_change)
        removed = {file.path: file.bytes for file in second.added}
        catch_up(table, [second, TableChange({APPLICATION: 3}, third.added, removed)])
        write_change(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SharedDeltaTable, "write", late)
    catch_up(table, [second])
    assert numbers(table) == [1, 3]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["fail", "stall", "lose", "late"])
@pytest.mark.parametrize(("method", "path"), [("PUT", "a/b"), ("GET", "a/b")])
def test_failed_request_is_repeated(
    store: Store, server: S3Server, kind: FaultKind, method: str, path: str
) -> None:
    fault = server.fault(kind, method, path)
    written = store.write("a/b", b"content")
    assert store.digest("a/b") == written
    assert fault.met == 1


@pytest.mark.parametrize("kind", ["fail", "stall", "lose"])
@pytest.mark.sample(1)
def test_failed_table_creation_creates_one_table(
    table: SharedDeltaTable, server: S3Server, kind: FaultKind
) -> None:
    fault = server.fault(kind, "PUT", "_delta_log/00000000000000000000.json")
    with suppress(LakeUnavailable):
        catch_up(table, [batch(table, 1)])
    catch_up(table, [batch(table, 1)])
    assert fault.met == 1
    assert numbers(table) == [1]
    log = [table.store.read(file.path) for file in table.store.listed(f"{table.folder}/_delta_log")]
    assert sum(b"CREATE TABLE" in entry for entry in log) == 1


def test_late_conditional_put_overwrites_nothing(store: Store, server: S3Server) -> None:
    fault = server.fault("late", "PUT", "a/b")
    with pytest.raises(LakeUnavailable):  # it is not sent again by itself: it may have been carried out
        store.put_if_absent("a/b", b"first")
    assert store.put_if_absent("a/b", b"second")
    assert fault.wait_answered() == 412
    assert store.read("a/b") == b"second"


def test_late_table_commit_exists_once(table: SharedDeltaTable, server: S3Server) -> None:
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    catch_up(table, changes[:1])
    fault = server.fault("late", "PUT", "_delta_log/00000000000000000003.json")
    with pytest.raises(LakeUnavailable):
        catch_up(table, changes)
    catch_up(table, changes)
    assert fault.wait_answered() == 412
    assert numbers(table) == [1, 2, 3]
    assert number(table) == 3


def test_late_table_sink_append_exists_once(store: Store, server: S3Server) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), store.uri("out")
    append(path, "app", 1, rows.to_reader(), 0)
    fault = server.fault("late", "PUT", "out/_delta_log/00000000000000000002.json")
    with pytest.raises(LakeUnavailable):
        append(path, "app", 2, rows.to_reader(), 1)
    append(path, "app", 2, rows.to_reader(), 1)
    assert fault.wait_answered() == 412
    assert open_table(path).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("kind", ["fail", "stall"])
def test_unanswering_store_is_transient(store: Store, server: S3Server, kind: FaultKind) -> None:
    store.write("a", b"x")
    fault = server.fault(kind, "GET", "", times=100)
    with pytest.raises(LakeUnavailable, match="file a cannot be used") as raised:
        store.read("a")
    assert "canary-secret" not in str(raised.value)
    assert fault.met > 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["fail", "stall"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId")]
)
def test_failed_part_of_a_large_file_is_resent(
    store: Store, server: S3Server, kind: FaultKind, method: str, path: str
) -> None:
    fault = server.fault(kind, method, path)
    written = store.write("a", LARGE)
    assert store.digest("a") == written
    assert fault.met == 1


def test_unanswered_completion_is_whole_or_an_error(store: Store, server: S3Server) -> None:
    fault = server.fault("lose", "POST", "uploadId")
    with suppress(LakeUnavailable):
        store.write("a", LARGE)
    assert store.read("a") == LARGE
    assert fault.met == 1


def test_a_row_group_is_read_in_few_requests(store: Store, server: S3Server) -> None:
    file = write(store, 1, [row(h, 1) for h in range(100)])
    requests = server.fault("none", "GET", file.path.rsplit("/", 1)[-1], times=100)
    assert taken(store, [file], 5) == [(5, 1)]
    assert requests.met <= 4  # the footer, the hashes, and all columns


@pytest.mark.parametrize("kind", ["fail", "stall", "lose"])
@pytest.mark.sample(1)
def test_a_commit_that_goes_wrong_is_there_once(
    table: SharedDeltaTable, server: S3Server, kind: FaultKind
) -> None:
    changes = [batch(table, seq) for seq in (1, 2, 3)]
    catch_up(table, changes[:1])
    fault = server.fault(kind, "PUT", "_delta_log/00000000000000000003.json")
    with suppress(LakeUnavailable):  # one that stalls is not sent again: it may have been carried out
        catch_up(table, changes)
    catch_up(table, changes)
    assert fault.met == 1
    assert numbers(table) == [1, 2, 3]
    assert opened(table).version() == 4  # the first one's columns are added first


def test_unanswering_table_store_is_typed_and_caught_up(table: SharedDeltaTable, server: S3Server) -> None:
    changes = [batch(table, seq) for seq in (1, 2)]
    catch_up(table, changes[:1])
    fault = server.fault("fail", "PUT", "_delta_log", times=100)
    with pytest.raises(LakeUnavailable, match="s/state cannot be used"):
        catch_up(table, changes)
    assert fault.met > 1
    server.faults.clear()
    catch_up(table, changes)
    assert numbers(table) == [1, 2]


def test_table_sink_uses_the_lake_setting(store: Store, server: S3Server) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), store.uri("out")
    server.fault("fail", "PUT", "out/_delta_log/00000000000000000001.json")
    for seq in (1, 2, 2):
        append(path, "app", seq, rows.to_reader(), seq - 1)
    assert open_table(path).to_pyarrow_table().num_rows == 2
    fault = server.fault("fail", "PUT", "out/", times=100)
    with pytest.raises(LakeUnavailable, match="out cannot be"):
        append(path, "app", 3, rows.to_reader(), 2)
    assert 1 < fault.met < 20


def reading(path: str) -> Lookup:
    """Return a lookup of a Delta table."""
    return Lookup.model_construct(table=path, on=("region",), columns=())


def test_lookup_uses_the_lake_setting(store: Store, server: S3Server) -> None:
    path = store.uri("stores")
    for name in ("north", "south"):
        rows = pa.table({"region": [name]})
        write_deltalake(path, rows, mode="append", storage_options=storage_options(path))
    pin = _pinned_table("reader", reading(path))
    server.fault("fail", "GET", "stores/_delta_log/")
    read = pa.Table.from_batches(DeltaVersion(path, 0).read(0, 1))
    assert (pin["version"], read["region"].to_pylist()) == (1, ["north"])
    assert _table_id(path, 1) == pin["id"]
    fault = server.fault("fail", "GET", "stores/", times=100)
    with pytest.raises(LakeUnavailable, match="stores cannot be used"):
        _pinned_table("reader", reading(path))
    assert 1 < fault.met < 20


def test_lookup_of_a_missing_table_says_so(store: Store) -> None:
    with pytest.raises(LookupMissing, match="a lake/stores does not exist"):
        _pinned_table("reader", reading(store.uri("stores")))


def test_overwriting_store_is_distinguished_from_put_if_absent(store: Store, server: S3Server) -> None:
    assert puts_if_absent(store)
    server.fault("lose", "PUT", ".tidegate-probe")
    assert puts_if_absent(store)
    server.fault("unconditional", "PUT", ".tidegate-probe", times=100)
    assert not puts_if_absent(store)
    assert store.listed("") == []


@pytest.mark.parametrize(
    ("overwrites", "ok", "message"),
    [
        (False, "ok", "and refuses to overwrite"),
        (True, "WRONG", "an object store with conditional writes"),
    ],
)
def test_doctor_tries_whether_the_store_overwrites(
    store: Store, server: S3Server, tmp_path: Path, overwrites: bool, ok: str, message: str
) -> None:
    if overwrites:
        server.fault("unconditional", "PUT", ".tidegate-probe", times=100)
    environment = {"TIDEGATE_HOME": str(tmp_path / "home"), "TIDEGATE_LAKE": store.root}
    result = CliRunner().invoke(cli, ["doctor", "--json"], env=environment)
    (lake,) = (row for row in json.loads(result.stdout) if row["check"] == "lake")
    assert lake["ok"] == ok
    assert re.search(f"{store.root}.* {message}", lake["found"])


def test_store_that_cannot_be_probed_is_transient(store: Store, server: S3Server) -> None:
    (server.folder / BUCKET).rmdir()
    with pytest.raises(LakeUnavailable, match=r"tidegate-probe.* cannot be used"):
        puts_if_absent(store)


def test_a_disk_puts_only_what_is_absent(tmp_path: Path) -> None:
    assert puts_if_absent(Store(str(tmp_path)))
