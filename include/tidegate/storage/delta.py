"""Open Delta tables: those of sinks, of lookups, and tables for other engines.

`path` is a folder or a URI. Access to an object store uses the same settings as the lake: see `lake.store`.
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
from tidegate.storage.store import Store, unavailable


@contextmanager
def delta_errors(path: str) -> Iterator[None]:
    """Turn failures of a table and of its store into LakeUnavailable, which this context manager raises."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise table_unavailable(path, error) from error


def table_unavailable(path: str, error: Exception) -> LakeUnavailable:
    """Return the error for a table that cannot be used."""
    return unavailable(f"The table {path}", error)


def existing_table(path: str) -> DeltaTable | None:
    """Return the table, or None if there is none. Use it within `delta_errors`."""
    # not `DeltaTable.is_deltatable`: it blocks all threads of the process until the store has answered
    try:
        return open_table(path)
    except TableNotFoundError:
        return None


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """Return the table at its newest version, or at `version`. Use it within `delta_errors`."""
    return DeltaTable(path, version=version, storage_options=storage_options(path))


def storage_options(path: str) -> dict[str, str] | None:
    """Return the options with which delta-rs opens the store of a table; None for a disk."""
    return Store(path).delta_options


def flush_commits(path: str, table: DeltaTable, application: str) -> None:
    """Make the table's newest commits survive a power cut: log entries, checkpoints and the files they add.

    These are the last commit of `application` and all commits since its last but one, which an earlier call
    flushed. delta-rs does not flush; an object store needs no flush. Raises LakeUnavailable.
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
        # An empty entry is one that the log no longer has: everything before it is in a checkpoint.
        if commits == 2 or not actions:
            return


def log_entry(store: Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of an entry of a table's log; an empty list if the log begins later.

    Raises LakeUnavailable.
    """
    try:
        lines = store.read(f"_delta_log/{version:020}.json").splitlines()
    except LakeDamaged:
        return []
    return [json.loads(line) for line in lines if line.strip()]


def file_system(path: str) -> SubTreeFileSystem:
    """Return Arrow's own file system, rooted at the table.

    The file system that deltalake makes calls Python from Arrow's threads; if one of them is about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception"). Raises
    SettingsInvalid, LakeUnavailable.
    """
    return Store(path).file_system
