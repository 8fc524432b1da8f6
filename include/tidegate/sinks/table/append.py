"""The `table` sink: emissions appended to a Delta table, each batch exactly once.

The batch's number goes into the same Delta commit, as the version of an application transaction. Two
publishers at once conflict there, so the commit itself is the fence.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.errors import SINK_IS_AHEAD, Fenced, LakeUnavailable, ProgressLost
from tidegate.failpoints import failpoint
from tidegate.lake.delta import delta_errors


def append_batch(
    path: str, application: str, seq: int, rows: pa.RecordBatchReader, last_published: int
) -> None:
    """Append a batch, unless the table has it. `last_published` is the newest batch that it must have.

    Raises ProgressLost; Fenced when another publisher was faster, or the table is further than this ledger;
    LakeUnavailable.
    """
    with delta_errors(path), failpoint("table.create"):
        DeltaTable.create(path, rows.schema, mode="ignore")
    with delta_errors(path), failpoint("table.read_progress"):
        table = DeltaTable(path)
        found = table.transaction_version(application) or 0
    if found < last_published:
        raise ProgressLost(
            f"The table {path} is not what batch {last_published} of {application} was published to: "
            f"it says batch {found}",
            "Restore it; or raise `generation`: it fills the table from the start.",
        )
    if found > seq:
        raise Fenced(
            f"{application} is at batch {seq}, but batch {found} is in {path} already",
            f"{SINK_IS_AHEAD}.",
        )
    if found == seq:
        return
    mark = CommitProperties(app_transactions=[Transaction(application, seq)])
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
