"""Delta tables for others: the committed rows of a stream, for readers that know nothing of tidegate.

A table's log names the very files that attempts and compactions wrote; nothing is copied. So all of its files
lie below its own folder: paths that lead out of it are understood by some readers and not by others. They are
in a hidden part of it, where a vacuum does not look for files that the log does not know yet:

    <table>/_delta_log/
    <table>/_files/<attempt or snapshot>/*.parquet

Each change is one Delta commit that bears an application's name and the number of a batch. Delta refuses one
that was begun before another of the same application; and who begins looks first, and after every error looks
again. So a change is there once, whoever else is at work, and whatever answer was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tidegate.errors import LakeDamaged
from tidegate.lake.delta import delta_errors, table_unavailable
from tidegate.lake.manifest import DataFile
from tidegate.lake.schema import HASH, LIVE, UPDATED_SEQ, entry_columns
from tidegate.lake.store import Store

_TRIES = 20


@dataclass(frozen=True)
class TableChange:
    """What one commit does. `number`: of the batch, or of the batch that a snapshot was made after.
    `is_rearranged`: the same state as before, in other files.
    """

    number: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...] = ()
    is_rearranged: bool = False


@dataclass(frozen=True)
class SharedTable:
    """A Delta table in a folder of the lake, with the columns of `schema`."""

    store: Store
    folder: str
    schema: pa.Schema

    def last_number(self, application: str) -> int:
        """The number of an application's last change; 0 before the first. Raises LakeUnavailable."""
        with delta_errors(self.folder):
            try:
                return self._open().transaction_version(application) or 0
            except TableNotFoundError:
                return 0

    def catch_up(self, application: str, changes: Iterable[TableChange]) -> None:
        """Apply, in the order of their numbers, those changes that the table does not have.

        They are all that follow `last_number`; without files there may be none for a batch. Raises
        LakeDamaged when a file is not below the table's folder; LakeUnavailable.
        """
        table = None
        for change in changes:
            table = table or self._opened_or_created()
            self._apply(table, application, change)

    def _apply(self, table: DeltaTable, application: str, change: TableChange) -> None:
        for _ in range(_TRIES):
            if self._has(table, application, change.number):
                return
            try:
                self._commit(table, application, change)
                return
            except CommitFailedError as error:  # others changed the table meanwhile: this change, perhaps
                conflict = error
            except (DeltaError, OSError) as error:
                if self._has(table, application, change.number):
                    return  # it landed, and only the answer was lost
                raise table_unavailable(self.folder, error) from error
        raise table_unavailable(self.folder, conflict) from conflict

    def _has(self, table: DeltaTable, application: str, number: int) -> bool:
        with delta_errors(self.folder):
            table.update_incremental()
            return (table.transaction_version(application) or 0) >= number

    def _commit(self, table: DeltaTable, application: str, change: TableChange) -> None:
        if missing := _missing_fields(pa.schema(table.schema().to_arrow()), self.schema):
            table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        table.create_write_transaction(
            [
                *(self._added(file, change) for file in change.added),
                *(self._removed(file, change) for file in change.removed),
            ],
            mode="append",
            schema=table.schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction(application, change.number)]),
        )

    def _added(self, file: DataFile, change: TableChange) -> AddAction:
        return AddAction(
            self._path(file), file.bytes, {}, 0, not change.is_rearranged, json.dumps(_statistics(file))
        )

    def _removed(self, file: DataFile, change: TableChange) -> RemoveAction:
        return RemoveAction(self._path(file), not change.is_rearranged, 0, file.bytes)

    def _path(self, file: DataFile) -> str:
        path = file.path.removeprefix(f"{self.folder}/")
        if path == file.path:
            raise LakeDamaged(
                f"The file {file.path} is not below the table {self.folder}",
                "Use the version of tidegate that wrote the lake, or a newer one.",
            )
        return path

    def _opened_or_created(self) -> DeltaTable:
        with delta_errors(self.folder):
            try:
                return self._open()
            except TableNotFoundError:
                pass
            schema, options = Schema.from_arrow(self.schema), self.store.delta_options
            try:
                return DeltaTable.create(
                    self.store.uri(self.folder), schema, mode="ignore", storage_options=options
                )
            except DeltaError:  # another was faster, if it can be opened now
                return self._open()

    def _open(self) -> DeltaTable:
        return DeltaTable(self.store.uri(self.folder), storage_options=self.store.delta_options)


def newest_rows_sql(source: str, by_place: bool = False) -> str:
    """A query for one row per entry that is live, out of a table of state.

    `source` is what stands after FROM. Understood by DuckDB, DataFusion and Trino; for Spark the quotes
    around names are backticks. `by_place`: in a bounded stage a key has an entry in each topic-partition.
    """
    entry = ", ".join(f'"{name}"' for name in entry_columns(by_place))
    age = f'row_number() OVER (PARTITION BY {entry} ORDER BY "{UPDATED_SEQ}" DESC)'
    return f'SELECT * FROM (SELECT *, {age} AS age FROM {source}) AS aged WHERE age = 1 AND "{LIVE}"'


def _statistics(file: DataFile) -> dict[str, object]:
    """What readers skip a file by."""
    if file.least_hash is None:
        return {"numRecords": file.rows}
    bounds = {"minValues": {HASH: file.least_hash}, "maxValues": {HASH: file.most_hash}}
    return {"numRecords": file.rows, **bounds, "nullCount": {HASH: 0}}


def _missing_fields(existing: pa.Schema | pa.StructType, requested: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields that a table lacks, in whole or in part."""

    def lacks(field: pa.Field) -> bool:
        place = existing.get_field_index(field.name)
        if place < 0:
            return True
        is_struct = pa.types.is_struct(field.type)
        return is_struct and bool(_missing_fields(existing.field(place).type, field.type))

    return [field for field in requested if lacks(field)]
