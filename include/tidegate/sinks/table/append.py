"""The `table` sink: emissions appended to a Delta table, each batch exactly once.

The batch's number goes into the same Delta commit, as the version of an application transaction, and with it
a number for the attempt that computed it. Two publishers at once conflict there, so the commit itself is the
fence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.errors import Fenced, LakeUnavailable, ProgressLost, ProgressUnreadable, SinkAhead
from tidegate.failpoints import failpoint
from tidegate.storage.delta import delta_errors, existing_table, flush_commits, open_table, storage_options
from tidegate.storage.store import Store

FORMAT = 1
"""Of what a table's log says of who publishes to it; raised whenever that changes its meaning."""

_FORMAT = "tidegate.sink.format"
_PROPERTIES = {_FORMAT: str(FORMAT)}


@dataclass(frozen=True)
class Appender:
    """A publisher that appends to a Delta table.

    Args:
        application: The publisher's name in the table's log.
        require_committed: Raises LedgerMismatch unless the ledger has committed a batch as an attempt whose
            name fits; see `OpenSink.require_committed`.
    """

    path: str
    application: str
    require_committed: Callable[[int, Callable[[str], bool]], None]

    @property
    def attempts(self) -> str:
        """The application whose version in the log is the number of the newest batch's attempt."""
        return f"{self.application}/attempt"


def append_batch(
    appender: Appender, seq: int, attempt: str, rows: pa.RecordBatchReader, last_published: int
) -> None:
    """Append a batch as an attempt computed it, unless the table has it.

    Args:
        rows: The emissions, as rows of the table.
        last_published: The newest batch that the table must have; 0 if none.

    Raises ProgressLost, ProgressUnreadable; LedgerMismatch if the table has what this ledger has not
    committed; Fenced if another publisher was faster; LakeUnavailable.
    """
    path, application = appender.path, appender.application
    Store(path).make_root()
    with delta_errors(path), failpoint("table.create"):
        DeltaTable.create(
            path,
            rows.schema,
            # Two that create the table at once must not replace each other's.
            mode="ignore",
            configuration=_PROPERTIES,
            storage_options=storage_options(path),
            raise_if_key_not_exists=False,
        )
    with delta_errors(path), failpoint("table.read_progress"):
        table = open_table(path)
        newest = read_progress(table, path, application)
    _check(appender, table, newest, last_published)
    if newest > seq:
        raise SinkAhead(
            f"{application} is at batch {seq}, but batch {newest} is in {path} already",
            "A newer publisher went ahead; nothing was written by this one.",
        )
    if newest < seq:
        # delta-rs does not refuse a repeated version, so `newest` is checked before
        numbers = [Transaction(application, seq), Transaction(appender.attempts, number_of(attempt))]
        _append(table, path, rows, CommitProperties(app_transactions=numbers))
    with delta_errors(path), failpoint("table.flush"):
        flush_commits(path, open_table(path), application)  # also the commits of a crashed try


def check_table(appender: Appender, last_published: int) -> None:
    """Check that a table is the one that the ledger has published to. Writes nothing.

    Raises ProgressLost, ProgressUnreadable, LedgerMismatch, LakeUnavailable.
    """
    with delta_errors(appender.path):
        table = existing_table(appender.path)
    newest = None if table is None else table.transaction_version(appender.application)
    if table is not None and newest:
        _require_format(table, appender.path)
        _check(appender, table, newest, last_published)
    elif last_published:
        raise _lost(appender, 0, last_published)


def _check(appender: Appender, table: DeltaTable, newest: int, last_published: int) -> None:
    if newest < last_published:
        raise _lost(appender, newest, last_published)
    if newest:
        number = table.transaction_version(appender.attempts)
        appender.require_committed(newest, lambda name: number_of(name) == number)


def _lost(appender: Appender, newest: int, last_published: int) -> ProgressLost:
    return ProgressLost(
        f"The table {appender.path} is not what batch {last_published} of {appender.application} was "
        f"published to: it says batch {newest}",
        "Restore it; or let it get batches again: `tidegate recover`, with --choose send-again.",
    )


def number_of(attempt: str) -> int:
    """Return a number that stands for an attempt's name, since a Delta log's application versions are
    numbers.
    """
    # Six bytes: a version in a Delta log is a signed number of 64 bits.
    return int.from_bytes(hashlib.sha256(attempt.encode()).digest()[:6], "big")


def _append(table: DeltaTable, path: str, rows: pa.RecordBatchReader, batch: CommitProperties) -> None:
    try:
        with failpoint("table.append"):
            # The table as it was read, so that a commit of another publisher since then is a conflict.
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=batch)
    except CommitFailedError as error:
        raise Fenced(f"Another publisher wrote to {path} at the same time", "Run again.") from error
    except (DeltaError, OSError) as error:
        raise LakeUnavailable(
            f"The table {path} cannot be written: {str(error).splitlines()[0][:300]}",
            "Check rights, space and columns; then run again, nothing is lost.",
        ) from error


def read_progress(table: DeltaTable, path: str, application: str) -> int:
    """Return the newest batch that a table has; 0 if none.

    A table that another program has made gets the format property first. Raises ProgressUnreadable.
    """
    newest = table.transaction_version(application)
    if table.metadata().configuration.get(_FORMAT) is None and newest is None:
        table.alter.set_table_properties(_PROPERTIES, raise_if_not_exists=False)
    else:
        _require_format(table, path)
    return newest or 0


def _require_format(table: DeltaTable, path: str) -> None:
    format_ = table.metadata().configuration.get(_FORMAT)
    if format_ != str(FORMAT):
        raise ProgressUnreadable.of_format(
            f"The table {path}",
            format_,
            FORMAT,
            "Name another path, and raise `generation`: it fills the table from the start.",
        )
