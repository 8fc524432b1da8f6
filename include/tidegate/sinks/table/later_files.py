"""Find the files of a Delta table that batches after a given one have added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidegate.errors import SinkRefused
from tidegate.storage.delta import log_entry
from tidegate.storage.schema import SEQ
from tidegate.storage.store import Store


def files_after(table: DeltaTable, path: str, application: str, seq: int) -> dict[str, int]:
    """Return path and bytes of each current file of the table that a batch after `seq` has added.

    Raises SinkRefused if other files may have rows of such a batch.
    """
    added, of_others, rewritten, is_cut = set[str](), set[str](), set[str](), False
    # Newest first, down to the commit of a batch that stays: older commits have none of later batches.
    for version in range(table.version(), -1, -1):
        actions = log_entry(Store(path), version)
        batches = [action["txn"]["version"] for action in actions if _is_of(action, application)]
        # An erasure, or Delta's own retention, has removed the entries before.
        is_cut = not actions
        if is_cut or any(batch <= seq for batch in batches):
            break
        is_of_publisher = any("txn" in action for action in actions)
        target = added if batches else of_others if is_of_publisher else rewritten
        target |= {action["add"]["path"] for action in actions if "add" in action}
    current = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    sizes = {file["path"]: file["size_bytes"] for file in current}
    unclear = sizes.keys() - added - of_others if is_cut else sizes.keys() & rewritten
    if any(_has_later(Store(path), unquote(file), seq) for file in unclear):
        raise SinkRefused(
            f"The table {path} has rows of batches after {seq} in files that another program or an erasure "
            "has rewritten, so that its log does not show whose they are",
            f"Delete the rows of {application} with `seq > {seq}` there, and run again; or name a later "
            "--from-batch.",
        )
    # Only files that the table still has can be removed.
    return {file: size for file, size in sizes.items() if file in added}


def _has_later(store: Store, path: str, seq: int) -> bool:
    with store.open(path) as source:
        rows = pq.ParquetFile(source)
        if SEQ not in rows.schema_arrow.names:
            return False
        batches = rows.iter_batches(columns=[SEQ])
        return any(pc.any(pc.greater(batch.column(SEQ), seq)).as_py() for batch in batches)


def _is_of(action: Mapping[str, Any], application: str) -> bool:
    return bool(action.get("txn", {}).get("appId") == application)
