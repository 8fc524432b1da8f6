"""Which files are removed: only those that nobody reads, and that nobody can make count any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.storage.compaction import Standing, remove, unread_files
from tidegate.storage.manifest import DataFile, Kind, Manifest
from tidegate.storage.store import Listed, Store

ATTEMPT, OTHER = "0000000001-000001-0123abcd", "0000000001-000002-0123abcd"
SNAPSHOT = "snapshot-0000000001-0123abcd"
NOW = 1000.0


def data(path: str, kind: Kind = "state") -> DataFile:
    return DataFile(kind, "s", path, 1, 1, "", 1, "")


def listed(path: str, changed_at: float = NOW - 1) -> Listed:
    return Listed(path, 1, changed_at)


def unread(
    files: list[Listed],
    standings: dict[str, Standing],
    manifests: tuple[Manifest, ...] = (),
    snapshots: tuple[Manifest, ...] = (),
) -> list[str]:
    by_name = {manifest.name: manifest for manifest in manifests}
    removable = unread_files(files, standings.get, by_name.__getitem__, snapshots, NOW)
    return [file.path for file in removable]


def test_a_file_that_its_committed_manifest_names_stays() -> None:
    manifest = Manifest(ATTEMPT, 1, (data(f"a/{ATTEMPT}/1"),))
    assert unread([listed(f"a/{ATTEMPT}/1")], {ATTEMPT: Standing.COMMITTED}, (manifest,)) == []


def test_leftovers_of_a_lost_task_are_removed() -> None:
    manifest = Manifest(ATTEMPT, 1, (data(f"a/{ATTEMPT}/1"),))
    files = [listed(f"a/{ATTEMPT}/1"), listed(f"a/{ATTEMPT}/2")]
    assert unread(files, {ATTEMPT: Standing.COMMITTED}, (manifest,)) == [f"a/{ATTEMPT}/2"]


def test_a_manifest_of_a_committed_attempt_stays() -> None:
    manifest = Manifest(ATTEMPT, 1, ())
    files = [listed(f"m/{ATTEMPT}/manifest-5c1b.json")]
    assert unread(files, {ATTEMPT: Standing.COMMITTED}, (manifest,)) == []


def test_uncommittable_attempt_is_removed() -> None:
    files = [listed(f"a/{ATTEMPT}/1"), listed(f"m/{ATTEMPT}/manifest-5c1b.json")]
    assert unread(files, {ATTEMPT: Standing.DEAD}) == [file.path for file in files]


def test_files_of_a_running_batch_stay() -> None:
    assert unread([listed(f"a/{ATTEMPT}/1", 0.0)], {ATTEMPT: Standing.PENDING}) == []


def test_young_files_stay_whoever_wrote_them() -> None:
    assert unread([listed(f"a/{ATTEMPT}/1", NOW + 1)], {ATTEMPT: Standing.DEAD}) == []


def test_of_a_superseded_batch_only_the_state_goes() -> None:
    named = (data(f"a/{ATTEMPT}/1"), data(f"a/{ATTEMPT}/2", "outbox"), data(f"a/{ATTEMPT}/3", "quarantine"))
    files = [listed(file.path) for file in named]
    standings = {ATTEMPT: Standing.SUPERSEDED}
    assert unread(files, standings, (Manifest(ATTEMPT, 1, named),)) == [f"a/{ATTEMPT}/1"]


@pytest.mark.parametrize("standing", [Standing.SUPERSEDED, Standing.DEAD])
def test_a_file_that_a_snapshot_still_names_stays(standing: Standing) -> None:
    named = (data(f"a/{ATTEMPT}/1"),)
    snapshot = Manifest(SNAPSHOT, 1, named)
    files = [listed(f"a/{ATTEMPT}/1")]
    assert unread(files, {ATTEMPT: standing}, (Manifest(ATTEMPT, 1, named),), (snapshot,)) == []


def test_a_snapshots_own_files_and_manifest_stay() -> None:
    snapshot = Manifest(SNAPSHOT, 1, (data(f"a/{SNAPSHOT}/1"),))
    files = [listed(f"a/{SNAPSHOT}/1"), listed(f"m/{SNAPSHOT}/manifest-5c1b.json")]
    assert unread(files, {SNAPSHOT: Standing.COMMITTED}, (), (snapshot,)) == []


def test_what_is_no_attempts_is_left_alone() -> None:
    files = [listed("a/_delta_log/00000000000000000000.json"), listed("a/b")]
    assert unread(files, {}) == []


def test_manifest_is_read_once_and_only_with_files() -> None:
    asked: list[str] = []

    def manifest(name: str) -> Manifest:
        asked.append(name)
        return Manifest(name, 1, ())

    files = [listed(f"a/{ATTEMPT}/1"), listed(f"a/{OTHER}/1"), listed(f"b/{ATTEMPT}/1")]
    standings = {ATTEMPT: Standing.COMMITTED, OTHER: Standing.DEAD}
    assert len(list(unread_files(files, standings.__getitem__, manifest, (), NOW))) == 3
    assert asked == [ATTEMPT]


def test_removing_again_what_is_removed_does_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(f"a/{ATTEMPT}/1", b"x")
    files = store.listed("a")
    remove(store, files)
    remove(store, files)
    assert store.listed("a") == []


def test_no_empty_folder_is_left(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(f"a/{ATTEMPT}/1", b"x")
    remove(store, store.listed("a"))
    assert not (tmp_path / "a" / ATTEMPT).exists()
