"""What `doctor --deep` will say of files that are no longer as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import LakeUnavailable
from tidegate.storage.datafile import verify
from tidegate.storage.manifest import DataFile
from tidegate.storage.store import Store


@pytest.fixture
def files(tmp_path: Path) -> list[DataFile]:
    store = Store(str(tmp_path))
    return [
        DataFile("state", "s", name, 1, *store.write(name, name.encode() * 100), 1, "")
        for name in ("a", "b", "c")
    ]


def test_intact_files_are_not_named(tmp_path: Path, files: list[DataFile]) -> None:
    assert verify(Store(str(tmp_path)), files) == []


def test_missing_short_or_changed_files_are_named(tmp_path: Path, files: list[DataFile]) -> None:
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_bytes(b"b" * 99)
    (tmp_path / "c").write_bytes(b"c" * 99 + b"d")
    texts = [error.what for error in verify(Store(str(tmp_path)), files)]
    assert [text.split(": ")[-1].removeprefix(f"The lake {tmp_path} ") for text in texts] == [
        "lacks the file a",
        "it has 99 bytes of 100",
        "its content has another digest",
    ]


def test_unreadable_file_is_not_called_damaged(tmp_path: Path, files: list[DataFile]) -> None:
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    with pytest.raises(LakeUnavailable, match="file b cannot be used"):
        verify(Store(str(tmp_path)), files)
