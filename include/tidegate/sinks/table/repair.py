"""Changes that `tidegate recover` makes in a Delta table: the number of its last batch, and later files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import RemoveAction

from tidegate.errors import Fenced
from tidegate.failpoints import failpoint
from tidegate.sinks.table.append import Appender, number_of, read_progress
from tidegate.storage.delta import delta_errors, existing_table, flush_commits, log_entry, open_table
from tidegate.storage.store import Store


def restart_after(appender: Appender, seq: int, attempt: str) -> None:
    """Set a table's progress to batch `seq` of an attempt, and remove the files of later batches.

    Rows that another program has rewritten into other files remain. Raises ProgressUnreadable, Fenced,
    LakeUnavailable.
    """
    path, application = appender.path, appender.application
    with delta_errors(path), failpoint("table.restart"):
        table = existing_table(path)
        if table is not None and read_progress(table, path, application) >= seq:
            _mark(appender, table, (seq, attempt), _files_after(table, path, application, seq))


def seal(appender: Appender, seq: int, attempt: str) -> bool:
    """Set a table's progress to batch `seq`. Return whether it has the batch, or a later one.

    Raises ProgressUnreadable, Fenced, LakeUnavailable.
    """
    path = appender.path
    with delta_errors(path), failpoint("table.seal"):
        table = existing_table(path)
        newest = read_progress(table, path, appender.application) if table is not None else 0
        if table is not None and newest < seq:
            _mark(appender, table, (seq, attempt), {})
    return newest >= seq


def _mark(appender: Appender, table: DeltaTable, batch: tuple[int, str], removed: Mapping[str, int]) -> None:
    """Commit a batch's number and attempt without its rows. `removed`: path -> bytes of files to remove."""
    path, (seq, attempt) = appender.path, batch
    numbers = [Transaction(appender.application, seq), Transaction(appender.attempts, number_of(attempt))]
    try:
        table.create_write_transaction(
            [RemoveAction(file, True, 0, size) for file, size in removed.items()],
            mode="append",
            schema=table.schema(),
            commit_properties=CommitProperties(app_transactions=numbers),
        )
    except CommitFailedError as error:
        raise Fenced(f"Another publisher wrote to {path} at the same time", "Run again.") from error
    flush_commits(path, open_table(path), appender.application)


def _files_after(table: DeltaTable, path: str, application: str, seq: int) -> dict[str, int]:
    """Return path and bytes of each current file of the table that a batch after `seq` has added."""
    added: set[str] = set()
    # Newest first, down to the commit of a batch that stays: older commits have none of later batches.
    for version in range(table.version(), -1, -1):
        actions = log_entry(Store(path), version)
        batches = [action["txn"]["version"] for action in actions if _is_of(action, application)]
        if not actions or any(batch <= seq for batch in batches):
            break
        if batches:
            added |= {action["add"]["path"] for action in actions if "add" in action}
    # Another program may have rewritten files since: only files that the table still has can be removed.
    current = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    return {file["path"]: file["size_bytes"] for file in current if file["path"] in added}


def _is_of(action: Mapping[str, Any], application: str) -> bool:
    return bool(action.get("txn", {}).get("appId") == application)
