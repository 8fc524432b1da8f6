"""Opening Delta tables: of sinks, of lookups, and those for others.

`path` is a folder or a URI. In an object store a table is spoken to as the lake is: see `lake.store`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import SubTreeFileSystem

from tidegate.errors import LakeDamaged, LakeUnavailable
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


def flush_commits(path: str, table: DeltaTable, application: str) -> None:
    """Make the table's newest commits outlive a power cut: log entries, checkpoints and the files they add.

    Those are the last commit of `application` and all since the one before it, which was flushed then.
    delta-rs flushes nothing; in an object store there is nothing to flush. Raises LakeUnavailable.
    """
    store, commits = Store(path), 0
    if store.is_remote:
        return
    for version in range(table.version(), -1, -1):
        log = f"_delta_log/{version:020}"
        actions = log_entry(store, version)
        added = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        store.flush([*added, f"{log}.json", f"{log}.checkpoint.parquet", "_delta_log/_last_checkpoint"])
        commits += any(action.get("txn", {}).get("appId") == application for action in actions)
        if commits == 2 or not actions:
            return


def log_entry(store: Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of an entry of a table's log; none where the log begins later."""
    try:
        lines = store.read(f"_delta_log/{version:020}.json").splitlines()
    except LakeDamaged:
        return []
    return [json.loads(line) for line in lines if line.strip()]


def file_system(path: str) -> SubTreeFileSystem:
    """Arrow's own file system, rooted at the table.

    The one that deltalake makes calls Python from Arrow's threads; if one of them is still about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception").
    """
    return Store(path).file_system
