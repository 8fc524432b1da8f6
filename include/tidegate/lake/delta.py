"""Opening Delta tables: of sinks, of lookups, and those for others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSystem, SubTreeFileSystem

from tidegate.errors import LakeUnavailable
from tidegate.lake.store import unavailable


@contextmanager
def delta_errors(path: str) -> Iterator[None]:
    """Turn failures of a table and of its store into LakeUnavailable."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise table_unavailable(path, error) from error


def table_unavailable(path: str, error: Exception) -> LakeUnavailable:
    """What whoever cannot use a table is told."""
    return unavailable(f"The table {path}", error)


def file_system(path: str) -> FileSystem:
    """Arrow's own file system, rooted at the table.

    The one that deltalake makes calls Python from Arrow's threads; if one of them is still about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception").
    """
    system, root = FileSystem.from_uri(path if "://" in path else str(Path(path).absolute()))
    return SubTreeFileSystem(root, system)
