"""Compare files with the size and digest that their manifest has of them."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import LakeDamaged
from tidegate.storage.manifest import DataFile, damaged
from tidegate.storage.store import Store, Written


def verify(store: Store, files: Sequence[DataFile]) -> list[LakeDamaged]:
    """Read all bytes of the files, and return an error for each file that is missing, short or changed.

    Raises LakeUnavailable.
    """
    damages = []
    for file in files:
        try:
            require_unchanged(store, file)
        except LakeDamaged as error:
            damages.append(error)
    return damages


def require_unchanged(store: Store, file: DataFile) -> None:
    """Raises LakeDamaged when the file is missing, short or changed; LakeUnavailable if it cannot be read."""
    actual = store.digest(file.path)
    if actual.bytes != file.bytes:
        raise damaged(file.path, f"it has {actual.bytes} bytes of {file.bytes}")
    if actual != Written(file.bytes, file.digest):
        raise damaged(file.path, "its content has another digest")
