"""The `table` sink: emissions appended to a Delta table, each batch exactly once.

The batch's number goes into the same Delta commit, as the version of an application transaction. Two
publishers at once conflict there, so the commit itself is the fence.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.errors import SINK_IS_AHEAD, Fenced, LakeUnavailable, ProgressLost, ProgressUnreadable
from tidegate.failpoints import failpoint
from tidegate.lake.delta import delta_errors, flush_commits, open_table, storage_options
from tidegate.lake.store import Store

FORMAT = 1
"""Of what a table's log says of who publishes to it; raised whenever that changes its meaning."""

_FORMAT = "tidegate.sink.format"
_PROPERTIES = {_FORMAT: str(FORMAT)}


def append_batch(
    path: str, application: str, seq: int, rows: pa.RecordBatchReader, last_published: int
) -> None:
    """Append a batch, unless the table has it. `last_published` is the newest batch that it must have.

    Raises ProgressLost, ProgressUnreadable; Fenced when another publisher was faster, or the table is further
    than this ledger; LakeUnavailable.
    """
    Store(path).make_root()
    with delta_errors(path), failpoint("table.create"):
        DeltaTable.create(
            path,
            rows.schema,
            mode="ignore",
            configuration=_PROPERTIES,
            storage_options=storage_options(path),
            raise_if_key_not_exists=False,
        )
    with delta_errors(path), failpoint("table.read_progress"):
        table = open_table(path)
        newest = _progress(table, path, application)
    if newest < last_published:
        raise ProgressLost(
            f"The table {path} is not what batch {last_published} of {application} was published to: "
            f"it says batch {newest}",
            "Restore it; or raise `generation`: it fills the table from the start.",
        )
    if newest > seq:
        raise Fenced(
            f"{application} is at batch {seq}, but batch {newest} is in {path} already",
            f"{SINK_IS_AHEAD}.",
        )
    if newest < seq:
        _append(table, path, rows, Transaction(application, seq))
    with delta_errors(path), failpoint("table.flush"):
        flush_commits(path, open_table(path), application)  # also of a try that died before it did so


def _append(table: DeltaTable, path: str, rows: pa.RecordBatchReader, batch: Transaction) -> None:
    mark = CommitProperties(app_transactions=[batch])
    try:
        with failpoint("table.append"):
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=mark)
    except CommitFailedError as error:
        raise Fenced(f"Another publisher wrote to {path} at the same time", "Run again.") from error
    except (DeltaError, OSError) as error:
        raise LakeUnavailable(
            f"The table {path} cannot be written: {str(error).splitlines()[0][:300]}",
            "Check rights, space and columns; then run again, nothing is lost.",
        ) from error


def _progress(table: DeltaTable, path: str, application: str) -> int:
    """The newest batch that a table has; 0 if none. A table that somebody else has made gets the property
    first. Raises ProgressUnreadable.
    """
    format_ = table.metadata().configuration.get(_FORMAT)
    newest = table.transaction_version(application)
    if format_ is None and newest is None:
        table.alter.set_table_properties(_PROPERTIES, raise_if_not_exists=False)
    elif format_ != str(FORMAT):
        raise ProgressUnreadable.of_format(
            f"The table {path}",
            format_,
            FORMAT,
            "Name another path, and raise `generation`: it fills the table from the start.",
        )
    return newest or 0
