"""Delta tables for other engines. The log is in the table's folder, in `_delta_log`.

Delta keeps one number per application in its log (`txn`), and refuses a commit if another process has moved
one of its applications since the version that it was made for. Paths in the log are relative to the table's
folder: some readers do not understand paths that lead out of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tidegate.clock import current_ms
from tidegate.errors import LakeDamaged
from tidegate.failpoints import failpoint
from tidegate.storage.datafile import written_schema
from tidegate.storage.delta import (
    delta_errors,
    existing_table,
    flush_commits,
    merged_columns,
    table_unavailable,
)
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import HASH
from tidegate.storage.store import Store
from tidegate.storage.tables import (
    FORMAT,
    FORMAT_PROPERTY,
    LOGS,
    SharedTable,
    TableChange,
    TableFormat,
    TableVersion,
)

_CHECKPOINT_INTERVAL = "20"
"""A reader that opens a table reads at most this many entries of its log, one by one; each batch opens it."""


class DeltaFormat(TableFormat):
    """Delta tables. They take each change of columns that the state takes, but for a name that differs from
    an earlier one in case only.
    """

    def table_in(self, store: Store, folder: str, columns: pa.Schema) -> SharedTable:
        """Return the Delta table in a folder of the lake."""
        return SharedDeltaTable(store, folder, columns)

    def drop(self, lake: Lake) -> None:
        """Do nothing: the logs are in the stream's folder."""


@dataclass(frozen=True)
class SharedDeltaVersion(TableVersion):
    """A Delta table at one version of its log."""

    shared: SharedDeltaTable
    delta: DeltaTable
    conflict = CommitFailedError

    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 before its first change."""
        return self.delta.transaction_version(application) or 0

    def files(self) -> dict[str, int]:
        """Return the path of each file, as manifests have it, and its bytes."""
        folder = self.shared.folder
        actions = pa.table(self.delta.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        return {f"{folder}/{unquote(row['path'])}": row["size_bytes"] for row in actions.to_pylist()}

    def update(self) -> None:
        """Go to the newest version of the log."""
        with delta_errors(self.shared.folder), failpoint("tables.read"):
            self.delta.update_incremental()

    def apply(self, change: TableChange) -> Exception | None:
        """Try to apply a change.

        If columns are missing or too narrow, only they are changed: another process may change the table
        between.
        """
        columns = merged_columns(self.delta.schema(), self.shared.requested(change))
        try:
            if columns.missing:
                with failpoint("tables.widen"):
                    self.delta.alter.add_columns(columns.missing)
            elif columns.widened is not None:
                with failpoint("tables.widen"):
                    self.shared.widen(self.delta, columns.widened)
            else:
                self.shared.write(self.delta, change)
        except (DeltaError, OSError) as error:
            return error
        return None

    def flush(self, change: TableChange) -> None:
        """Flush the entries of the log since the application's last but one."""
        shared = self.shared
        flush_commits(shared.store.uri(shared.folder), self.delta, next(iter(change.numbers)))

    def failure(self, error: Exception | None) -> Exception:
        """Return LakeUnavailable."""
        return table_unavailable(self.shared.folder, error or DeltaError("a change is not kept"))


class SharedDeltaTable(SharedTable):
    """A Delta table for other engines."""

    format_name = "delta"

    @contextmanager
    def opened(self) -> Iterator[SharedDeltaVersion | None]:
        """Open the table; None if there is none. Raises LakeDamaged, LakeUnavailable."""
        with delta_errors(self.folder):
            table = existing_table(self.store.uri(self.folder))
        if table is None:
            yield None
            return
        self._require_ours(table)
        yield SharedDeltaVersion(self, table)

    def check(self, files: Sequence[DataFile] = ()) -> None:
        """Raise as `opened` does; SchemaChanged if the table cannot take the columns of files."""
        with self.opened() as table:
            if table is not None and files:
                columns = Schema.from_arrow(written_schema(self.store, files))
                merged_columns(table.delta.schema(), columns)

    def create(self) -> None:
        """Put the log's first entry, unless there is one."""
        # not by delta-rs: of several processes that begin at once, it lets two create the table
        with delta_errors(self.folder), failpoint("tables.create"):
            self.store.put_if_absent(f"{self._log}/{0:020}.json", _first_entry(self.columns))

    def remove(self) -> None:
        """Remove the log. Raises LakeUnavailable."""
        # The newest entries go first: if the process ends in between, an older table is left, without a gap.
        for file in reversed(self.store.listed(self._log)):
            with failpoint("tables.remove"):
                self.store.delete(file.path)

    @property
    def _log(self) -> str:
        return f"{self.folder}/{LOGS[self.format_name]}"

    def requested(self, change: TableChange) -> Schema:
        """Return the columns of the added files, under the names in the files. Raises SchemaChanged."""
        return Schema.from_arrow(written_schema(self.store, change.added))

    def widen(self, table: DeltaTable, columns: Schema) -> None:
        """Give columns wider types with a log entry of our own, since delta-rs cannot change a type (decision
        54).

        If another process has written the version, nothing is written: the caller looks at the table again.
        """
        entry = f"{self._log}/{table.version() + 1:020}.json"
        self.store.put_if_absent(entry, _widening_entry(table, columns))

    def write(self, table: DeltaTable, change: TableChange) -> None:
        applications = [Transaction(*number) for number in change.numbers.items()]
        with failpoint("tables.commit"):
            table.create_write_transaction(
                [
                    *(self._added(file, change) for file in change.added),
                    *(self._removed(*file, change) for file in change.removed.items()),
                ],
                mode="append",
                schema=table.schema(),
                commit_properties=CommitProperties(app_transactions=applications),
            )

    def _added(self, file: DataFile, change: TableChange) -> AddAction:
        statistics = json.dumps(_statistics(file))
        # `dataChange` is false if rows only moved: readers that follow changes skip such files.
        return AddAction(self.relative(file.path), file.bytes, {}, 0, not change.is_rearranged, statistics)

    def _removed(self, path: str, size: int, change: TableChange) -> RemoveAction:
        return RemoveAction(self.relative(path), not change.is_rearranged, 0, size)

    def _require_ours(self, table: DeltaTable) -> None:
        metadata = table.metadata()
        if metadata.partition_columns == ["attempt"]:
            raise LakeDamaged(
                f"The table {self.folder} is of a tidegate from before the first release",
                "Set TIDEGATE_LAKE to a new place.",
            )
        self.require_format(metadata.configuration.get(FORMAT_PROPERTY))


def _first_entry(columns: pa.Schema) -> bytes:
    """Return the log's first entry, for a table without files; see Delta's protocol, "Actions"."""
    configuration: dict[str, str | None] = {
        FORMAT_PROPERTY: FORMAT,
        "delta.checkpointInterval": _CHECKPOINT_INTERVAL,
    }
    metadata = _metadata(str(uuid4()), Schema.from_arrow(columns), configuration, current_ms())
    # Low versions of the protocol, which every engine reads.
    return _entry("CREATE TABLE", {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata)


def _widening_entry(table: DeltaTable, columns: Schema) -> bytes:
    """Return an entry that changes the columns, and nothing else in the table's metadata."""
    metadata = table.metadata()
    created_ms = metadata.created_time if metadata.created_time is not None else current_ms()
    return _entry("CHANGE COLUMN", _metadata(str(metadata.id), columns, metadata.configuration, created_ms))


def _metadata(
    id_: str, columns: Schema, configuration: Mapping[str, str | None], created_ms: int
) -> dict[str, object]:
    metadata = {
        "id": id_,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": columns.to_json(),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": created_ms,
    }
    return {"metaData": metadata}


def _entry(operation: str, *actions: Mapping[str, object]) -> bytes:
    commit = {"timestamp": current_ms(), "operation": operation, "engineInfo": "tidegate"}
    return "\n".join(map(json.dumps, [{"commitInfo": commit}, *actions])).encode()


def _statistics(file: DataFile) -> dict[str, object]:
    """Return the statistics by which readers skip a file."""
    if file.least_hash is None:
        return {"numRecords": file.rows}
    bounds = {"minValues": {HASH: file.least_hash}, "maxValues": {HASH: file.most_hash}}
    return {"numRecords": file.rows, **bounds, "nullCount": {HASH: 0}}
