"""One table of an Iceberg catalog: the progress that it has, and changes that are each one snapshot.

The summary of a snapshot has the progress. The newest such summary among the ancestors of the current
snapshot counts, so a table that was rolled back does not claim what it has lost. If another program has
expired that snapshot, the table's properties count, which are written with it.

A change is made for the snapshot that was read, and the catalog refuses it if another one is current by then.
The answer of a commit can be wrong or be lost, so after an error the table decides whether it was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import url2pathname
from uuid import uuid4

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ResolveError, ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, ancestors_of
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import _OverwriteFiles
from sqlalchemy.exc import IntegrityError

from tidegate.failpoints import failpoint
from tidegate.storage.store import Store

_MARK, _WRITER = "tidegate.progress", "tidegate.shard"
NEW_TABLE = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a new table: otherwise each batch would leave a metadata file for ever."""


NOT_EVOLVED = (ValueError, TypeError, ResolveError, ValidationError)
"""The errors of a column that cannot have the type."""


class CatalogTable:
    """A table as it is when it is opened. Each change needs a new one.

    Args:
        identifier: Its name with the namespace.
        writer: The name of who writes: a table can have the progress of several.
    """

    def __init__(self, catalog: Catalog, identifier: str, writer: str) -> None:
        self.identifier = identifier
        self.writer = writer
        self._catalog = catalog

    @cached_property
    def table(self) -> Table | None:
        """The table; None if it does not exist."""
        with failpoint("iceberg.read_progress"):
            try:
                return self._catalog.load_table(self.identifier)
            except NoSuchTableError:
                return None

    @property
    def existing(self) -> Table:
        """The table, if the caller has created it, or asked whether it exists."""
        assert self.table is not None, "a caller creates the table, or asks whether it exists"
        return self.table

    def create(self, columns: pa.Schema, location: str | None, properties: Mapping[str, str]) -> None:
        """Create the namespace and the table, unless they exist. `location` None: the catalog decides."""
        if self.table is None:
            with failpoint("iceberg.create"):
                # If two create it at once in a SQL catalog, the second meets the rows of the first.
                with suppress(IntegrityError):
                    self._catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
                if (folder := _folder(location)) is not None:
                    Store(str(folder)).make_root()
                self._catalog.create_table_if_not_exists(
                    self.identifier, columns, location=location, properties={**NEW_TABLE, **properties}
                )
            del self.table

    def with_columns(self, columns: pa.Schema) -> Transaction:
        """Return a transaction that gives the table what it lacks of these columns.

        Raises an error of NOT_EVOLVED if a type cannot become that of the column.
        """
        transaction = self.existing.transaction()
        _check_scales(schema_to_pyarrow(self.existing.schema()), columns)
        with transaction.update_schema() as update:
            update.union_by_name(columns)
        return transaction

    @property
    def progress(self) -> list[Any] | None:
        """The newest progress of the writer: what `add_snapshot` has got; None before the first."""
        text = _newest(self.existing, self.writer)
        return None if text is None else json.loads(text)

    def progress_of(self, snapshot: Snapshot) -> list[Any] | None:
        """Return the writer's progress in the summary of a snapshot; None if it has none."""
        text = _mark_of(snapshot, self.writer)
        return None if text is None else json.loads(text)

    def add_snapshot(
        self,
        transaction: Transaction,
        added: Collection[DataFile],
        removed: Collection[DataFile],
        progress: list[Any] | None,
        facts: Mapping[str, str],
        is_rearranged: bool = False,
    ) -> int:
        """Add a snapshot to a transaction, and return its id.

        Args:
            transaction: of this table, with the columns that the added files need.
            added: the files that the table gets.
            removed: the files that it loses.
            progress: what the writer has written then; None: the snapshot says nothing of it.
            facts: further entries of the summary, without the prefix `tidegate.`.
            is_rearranged: the rows stay the same. Readers that follow changes skip the snapshot.
        """
        summary = {f"tidegate.{name}": fact for name, fact in facts.items()}
        if progress is not None:
            summary |= {_MARK: json.dumps(progress), _WRITER: self.writer}
        update = transaction.update_snapshot(snapshot_properties=summary)
        if is_rearranged:
            producer = _ReplaceFiles(Operation.OVERWRITE, transaction, self.existing.io, summary)
        else:
            producer = update.overwrite() if removed else update.merge_append()
        with producer as snapshot:
            snapshot.commit_uuid = self.new_name()
            # Without a predicate, PyIceberg looks for removed files in no manifest of an unpartitioned table.
            snapshot.delete_by_predicate(AlwaysTrue())
            for file in removed:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)
        snapshot_id = int(snapshot.snapshot_id)
        if progress is not None:
            text = json.dumps([*progress, snapshot_id])
            transaction.set_properties({f"{_MARK}.{self.writer}": text})
        return snapshot_id

    def commit(self, transaction: Transaction) -> None:
        """Commit once. PyIceberg's own commit would try again on a newer snapshot, which can have the batch,
        and remove files after an error, which can be in the table.
        """
        table = self.existing
        requirements = (*transaction._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        with failpoint("iceberg.commit"):
            table._do_commit(transaction._updates, requirements)

    def has(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is an ancestor of the one that the table has now."""
        table = self._catalog.load_table(self.identifier)
        history = ancestors_of(table.current_snapshot(), table.metadata)
        return any(snapshot.snapshot_id == snapshot_id for snapshot in history)

    def flush(self) -> None:
        """Make the files of the current snapshot's change survive a power cut; object stores need no call."""
        table = self.existing
        folder, snapshot = _folder(table.location()), table.current_snapshot()
        if folder is None or snapshot is None:
            return
        with failpoint("iceberg.flush"):
            files = (table.metadata_location, *files_of(table, snapshot, added_by=snapshot.snapshot_id))
            paths = (str(_folder(file)) for file in files)
            Store(str(folder)).flush(path.removeprefix(f"{folder}/") for path in paths)

    def new_name(self) -> str:
        """Return a part of the names of new files that no other change has. It names the writer."""
        return re.sub(r"[:/]", "-", f"{self.writer}-{uuid4()}")


class _ReplaceFiles(_OverwriteFiles):  # type: ignore[misc]  # see mypy.overrides
    """A snapshot with the same rows in other files, which PyIceberg does not make by itself."""

    def __init__(self, operation: Operation, transaction: Transaction, io: Any, summary: Any) -> None:
        super().__init__(
            operation=operation, transaction=transaction, io=io, branch="main", snapshot_properties=summary
        )

    def _summary(self, snapshot_properties: dict[str, str]) -> Summary:
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)


def _check_scales(existing: Any, columns: Any) -> None:
    """Raise ValueError if a decimal would get more or fewer digits behind the point.

    PyIceberg 0.12 compares a scale with itself (`schema.promote`), and readers would read other numbers.
    """
    for field in columns:
        index = existing.get_field_index(field.name)
        if index >= 0:
            _check_scale(field.name, existing.field(index).type, field.type)


def _check_scale(name: str, existing: pa.DataType, type_: pa.DataType) -> None:
    if pt.is_decimal(existing) and pt.is_decimal(type_) and existing.scale != type_.scale:
        raise ValueError(f"Cannot change column type: {name}: {existing} -> {type_}")
    if pt.is_struct(existing) and pt.is_struct(type_):
        _check_scales(existing, type_)
    if isinstance(existing, (pa.ListType, pa.LargeListType)) and pt.is_list(type_):
        _check_scale(name, existing.value_type, type_.value_type)
    if pt.is_map(existing) and pt.is_map(type_):
        _check_scale(name, existing.item_type, type_.item_type)


def _newest(table: Table, writer: str) -> str | None:
    """Return the text of the newest progress of a writer."""
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if (mark := _mark_of(snapshot, writer)) is not None:
            return mark
    text = dict(table.properties).get(f"{_MARK}.{writer}")
    # A snapshot that exists, and is no ancestor, was current before a rollback, or before a replacement.
    is_expired = text is not None and table.snapshot_by_id(json.loads(text)[-1]) is None
    return text if is_expired else None


def _mark_of(snapshot: Snapshot, writer: str) -> str | None:
    summary = snapshot.summary
    return str(summary[_MARK]) if summary is not None and summary.get(_WRITER) == writer else None


def files_of(
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


def path_of(location: str) -> str:
    """Return a location without its scheme, which programs write in several ways.

    >>> path_of("file:/lake/shop"), path_of("file:///lake/shop"), path_of("s3://lake/shop")
    ('/lake/shop', '/lake/shop', 'lake/shop')
    """
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:(//)?", "", location)


def _folder(location: str | None) -> Path | None:
    """Return the path of a file or folder on a disk; None in an object store, or if there is none."""
    if location is None or not location.startswith(("/", "file:")):
        return None
    return Path(url2pathname(path_of(location)))
