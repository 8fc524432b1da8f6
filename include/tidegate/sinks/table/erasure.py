"""Remove keys from a Delta table: their rows, the versions that had them, and what dead publishers left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from posixpath import basename

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidegate.errors import LakeDamaged, SinkUnavailable
from tidegate.storage.delta import open_table
from tidegate.storage.schema import KEY
from tidegate.storage.store import Listed, Store

_KEYS_AT_ONCE = 500
"""The keys in one condition: a plan with very many texts takes delta-rs long."""
_IN_FLIGHT_S = 3600.0
"""A file that no version names after this time is taken for one that nobody will commit."""


def remove_keys(table: DeltaTable, path: str, keys: Sequence[str], *, is_shared: bool) -> None:
    """Delete the rows of keys from a table, so that no file of it shows them.

    All versions before go: files that the table no longer names are deleted, and the log begins anew with a
    checkpoint, since entries of the log quote the least and the largest key of files.

    Args:
        path: The table's folder or URI.
        is_shared: Whether others may write to the table at the same time.

    Raises SinkUnavailable if somebody may be about to commit a file with a key.
    """
    store = Store(path)
    for part in range(0, len(keys), _KEYS_AT_ONCE):
        table.delete(_is_one_of(keys[part : part + _KEYS_AT_ONCE]))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    # delta-rs only removes files that the log has named, unless it may also remove those of other writers.
    files = store.listed("")
    # The table is opened after its files are listed: what was committed before then is named.
    table = open_table(path)
    # By their last parts, which are unique: folders of partitions are encoded in the log.
    named = {basename(uri) for uri in table.file_uris()}
    unnamed = [file for file in files if _is_data(file) and basename(file.path) not in named]
    _remove_uncommitted(store, unnamed, pa.array(keys, pa.string()), is_shared)
    # The entry of the newest version, which readers need beside its checkpoint, names no key.
    table.create_checkpoint()
    _remove_log_before(store, table.version())


def _is_one_of(keys: Sequence[str]) -> str:
    texts = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    return f'"{KEY}" IN ({texts})'


def _is_data(file: Listed) -> bool:
    """Return whether a file is one of data, whole or half written, by its name."""
    return ".parquet" in file.path and not file.path.startswith("_")


def _remove_uncommitted(store: Store, files: Iterable[Listed], keys: pa.Array, is_shared: bool) -> None:
    """Delete those of the files that have rows of the keys. No version names them: a publisher died before
    its commit.
    """
    for file in files:
        if _may_have(store, file, keys):
            if is_shared and time.time() - file.changed_at < _IN_FLIGHT_S:
                raise SinkUnavailable(
                    f"The file {file.path} of the table {store.root} has an erased key, and no version of "
                    "the table names it: its publisher has died, or is about to commit it",
                    "Run the same command again when the file is an hour old: the erasure goes on.",
                )
            store.delete(file.path)


def _may_have(store: Store, file: Listed, keys: pa.Array) -> bool:
    """Return whether a file has rows of the keys, or was written in part only, so that nobody can tell."""
    try:
        source = store.open(file.path)
    except LakeDamaged:  # another process has removed it
        return False
    with source:
        try:
            rows = pq.ParquetFile(source)
        except pa.ArrowInvalid:
            return True
        if KEY not in rows.schema_arrow.names:
            return False
        batches = rows.iter_batches(columns=[KEY])
        return any(pc.any(pc.is_in(batch.column(KEY).cast(pa.string()), keys)).as_py() for batch in batches)


def _remove_log_before(store: Store, version: int) -> None:
    """Remove the entries and checkpoints of earlier versions: the checkpoint of this one has all that counts.

    Drafts of entries go, too: a writer that is about to commit one fails, and can run again.
    """
    for file in store.listed("_delta_log"):
        name = basename(file.path)
        number = name.partition(".")[0]
        if name.startswith("_commit_") or (number.isdecimal() and int(number) < version):
            store.delete(file.path)
