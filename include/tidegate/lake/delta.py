"""Opening Delta tables: of sinks, of lookups, and those for others.

`path` is a folder or a URI. In an object store a table is spoken to as the lake is: see `lake.store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import SubTreeFileSystem

from tidegate.errors import LakeUnavailable
from tidegate.lake.store import Store, unavailable


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


def existing_table(path: str) -> DeltaTable | None:
    """The table, if there is one. Use it within `delta_errors`.

    Not by `is_deltatable`, which holds up all threads of the process until the store has answered.
    """
    try:
        return open_table(path)
    except TableNotFoundError:
        return None


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """The table, as it is or as of a version. Use it within `delta_errors`."""
    return DeltaTable(path, version=version, storage_options=storage_options(path))


def storage_options(path: str) -> dict[str, str] | None:
    """What delta-rs is told of the store that a table is in."""
    return Store(path).delta_options


def file_system(path: str) -> SubTreeFileSystem:
    """Arrow's own file system, rooted at the table.

    The one that deltalake makes calls Python from Arrow's threads; if one of them is still about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception").
    """
    return Store(path).file_system
