"""Delta tables for other engines: the committed rows of a stream, for readers that do not use tidegate.

A table's log names the very files that attempts and compactions wrote; nothing is copied. Therefore all files
of a table are below its own folder: some readers do not understand paths that lead out of it. The files are
in a hidden part of the folder, where a vacuum does not look for files that the log does not name yet:

    <table>/_delta_log/
    <table>/_files/<attempt or snapshot>/*.parquet

Each change is one Delta commit with names of applications, each with the number of a batch. A change is made
for one version of the table, and Delta refuses it if another process has moved one of its applications since.
Each writer looks at the table first, and again after every commit and every error. So a change is applied
exactly once, whichever other processes are at work, and whichever answer was lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

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
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import HASH, LIVE, UPDATED_SEQ, entry_columns
from tidegate.storage.store import Store

FORMAT = "1"
"""The format of what a table's log says about a stream; raise it when the meaning changes."""

_FORMAT = "tidegate.format"
_CHECKPOINT_INTERVAL = "20"
"""A reader that opens a table reads at most this many entries of its log, one by one; each batch opens it."""

_TRIES = 20


@dataclass(frozen=True)
class TableChange:
    """The content of one commit.

    Args:
        numbers: application -> the batch that it is at afterwards.
        added: the files that the table gets.
        removed: the path of each removed file -> its bytes.
        is_rearranged: the same state as before, in other files.
    """

    numbers: Mapping[str, int]
    added: tuple[DataFile, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    is_rearranged: bool = False


@dataclass(frozen=True)
class TableVersion:
    """A table at one version of its log, for which a change is decided. `folder` is its path in the lake."""

    folder: str
    delta: DeltaTable

    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 before its first change."""
        return self.delta.transaction_version(application) or 0

    def files(self) -> dict[str, int]:
        """Return the path of each file, as manifests have it, and its bytes."""
        actions = pa.table(self.delta.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        return {f"{self.folder}/{unquote(row['path'])}": row["size_bytes"] for row in actions.to_pylist()}


NextChange = Callable[[TableVersion], "TableChange | None"]
"""Return the next change for a table as it is; None if there is none."""


@dataclass(frozen=True)
class SharedTable:
    """A Delta table in a folder of the lake. It begins with `columns`, and has all columns of its added
    files.

    All files of one attempt, or snapshot, have the same columns.
    """

    store: Store
    folder: str
    columns: pa.Schema

    def check(self) -> None:
        """Raises LakeDamaged when the existing table was not made by this version of tidegate;
        LakeUnavailable.
        """
        self._opened()

    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 if there is no table. Raises as `check`."""
        table = self._opened()
        return 0 if table is None else TableVersion(self.folder, table).number(application)

    def remove_log(self) -> None:
        """Remove the table, but none of its data files. Raises LakeUnavailable."""
        # The newest entries go first: if the process ends in between, an older table is left, without a gap.
        for file in reversed(self.store.listed(f"{self.folder}/_delta_log")):
            with failpoint("tables.remove"):
                self.store.delete(file.path)

    def catch_up(self, next_change: NextChange) -> None:
        """Apply changes until there is none.

        `next_change` is asked again after each try, with the table as it is then. If another process was
        faster, it has to return another change: as soon as one of a change's applications has moved.

        Raises LakeDamaged if another program made the table, or a file is missing or not below the table's
        folder; SchemaChanged if a column has two types of which neither is wider; LakeUnavailable; and what
        `next_change` raises.
        """
        table, tries = self._opened_or_created(), 0
        change = next_change(self._newest(table))
        while change is not None:
            error = self._commit(table, change)
            # The answer of a commit can be lost: only the table shows whether the change was made.
            following = next_change(self._newest(table))
            flush_commits(self.store.uri(self.folder), table, next(iter(change.numbers)))
            tries = tries + 1 if following == change else 0
            # Without an error only columns were changed, or another process was faster: look again.
            is_conflict = error is None or isinstance(error, CommitFailedError)
            if tries == _TRIES or (tries and not is_conflict):
                raise table_unavailable(self.folder, error or DeltaError("a change is not kept")) from error
            change = following

    def _newest(self, table: DeltaTable) -> TableVersion:
        with delta_errors(self.folder), failpoint("tables.read"):
            table.update_incremental()
        return TableVersion(self.folder, table)

    def _commit(self, table: DeltaTable, change: TableChange) -> Exception | None:
        """Try to apply a change. Returns the error after which it may or may not be applied.

        If columns are missing or too narrow, only they are changed: another process may change the table
        between.
        """
        columns = merged_columns(table.schema(), self._requested(change))
        try:
            if columns.missing:
                with failpoint("tables.widen"):
                    table.alter.add_columns(columns.missing)
            elif columns.widened is not None:
                with failpoint("tables.widen"):
                    self._widen(table, columns.widened)
            else:
                self._write(table, change)
        except (DeltaError, OSError) as error:
            return error
        return None

    def _requested(self, change: TableChange) -> Schema:
        """Return the columns of the added files, under the names in the files. Raises SchemaChanged."""
        return Schema.from_arrow(written_schema(self.store, change.added))

    def _widen(self, table: DeltaTable, columns: Schema) -> None:
        """Give columns wider types with a log entry of our own, since delta-rs cannot change a type (decision
        54).

        If another process has written the version, nothing is written: the caller looks at the table again.
        """
        entry = f"{self.folder}/_delta_log/{table.version() + 1:020}.json"
        self.store.put_if_absent(entry, _widening_entry(table, columns))

    def _write(self, table: DeltaTable, change: TableChange) -> None:
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
        return AddAction(self._path(file.path), file.bytes, {}, 0, not change.is_rearranged, statistics)

    def _removed(self, path: str, size: int, change: TableChange) -> RemoveAction:
        return RemoveAction(self._path(path), not change.is_rearranged, 0, size)

    def _path(self, path: str) -> str:
        relative = path.removeprefix(f"{self.folder}/")
        if relative == path:
            raise LakeDamaged(
                f"The file {path} is not below the table {self.folder}",
                "Use the version of tidegate that wrote the lake, or a newer one.",
            )
        return relative

    def _opened_or_created(self) -> DeltaTable:
        table = self._opened()
        if table is None:
            # not by delta-rs: of several processes that begin at once, it lets two create the table
            with delta_errors(self.folder), failpoint("tables.create"):
                self.store.put_if_absent(f"{self.folder}/_delta_log/{0:020}.json", _first_entry(self.columns))
            table = self._opened()
        assert table is not None, "there is a first entry"
        return table

    def _opened(self) -> DeltaTable | None:
        """Return the table, or None if there is none."""
        with delta_errors(self.folder):
            table = existing_table(self.store.uri(self.folder))
        if table is not None:
            self._require_ours(table)
        return table

    def _require_ours(self, table: DeltaTable) -> None:
        metadata = table.metadata()
        format_ = metadata.configuration.get(_FORMAT)
        if format_ == FORMAT:
            return
        if metadata.partition_columns == ["attempt"]:
            raise LakeDamaged(
                f"The table {self.folder} is of a tidegate from before the first release",
                "Set TIDEGATE_LAKE to a new place.",
            )
        if format_ is None:
            raise LakeDamaged(
                f"The table {self.folder} was not made by tidegate",
                "Move it away, or set TIDEGATE_LAKE to a new place.",
            )
        raise LakeDamaged(
            f"The table {self.folder} has format {format_}; this tidegate writes {FORMAT}",
            "Use the version of tidegate that made it, or a newer one.",
        )


def newest_rows_sql(source: str, by_place: bool = False) -> str:
    """Return a query for one row per live entry of a table of state.

    `source` is the text after FROM. DuckDB, DataFusion and Trino accept the query; for Spark, replace the
    quotes around names by backticks. `by_place`: in a bounded stage a key has an entry per topic-partition.

    Example: `newest_rows_sql("delta_scan('/lake/orders/g1/orders/state')")`.
    """
    entry = ", ".join(f'"{name}"' for name in entry_columns(by_place))
    age = f'row_number() OVER (PARTITION BY {entry} ORDER BY "{UPDATED_SEQ}" DESC)'
    return f'SELECT * FROM (SELECT *, {age} AS age FROM {source}) AS aged WHERE age = 1 AND "{LIVE}"'


def _first_entry(columns: pa.Schema) -> bytes:
    """Return the log's first entry, for a table without files; see Delta's protocol, "Actions"."""
    configuration: dict[str, str | None] = {
        _FORMAT: FORMAT,
        "delta.checkpointInterval": _CHECKPOINT_INTERVAL,
    }
    metadata = _metadata(str(uuid4()), Schema.from_arrow(columns), configuration, _now_ms())
    # Low versions of the protocol, which every engine reads.
    return _entry("CREATE TABLE", {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata)


def _widening_entry(table: DeltaTable, columns: Schema) -> bytes:
    """Return an entry that changes the columns, and nothing else in the table's metadata."""
    metadata = table.metadata()
    created_ms = metadata.created_time if metadata.created_time is not None else _now_ms()
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
    commit = {"timestamp": _now_ms(), "operation": operation, "engineInfo": "tidegate"}
    return "\n".join(map(json.dumps, [{"commitInfo": commit}, *actions])).encode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _statistics(file: DataFile) -> dict[str, object]:
    """Return the statistics by which readers skip a file."""
    if file.least_hash is None:
        return {"numRecords": file.rows}
    bounds = {"minValues": {HASH: file.least_hash}, "maxValues": {HASH: file.most_hash}}
    return {"numRecords": file.rows, **bounds, "nullCount": {HASH: 0}}
