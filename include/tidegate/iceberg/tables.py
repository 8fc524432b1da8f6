"""Tables for other engines in an Iceberg catalog.

The metadata is in the table's folder, in `metadata`; the catalog has the name of the newest. Tables name data
files as batches have written them, without field ids, so readers match columns by name
(`schema.name-mapping.default`). Columns and files change in one commit. The catalog refuses a commit if
another snapshot is current than the one that it was made for.

Iceberg has no numbers of applications as Delta has (`txn`): all of them are in the summary of each snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import Record

from tidegate.errors import LakeDamaged, SchemaChanged
from tidegate.failpoints import failpoint
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.iceberg.table import NOT_EVOLVED, CatalogTable, path_of
from tidegate.storage.datafile import written_schema
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

SNAPSHOTS = 100
"""A table keeps so many snapshots: each commit writes and each reader reads the list of all of them."""
_WRITER = "tables"
_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    FORMAT_PROPERTY: FORMAT,
    # The data files are the lake's: no engine may delete them when it expires snapshots or removes orphans.
    "gc.enabled": "false",
    # Otherwise a table would have a manifest for each batch.
    "commit.manifest-merge.enabled": "true",
}


@dataclass(frozen=True)
class IcebergFormat(TableFormat):
    """Tables of an Iceberg catalog.

    A column's type can only become one that Iceberg promotes to: a state also takes whole numbers as decimals
    or doubles, and decimals with more digits behind the point.
    """

    config: CatalogConfig

    def table_in(self, store: Store, folder: str, columns: pa.Schema) -> SharedTable:
        """Return the Iceberg table in a folder of the lake: `orders_g1.totals_state` in
        `orders/g1/totals/state`.
        """
        pipeline, generation, stage, kind = folder.split("/")
        name = f"{pipeline}_{generation}.{stage}_{kind}"
        return SharedIcebergTable(store, folder, columns, self.config, name)

    def drop(self, lake: Lake) -> None:
        """Remove the stream's tables and its namespace from the catalog. Their metadata is in the stream's
        folder.
        """
        namespace = lake.base.replace("/", "_")
        with self.config.opened() as catalog:
            try:
                for table in catalog.list_tables(namespace):
                    _drop(catalog, ".".join(table))
                catalog.drop_namespace(namespace)
            except (NoSuchNamespaceError, NamespaceNotEmptyError):
                return


@dataclass(frozen=True)
class SharedIcebergVersion(TableVersion):
    """An Iceberg table at one snapshot."""

    shared: SharedIcebergTable
    opened: CatalogTable
    conflict = CommitFailedException

    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 before its first change."""
        return self._numbers.get(application, 0)

    @property
    def _numbers(self) -> Mapping[str, int]:
        progress = self.opened.progress
        return {} if progress is None else dict(progress[0])

    def files(self) -> dict[str, int]:
        """Return the path of each file, as manifests have it, and its bytes."""
        return {path: file.file_size_in_bytes for path, file in self._files().items()}

    def _files(self) -> dict[str, IcebergFile]:
        table = self.opened.existing
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))
        return {self.shared.path(entry.data_file.file_path): entry.data_file for entry in entries}

    def update(self) -> None:
        """Load the table anew."""
        with failpoint("tables.read"):
            del self.opened.table
            self.shared.require_ours(self.opened.existing)

    def apply(self, change: TableChange) -> Exception | None:
        """Try to apply a change, with the columns that it needs, in one commit."""
        transaction = self.shared.with_columns(self.opened, change.added)
        schema = transaction.table_metadata.schema()
        existing = self._files() if change.removed else {}
        progress = [{**self._numbers, **change.numbers}]
        self.opened.add_snapshot(
            transaction,
            [self.shared.named(file, schema) for file in change.added],
            [existing[path] for path in change.removed if path in existing],
            progress,
            change.batch(),
            change.is_rearranged,
        )
        _expire(transaction, self._oldest(SNAPSHOTS - 1))
        try:
            with failpoint("tables.commit"):
                self.opened.commit(transaction)
        except self.shared.config.failures as error:
            return error
        return None

    def _oldest(self, newest: int) -> list[int]:
        """Return the ids of the snapshots but the `newest` newest, without those that a branch names."""
        metadata = self.opened.existing.metadata
        named = {reference.snapshot_id for reference in metadata.refs.values()}
        snapshots = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        oldest = snapshots[: max(0, len(snapshots) - newest)]
        return [snapshot.snapshot_id for snapshot in oldest if snapshot.snapshot_id not in named]

    def flush(self, change: TableChange) -> None:
        """Flush the files of the current snapshot."""
        self.opened.flush()

    def failure(self, error: Exception | None) -> Exception:
        """Return the error; the opened catalog turns it into one of tidegate's."""
        return error or CommitFailedException("a change is not kept")


@dataclass(frozen=True)
class SharedIcebergTable(SharedTable):
    """An Iceberg table for other engines. `name`: in the catalog, with its namespace."""

    config: CatalogConfig
    name: str
    format_name = "iceberg"

    @contextmanager
    def opened(self) -> Iterator[SharedIcebergVersion | None]:
        """Open the table; None if there is none. Raises LakeDamaged, SinkUnavailable, SinkRefused."""
        with self.config.opened() as catalog:
            opened = CatalogTable(catalog, self.name, _WRITER)
            if opened.table is None:
                yield None
                return
            self.require_ours(opened.table)
            yield SharedIcebergVersion(self, opened)

    def create(self) -> None:
        """Create the table in its folder, unless another process was faster."""
        with self.config.opened() as catalog, failpoint("tables.create"):
            opened = CatalogTable(catalog, self.name, _WRITER)
            opened.create(self.columns, self.location, _PROPERTIES)

    def remove(self) -> None:
        """Remove the table from the catalog, and then its metadata."""
        with self.config.opened() as catalog, failpoint("tables.remove"):
            _drop(catalog, self.name)
        for file in self.store.listed(self._log):
            self.store.delete(file.path)

    def check(self, files: Sequence[DataFile] = ()) -> None:
        """Raise as `opened` does; SchemaChanged if the table cannot take the columns of files."""
        with self.opened() as table:
            if table is not None and files:
                self.with_columns(table.opened, files)

    def expire(self, application: str, number: int, until: float) -> None:
        """Remove snapshots at which an application was before `number`, and files that no snapshot needs."""
        with self.opened() as version:
            if version is None:
                return
            table = version.opened.existing
            transaction = table.transaction()
            _expire(transaction, list(self._before(version, application, number)))
            if transaction._updates:
                with failpoint("tables.expire"):
                    version.opened.commit(transaction)
                version.update()
            self._remove_unneeded(version.opened.existing, until)

    def _before(self, version: SharedIcebergVersion, application: str, number: int) -> Iterator[int]:
        metadata = version.opened.existing.metadata
        named = {reference.snapshot_id for reference in metadata.refs.values()}
        for snapshot in metadata.snapshots:
            numbers = version.opened.progress_of(snapshot)
            is_before = numbers is not None and numbers[0].get(application, 0) < number
            if is_before and snapshot.snapshot_id not in named:
                yield snapshot.snapshot_id

    def _remove_unneeded(self, table: Table, until: float) -> None:
        """Delete old files of the log that no snapshot has."""
        snapshots = table.metadata.snapshots
        needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        needed |= {snapshot.manifest_list for snapshot in snapshots}
        needed |= {
            manifest.manifest_path for snapshot in snapshots for manifest in snapshot.manifests(table.io)
        }
        paths = set(map(self.path, needed))
        for file in self.store.listed(self._log):
            if file.changed_at <= until and file.path not in paths:
                with failpoint("tables.clean"):
                    self.store.delete(file.path)

    def with_columns(self, opened: CatalogTable, files: Sequence[DataFile]) -> Transaction:
        """Return a transaction that gives the table what it lacks of the files' columns. Raises
        SchemaChanged.
        """
        columns = _optional(written_schema(self.store, files))
        try:
            transaction = opened.with_columns(columns)
        except NOT_EVOLVED as error:
            raise SchemaChanged(
                f"The Iceberg table {self.name} cannot take the columns of the batch: "
                f"{self.config.message(error)}",
                "Raise `generation`, or undo the edit: Iceberg widens int to bigint, float to double, and "
                "decimals only before the point.",
            ) from error
        mapping = create_mapping_from_schema(transaction.table_metadata.schema()).model_dump_json()
        if opened.existing.properties.get(_MAPPING) != mapping:
            transaction.set_properties({_MAPPING: mapping})
        return transaction

    def named(self, file: DataFile, schema: Schema) -> IcebergFile:
        """Return a data file as a manifest of Iceberg names it, with the statistics by which readers skip
        it.
        """
        hash_id = schema.find_field(HASH).field_id
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.location}/{self.relative(file.path)}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            lower_bounds=_bound(hash_id, file.least_hash),
            upper_bounds=_bound(hash_id, file.most_hash),
            spec_id=0,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )

    @property
    def location(self) -> str:
        """The table's folder, as the catalog has it."""
        return self.store.uri(self.folder)

    @property
    def _log(self) -> str:
        return f"{self.folder}/{LOGS[self.format_name]}"

    def path(self, location: str) -> str:
        """Return the path in the lake of a location below the table's folder."""
        return f"{self.folder}{path_of(location).removeprefix(path_of(self.location))}"

    def require_ours(self, table: Table) -> None:
        """Raise LakeDamaged unless this installation has made the table, with this version's format."""
        self.require_format(table.properties.get(FORMAT_PROPERTY))
        if path_of(table.location()).rstrip("/") != path_of(self.location):
            raise LakeDamaged(
                f"The Iceberg table {self.name} is in {table.location()}, and not in {self.location}: it is "
                "another installation's",
                "Use another catalog, or another name of the catalog, for each lake; or set TIDEGATE_LAKE to "
                "the lake that the table is in.",
            )


def _drop(catalog: Catalog, name: str) -> None:
    try:
        catalog.drop_table(name)
    except NoSuchTableError:
        return


def _expire(transaction: Transaction, ids: list[int]) -> None:
    if ids:
        transaction._apply((RemoveSnapshotsUpdate(snapshot_ids=ids),), ())


def _bound(field_id: int, hash_: int | None) -> dict[int, bytes]:
    return {} if hash_ is None else {field_id: hash_.to_bytes(8, "little", signed=True)}


def _optional(columns: pa.Schema) -> pa.Schema:
    """Return the columns with nulls allowed, also inside of nested types: older files lack some of them."""
    return pa.schema([_optional_field(column) for column in columns])


def _optional_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _optional_type(field.type))


def _optional_type(type_: pa.DataType) -> pa.DataType:
    if pt.is_struct(type_):
        return pa.struct([_optional_field(field) for field in type_])
    if pt.is_list(type_):
        return pa.list_(_optional_field(type_.value_field))
    if pt.is_map(type_):
        return pa.map_(_optional_type(type_.key_type), _optional_type(type_.item_type))
    return type_
