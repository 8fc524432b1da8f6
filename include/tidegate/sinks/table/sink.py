"""The `table` sink: emissions appended to a Delta table, each batch exactly once.

The batch's number goes into the same Delta commit, as the version of an application transaction, and with it
a number for the attempt that computed it. Two publishers at once conflict there, so the commit itself is the
fence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import RemoveAction

from tidegate.errors import (
    Fenced,
    LakeUnavailable,
    ProgressLost,
    ProgressUnreadable,
    SchemaChanged,
    SinkRefused,
)
from tidegate.failpoints import failpoint
from tidegate.ledger import LeasedLedger
from tidegate.sinks.outbox import Outbox, table_rows
from tidegate.sinks.places import require_apart
from tidegate.sinks.port import Dataset, OpenSink, folder_dataset, require_not_ahead
from tidegate.sinks.table.erasure import remove_keys
from tidegate.sinks.table.later_files import files_after
from tidegate.sinks.table.model import TableSink
from tidegate.storage.delta import (
    delta_errors,
    existing_table,
    flush_commits,
    merged_columns,
    open_table,
    storage_options,
)
from tidegate.storage.schema import KEY
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
    require_not_ahead(application, path, seq, newest)
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


def restart_after(appender: Appender, seq: int, attempt: str) -> None:
    """Set a table's progress to batch `seq` of an attempt, and remove the files of later batches.

    Raises SinkRefused if rows of later batches are in files that do not show whose they are: another program,
    or an erasure, has rewritten them. Raises ProgressUnreadable, Fenced, LakeUnavailable.
    """
    path, application = appender.path, appender.application
    with delta_errors(path), failpoint("table.restart"):
        table = existing_table(path)
        newest = read_progress(table, path, application) if table is not None else 0
        if table is not None and newest >= seq:
            later = files_after(table, path, application, seq) if newest > seq else {}
            _mark(appender, table, (seq, attempt), later)


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


def erase_keys(
    appender: Appender, batch: tuple[int, str], keys: Sequence[str], last_published: int, *, is_shared: bool
) -> None:
    """Remove keys from a table, unless it has the batch; see `remove_keys`.

    Raises ProgressLost, ProgressUnreadable, LedgerMismatch, Fenced, LakeUnavailable, SinkUnavailable.
    """
    path = appender.path
    with delta_errors(path), failpoint("table.erase"):
        table = existing_table(path)
        newest = read_progress(table, path, appender.application) if table is not None else 0
        if table is None or newest >= batch[0]:
            return
        _check(appender, table, newest, last_published)
        remove_keys(table, path, keys, is_shared=is_shared)
        # The number comes last: a process that is killed before begins again.
        _mark(appender, open_table(path), batch, {})


def _mark(appender: Appender, table: DeltaTable, batch: tuple[int, str], removed: Mapping[str, int]) -> None:
    """Commit a batch's number and attempt without its rows. `removed`: path -> bytes of files to remove."""
    path, (seq, attempt) = appender.path, batch
    numbers = [Transaction(appender.application, seq), Transaction(appender.attempts, number_of(attempt))]
    try:
        table.create_write_transaction(
            [RemoveAction(unquote(file), True, 0, size) for file, size in removed.items()],
            mode="append",
            schema=table.schema(),
            commit_properties=CommitProperties(app_transactions=numbers),
        )
    except CommitFailedError as error:
        raise Fenced(f"Another publisher wrote to {path} at the same time", "Run again.") from error
    flush_commits(path, open_table(path), appender.application)


def require_room(path: str, rows: pa.Schema) -> None:
    """Check that each column of the table can store the type in `rows`, the schema of what will be
    appended.

    Raises SinkRefused if a column is narrower, LakeUnavailable if the table cannot be read.
    """
    with delta_errors(path):
        table = existing_table(path)
    if table is None:
        return
    try:
        columns = merged_columns(table.schema(), Schema.from_arrow(rows))
    except SchemaChanged as error:
        raise _refused(path, error.what) from error
    if columns.widened is not None:
        types = {column.name: column.type for column in table.schema().fields}
        narrow = next(column for column in columns.widened.fields if column.type != types[column.name])
        raise _refused(path, f"Its column {narrow.name} is narrower than what is emitted")


def _refused(path: str, why: str) -> SinkRefused:
    return SinkRefused(
        f"The table {path} does not take the emissions: {why}",
        "Emit the column in the type that the table has (`cast(n as int)`), or name another path. "
        "Nothing was published.",
    )


class OpenDeltaTable(OpenSink[TableSink]):
    """Appends a batch in one commit. Rows and progress cannot be lost separately."""

    title = "table"

    @property
    def dataset(self) -> Dataset:
        """The table's folder."""
        return folder_dataset(self.context.lake.table_sink(self.declared.path))

    def check_settings(self) -> None:
        """Check that the table's folder and the folder of any pipeline do not overlap. Raises SinkRefused."""
        # Its place is `published` in the stream's own folder, which nothing else uses.
        if self.declared.path is not None:
            require_apart(self, self.context.lake.table_sink(self.declared.path))

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that no column of the table is narrower than what is emitted since an edit. Raises
        SinkRefused.
        """
        path = self.context.lake.table_sink(self.declared.path)
        require_room(path, table_rows(self.declared, outbox).schema)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish the batch completely, or not at all."""
        rows = table_rows(self.declared, outbox)
        append_batch(self._appender, outbox.plan.seq, outbox.attempt, rows, last_published)

    def erase(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Delete the rows of the keys, and every file and log entry that still shows them."""
        del lease
        keys = sorted({key for rows in outbox.batches([KEY]) for key in rows.column(KEY).to_pylist()})
        # A table without a path is in the stream's own folder, where only its publisher writes.
        is_shared, batch = self.declared.path is not None, (outbox.plan.seq, outbox.attempt)
        erase_keys(self._appender, batch, keys, last_published, is_shared=is_shared)

    def erasure_effect(self) -> str:
        """Return a sentence on the rows, and on the table's earlier versions."""
        effect = f"{self.name}: all rows of the keys are deleted, and with them the table's earlier versions."
        if pipelines := ", ".join(self._other_pipelines()):
            effect += f" So are rows with such keys of {pipelines}, which a row of this table does not name."
        return effect

    def _other_pipelines(self) -> list[str]:
        """Return the other pipelines that have published to the table, which then has a path."""
        own, ledger = self.context.stream.pipeline, self.context.ledger
        streams = ledger.streams() if self.declared.path is not None else []
        return sorted(
            {
                stream.pipeline
                for stream in streams
                if stream.pipeline != own and ledger.last_published(stream, self.name)
            }
        )

    def check_progress(self) -> None:
        """Check that the table has what was published to it, and nothing that this ledger has not
        committed.
        """
        ledger, stream = self.context.ledger, self.context.stream
        check_table(self._appender, ledger.last_published(stream, self.name))

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on rows of later batches, which are removed before they are sent again."""
        return f"{self.name}: rows of batches after {seq} are removed, before they come again."

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the batch number and remove later files, in one commit."""
        restart_after(self._appender, seq, self._attempt_name(seq))
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the batch number. A batch is in the table completely or not at all."""
        is_in = seal(self._appender, seq, self._attempt_name(seq))
        published = self.published(seq) if is_in else None
        return published[1].emitted if published is not None else 0

    @property
    def _appender(self) -> Appender:
        path = self.context.lake.table_sink(self.declared.path)
        return Appender(path, self.shard, self.require_committed)


SINK = OpenDeltaTable
