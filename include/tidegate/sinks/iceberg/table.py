"""One table of an Iceberg catalog: what it has of a stream, and changes that are each one snapshot.

The summary of a snapshot has the batch. Progress is the newest such summary among the ancestors of the
current snapshot, so a table that was rolled back does not claim what it has lost. If another program has
expired that snapshot, the table's properties count, which are written with it.

A change is made for the snapshot that was read, and the catalog refuses it if another one is current by then.
The answer of a commit can be wrong or be lost, so after an error the table decides whether it was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.request import url2pathname
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ResolveError, ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AssertTableUUID

from tidegate.errors import Fenced, OutcomeUnknown, ProgressUnreadable, SinkRefused
from tidegate.failpoints import failpoint
from tidegate.sinks.iceberg.catalog import CatalogConfig
from tidegate.sinks.iceberg.rows import Removal
from tidegate.storage.store import Store

FORMAT = 1
"""The format of what summaries and properties say about a stream; raise it when the meaning changes."""

_MARK = "tidegate.progress"
_NEW_TABLE = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a new table: otherwise each batch would leave a metadata file for ever."""


@dataclass(frozen=True)
class TableProgress:
    """The newest batch that a table has of a publisher. `offsets`: topic-partition -> end offset."""

    seq: int
    attempt: str
    stream: str = ""
    offsets: str = "{}"

    def summary(self, shard: str) -> dict[str, str]:
        """Return the entries of a snapshot's summary."""
        return {
            _MARK: self.text,
            "tidegate.shard": shard,
            "tidegate.stream": self.stream,
            "tidegate.seq": str(self.seq),
            "tidegate.attempt": self.attempt,
            "tidegate.offsets": self.offsets,
        }

    @property
    def text(self) -> str:
        """The progress as text."""
        return json.dumps([FORMAT, self.seq, self.attempt])

    def property(self, snapshot_id: int) -> str:
        """Return the progress as a property, with the snapshot in whose summary it is, too."""
        return json.dumps([FORMAT, self.seq, self.attempt, snapshot_id])


class SinkTable:
    """A table as it is when it is opened. Each change needs a new one.

    Args:
        identifier: Its name with the namespace.
        shard: The publisher's name; see `sinks.port.shard_name`.
    """

    def __init__(self, config: CatalogConfig, catalog: Catalog, identifier: str, shard: str) -> None:
        self.identifier = identifier
        self._config = config
        self._catalog = catalog
        self._shard = shard

    @cached_property
    def table(self) -> Table | None:
        """The table; None if it does not exist."""
        with failpoint("iceberg.read_progress"):
            try:
                return self._catalog.load_table(self.identifier)
            except NoSuchTableError:
                return None

    def create(self, columns: pa.Schema) -> None:
        """Create the namespace and the table, unless they exist."""
        if self.table is None:
            with failpoint("iceberg.create"):
                self._catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
                if (folder := _folder(self._config.location(self.identifier))) is not None:
                    Store(str(folder)).make_root()
                self._catalog.create_table_if_not_exists(self.identifier, columns, properties=_NEW_TABLE)
            del self.table

    @property
    def mark(self) -> TableProgress:
        """The newest batch that the table has. Raises ProgressUnreadable."""
        if self.table is None:
            return TableProgress(0, "")
        text = _newest(self.table, self._shard)
        format_, *rest = json.loads(text) if text else (FORMAT, 0, "")
        if format_ != FORMAT:
            raise ProgressUnreadable.of_format(
                f"The table {self.identifier}",
                str(format_),
                FORMAT,
                "Name another table, and raise `generation`: it fills the table from the start.",
            )
        return TableProgress(*rest[:2])

    @property
    def branches(self) -> list[str]:
        """The branches and tags beside the main branch."""
        return sorted(name for name in self._existing.metadata.refs if name != "main")

    def check_columns(self, columns: pa.Schema) -> None:
        """Check that the table can get these columns, and that its own become none of another type. Raises
        SinkRefused.
        """
        if self.table is not None:
            self._with_columns(columns)

    def change(
        self,
        mark: TableProgress | None,
        rows: pa.RecordBatchReader | pa.Table | None = None,
        removal: Removal | None = None,
    ) -> None:
        """Add and remove rows in one snapshot. `mark`: the batch that the table then has.

        Raises Fenced if another process has changed the table since it was opened; OutcomeUnknown,
        SinkRefused.
        """
        table = self._existing
        transaction = self._with_columns(rows.schema) if rows is not None else table.transaction()
        with failpoint("iceberg.write"):
            replaced = list(self._rewritten(transaction, removal)) if removal is not None else []
            added = [file for _, files in replaced for file in files]
            added += self._written(transaction, rows) if rows is not None else []
        update = transaction.update_snapshot(snapshot_properties=mark.summary(self._shard) if mark else {})
        with update.overwrite() if replaced else update.merge_append() as snapshot:
            snapshot.commit_uuid = self._new_name()
            # Without a predicate, PyIceberg looks for removed files in no manifest of an unpartitioned table.
            snapshot.delete_by_predicate(AlwaysTrue())
            for file, _ in replaced:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)
        if mark is not None:
            text = mark.property(snapshot.snapshot_id)
            transaction.set_properties({f"{_MARK}.{self._shard}": text})
        self._commit(transaction, snapshot.snapshot_id)
        del self.table

    def flush(self) -> None:
        """Make the files of the current snapshot's change survive a power cut; object stores need no call."""
        table = self._existing
        folder, snapshot = _folder(table.location()), table.current_snapshot()
        if folder is None or snapshot is None:
            return
        with failpoint("iceberg.flush"):
            files = (table.metadata_location, *_files_of(table, snapshot, added_by=snapshot.snapshot_id))
            paths = (str(_folder(file)) for file in files)
            Store(str(folder)).flush(path.removeprefix(f"{folder}/") for path in paths)

    def remove_history(self) -> None:
        """Remove all snapshots but the current one, and the files that only they have, or that no snapshot of
        this publisher ever got.
        """
        table = self._existing
        current = table.current_snapshot()
        assert current is not None, "a table of which rows were removed has a snapshot"
        current_files = set(map(_path, _files_of(table, current, discard_deleted=True)))
        former = [snapshot for snapshot in table.metadata.snapshots if snapshot != current]
        files = {file for snapshot in former for file in _files_of(table, snapshot)} | set(self._own_files())
        with failpoint("iceberg.remove"):
            # Manifest lists go last: a process that is killed before finds the other files by them again.
            for file in sorted(files, key=lambda file: "/snap-" in file):
                if _path(file) not in current_files:
                    with suppress(FileNotFoundError):
                        table.io.delete(file)
            if former:
                ids = [snapshot.snapshot_id for snapshot in former]
                table.maintenance.expire_snapshots().by_ids(ids).commit()
        del self.table

    @property
    def _existing(self) -> Table:
        assert self.table is not None, "a caller creates the table, or asks whether it exists"
        return self.table

    def _with_columns(self, columns: pa.Schema) -> Transaction:
        """Return a transaction that gives the table what it lacks of these columns. Raises SinkRefused."""
        transaction = self._existing.transaction()
        try:
            with transaction.update_schema() as update:
                update.union_by_name(columns)
        except (ValueError, TypeError, ResolveError, ValidationError) as error:
            raise SinkRefused(
                f"The table {self.identifier} does not take the emissions: {self._config.message(error)}",
                "Emit the column in the type that the table has (`cast(n as int)`), or name another table. "
                "Nothing was published.",
            ) from error
        return transaction

    def _rewritten(
        self, transaction: Transaction, removal: Removal
    ) -> Iterator[tuple[DataFile, list[DataFile]]]:
        """Yield each file that has rows to remove, and the files with its other rows."""
        metadata, io = transaction.table_metadata, self._existing.io
        schema = metadata.schema()
        for task in DataScan(table_metadata=metadata, io=io, row_filter=removal.files).plan_files():

            def read(columns: Schema) -> pa.Table:
                scan = ArrowScan(metadata, io, projected_schema=columns, row_filter=AlwaysTrue())
                return scan.to_table([task])  # noqa: B023

            removed = removal.rows(read(schema.select(*removal.columns)))
            if pc.any(removed).as_py():
                rest = read(schema).filter(pc.invert(removed))
                yield task.file, self._written(transaction, rest)

    def _written(self, transaction: Transaction, rows: pa.RecordBatchReader | pa.Table) -> list[DataFile]:
        metadata = transaction.table_metadata
        if isinstance(rows, pa.Table) and not rows.num_rows:  # PyIceberg divides by it
            return []
        if not metadata.spec().is_unpartitioned() and isinstance(rows, pa.RecordBatchReader):
            rows = rows.read_all()  # PyIceberg streams rows only into tables without partitions
        name = self._new_name()
        return list(_dataframe_to_data_files(metadata, rows, self._existing.io, write_uuid=name))

    def _commit(self, transaction: Transaction, snapshot_id: int) -> None:
        """Commit once. PyIceberg's own commit would try again on a newer snapshot, which can have the batch,
        and remove files after an error, which can be in the table.
        """
        table = self._existing
        requirements = (*transaction._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        try:
            with failpoint("iceberg.commit"):
                table._do_commit(transaction._updates, requirements)
        except CommitFailedException as error:
            if not self._has(snapshot_id):
                what = f"Another process changed the table {self.identifier} at the same time"
                raise Fenced(what, "Run again.") from error
        except self._config.failures as error:
            if not self._has(snapshot_id):
                raise OutcomeUnknown(
                    f"The catalog in {self._config.variable} did not confirm a commit: "
                    f"{self._config.message(error)}",
                    "Run again: it reads what the table has, and goes on from what is true.",
                ) from None

    def _has(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is an ancestor of the one that the table has now."""
        table = self._catalog.load_table(self.identifier)
        history = ancestors_of(table.current_snapshot(), table.metadata)
        return any(snapshot.snapshot_id == snapshot_id for snapshot in history)

    @property
    def _tag(self) -> str:
        return self._shard.replace(":", "-")

    def _new_name(self) -> str:
        """Return a part of the names of new files that no other change has. It names the publisher."""
        return f"{self._tag}-{uuid4()}"

    def _own_files(self) -> Iterator[str]:
        """Yield the data files and manifests that this publisher has written, also those that it never
        committed.
        """
        table = self._existing
        location = table.location()
        scheme, path = location[: len(location) - len(_path(location))], _path(location)
        system = table.io.fs_by_scheme(scheme.partition(":")[0] or "file", path.partition("/")[0])
        for info in system.get_file_info(FileSelector(path, recursive=True)):
            if f"{self._tag}-" in info.base_name:
                yield f"{scheme}{info.path}"


def _newest(table: Table, shard: str) -> str | None:
    """Return the text of the newest mark of a publisher."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        summary = snapshot.summary
        if summary is not None and summary.get("tidegate.shard") == shard:
            return str(summary[_MARK])
    text = dict(table.properties).get(f"{_MARK}.{shard}")
    # A snapshot that exists, and is no ancestor, was current before a rollback, or before a replacement.
    is_expired = text is not None and table.snapshot_by_id(json.loads(text)[-1]) is None
    return text if is_expired else None


def _files_of(
    table: Table, snapshot: Snapshot, *, added_by: int | None = None, discard_deleted: bool = False
) -> Iterator[str]:
    """Yield the manifest list, manifests and data files of a snapshot that exist; `added_by`: only the
    manifests that this snapshot added.
    """
    yield snapshot.manifest_list
    with suppress(FileNotFoundError):
        for manifest in snapshot.manifests(table.io):
            if added_by in (None, manifest.added_snapshot_id):
                yield manifest.manifest_path
                with suppress(FileNotFoundError):
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted):
                        yield entry.data_file.file_path


def _path(location: str) -> str:
    """Return a location without its scheme, which programs write in several ways.

    >>> _path("file:/lake/shop"), _path("file:///lake/shop"), _path("s3://lake/shop")
    ('/lake/shop', '/lake/shop', 'lake/shop')
    """
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:(//)?", "", location)


def _folder(location: str | None) -> Path | None:
    """Return the path of a file or folder on a disk; None in an object store, or if there is none."""
    if location is None or not location.startswith(("/", "file:")):
        return None
    return Path(url2pathname(_path(location)))
