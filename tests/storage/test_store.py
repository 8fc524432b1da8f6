"""The lake's files: written once, durable, known again by size and digest."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import from_url

from tests.disk import small_disk
from tidegate.errors import LakeDamaged, LakeUnavailable, SettingsInvalid
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import (
    DataFile,
    Manifest,
    manifest_file,
    manifest_of,
    read_manifest,
    write_manifest,
)
from tidegate.storage.store import Store, Written, written_of

NAME = "0000000001-000001-0123abcd"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "lake"))


def data_file(path: str, least: int = 0, **more: object) -> DataFile:
    return DataFile("state", "s", path, 10, 100, "ab", 9, "cd", least, least + 5, **more)  # type: ignore[arg-type]


def test_file_is_identified_by_size_and_digest(store: Store) -> None:
    written = store.write("a/b/c.json", b"content")
    assert written == Written(7, hashlib.sha256(b"content").hexdigest())
    assert store.digest("a/b/c.json") == written
    assert store.read("a/b/c.json") == b"content"


def _write(store: Store, rows: pa.RecordBatch, between: Callable[[], None]) -> DataFile | None:
    with RowWriter(store, "a/b.parquet", "state") as writer:
        writer.write(rows)
        between()
        writer.write(rows)
    return writer.file


def test_full_disk_error_names_the_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store, rows = Store(f"{disk.folder}/lake"), pa.record_batch({"n": list(range(40_000))})
        with pytest.raises(LakeUnavailable, match=r"lake's file a/b.parquet.*No space left.*TIDEGATE_LAKE"):
            _write(store, rows, disk.fill)
        disk.free()
        assert _write(store, rows, lambda: None) is not None


def test_parquet_is_written_and_read_from_anywhere(store: Store) -> None:
    table = pa.table({"n": list(range(10_000))})
    with store.create("t.parquet") as sink, pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=1000)
    assert store.digest("t.parquet") == sink.written
    with store.open("t.parquet") as file:
        assert pq.ParquetFile(file).read_row_group(3)["n"][0].as_py() == 3000


def test_it_can_be_sent_to_another_process(store: Store) -> None:
    store.write("a", b"x")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"x"


def test_missing_file_is_damage(store: Store) -> None:
    with pytest.raises(LakeDamaged, match=r"lacks the file s/gone\.parquet"):
        store.open("s/gone.parquet")


def test_listing_and_removing_are_for_cleaning(store: Store) -> None:
    assert store.listed("s") == []
    store.write("s/one", b"1")
    store.write("s/deep/two", b"22")
    assert [(file.path, file.bytes) for file in store.listed("s")] == [("s/deep/two", 2), ("s/one", 1)]
    store.delete("s/one")
    store.delete("s/one")
    assert [file.path for file in store.listed("s")] == ["s/deep/two"]


def test_unwritable_store_is_transient(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeUnavailable, match="a/b"):
        Store(str(tmp_path / "file")).write("a/b", b"")


def test_an_error_while_writing_passes_on(store: Store) -> None:
    with pytest.raises(RuntimeError, match="mine"), store.create("x"):
        raise RuntimeError("mine")


# manifests


def test_a_manifest_is_read_as_it_was_written(store: Store) -> None:
    manifest = manifest_of(NAME, 1, [data_file("b", 7, key_types='{"zone": "int"}'), data_file("a", -3)])
    written = write_manifest(store, "m", manifest)
    assert read_manifest(store, "m", written) == manifest
    assert [file.path for file in manifest.files_of("state", "s")] == ["a", "b"]
    assert manifest.files_of("outbox", "s") == ()
    assert (manifest.rows, manifest.bytes) == (20, 200)


def test_order_of_files_does_not_matter() -> None:
    files = [data_file("b", 7), data_file("a", -3), data_file("c", 0)]
    assert manifest_of(NAME, 1, files) == manifest_of(NAME, 1, reversed(files))


@pytest.mark.parametrize("content", [b"", b"{}", b"short"])
def test_a_manifest_that_was_changed_is_damage(store: Store, tmp_path: Path, content: bytes) -> None:
    written = write_manifest(store, "m", Manifest(NAME, 1, ()))
    (tmp_path / "lake" / "m" / manifest_file(written.digest)).write_bytes(content)
    with pytest.raises(LakeDamaged, match=r"m/manifest-\w+\.json is not as it was written"):
        read_manifest(store, "m", written)


def test_a_manifest_that_is_gone_is_damage(store: Store, tmp_path: Path) -> None:
    written = write_manifest(store, "m", Manifest(NAME, 1, ()))
    (tmp_path / "lake" / "m" / manifest_file(written.digest)).unlink()
    with pytest.raises(LakeDamaged):
        read_manifest(store, "m", written)


def written_as_manifest(store: Store, content: bytes) -> Written:
    """Write bytes where the manifest with their digest would be."""
    return store.write(f"m/{manifest_file(written_of(content).digest)}", content)


def test_unreleased_manifest_format_says_so(store: Store) -> None:
    written = written_as_manifest(store, b'{"format": 1, "name": "x", "seq": 1, "files": []}')
    with pytest.raises(LakeDamaged, match="before the first release"):
        read_manifest(store, "m", written)


def test_a_manifest_of_a_newer_format_says_so(store: Store) -> None:
    written = written_as_manifest(store, b'{"format": 99, "name": "x", "seq": 1, "files": []}')
    with pytest.raises(LakeDamaged, match="has format 99"):
        read_manifest(store, "m", written)


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("gs://bucket/lake", "bucket/lake/"),
        ("abfs://bucket@account.dfs.core.windows.net/lake", "bucket/lake/"),
        ("abfss://bucket@account.dfs.core.windows.net/lake", "bucket/lake/"),
    ],
)
def test_root_is_one_place_for_both_libraries(root: str, place: str) -> None:
    store = Store(root)
    assert store.is_remote
    assert store.file_system.base_path == place
    objects: Any = from_url(root)
    config = objects.config
    assert f"{config.get('bucket') or config['container_name']}/{objects.prefix}/" == place
    assert store.uri("a/b") == f"{root}/a/b"


@pytest.mark.parametrize("root", ["hdfs://host/lake", "s3a://bucket/lake", "https://host/lake"])
def test_a_root_of_another_kind_is_refused(root: str) -> None:
    with pytest.raises(SettingsInvalid, match=rf"cannot be in {root}.*s3://, gs://, abfs://"):
        Store(root).read("a")
