"""The table of an Iceberg sink: the newest batch that it has, and the rows that a batch adds and removes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Transaction

from tidegate.errors import (
    Fenced,
    LakeUnavailable,
    OutcomeUnknown,
    ProgressUnreadable,
    SinkRefused,
    SinkUnavailable,
)
from tidegate.failpoints import failpoint
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.iceberg.table import NOT_EVOLVED, CatalogTable, files_of, path_of
from tidegate.ledger import Stream
from tidegate.sinks.places import S3_SCHEMES
from tidegate.storage.schema import KEY, SEQ

FORMAT = 1
"""The format of what summaries and properties say about a stream; raise it when the meaning changes."""
STREAM = "stream"
"""The column with the pipeline and its generation, which tells apart the rows of several streams."""
_ROW = "row"


@dataclass(frozen=True)
class Removal:
    """Rows that a change removes.

    Args:
        files: The files that can have such rows.
        columns: The columns that decide whether a row is one.
        rows: Returns for each row, by these columns, whether it is removed.
    """

    files: BooleanExpression
    columns: tuple[str, ...]
    rows: Callable[[pa.Table], pa.ChunkedArray]


def newest_rows(rows: pa.Table, deleted: pa.ChunkedArray, entry: Sequence[str]) -> tuple[Removal, pa.Table]:
    """Return what an upsert changes: the removal of all entries, and the last row of those that are not
    deleted.

    Args:
        rows: The emissions of a batch, in order.
        deleted: For each of them, whether it is a deletion.
        entry: The columns that identify a key, or a key's window.
    """
    numbered = rows.select(entry).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    entries = numbered.group_by(list(entry)).aggregate([(_ROW, "max")])
    newest = entries[f"{_ROW}_max"].combine_chunks().sort()
    live = newest.filter(pc.invert(deleted.take(newest)))
    return _entries(entries.select(entry)), rows.take(live)


def _entries(entries: pa.Table) -> Removal:
    names = entries.column_names

    def are_entries(rows: pa.Table) -> pa.ChunkedArray:
        numbers = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.select(names).append_column(_ROW, numbers)
        return pc.is_in(numbers, numbered.join(entries, names, join_type="left semi")[_ROW])

    return Removal(_between(entries[KEY]), tuple(names), are_entries)


def rows_of_keys(keys: pa.ChunkedArray, pipeline: str) -> Removal:
    """Return the removal of all rows of keys that any generation of a pipeline has written."""
    # A table can be that of several pipelines, whose keys of the same text are others.
    return Removal(
        _between(keys),
        (KEY, STREAM),
        lambda rows: pc.and_(pc.is_in(rows[KEY], keys), pc.starts_with(rows[STREAM], pattern=f"{pipeline}/")),
    )


def rows_after(stream: Stream, seq: int) -> Removal:
    """Return the removal of a stream's rows of batches after `seq`."""
    name = str(stream)
    return Removal(
        And(EqualTo(STREAM, name), GreaterThan(SEQ, seq)),
        (STREAM, SEQ),
        lambda rows: pc.and_(pc.equal(rows[STREAM], name), pc.greater(rows[SEQ], seq)),
    )


def _between(keys: pa.ChunkedArray) -> BooleanExpression:
    """Return the condition for files with one of the keys.

    PyIceberg compares the statistics of files with 200 values at most.
    """
    bounds = pc.min_max(keys).as_py()
    if bounds["min"] is None:
        return AlwaysFalse()
    return And(GreaterThanOrEqual(KEY, bounds["min"]), LessThanOrEqual(KEY, bounds["max"]))


@dataclass(frozen=True)
class TableProgress:
    """The newest batch that a table has of a publisher. `offsets`: topic-partition -> end offset."""

    seq: int
    attempt: str
    stream: str = ""
    offsets: str = "{}"

    @property
    def content(self) -> list[Any]:
        """The content that the table stores."""
        return [FORMAT, self.seq, self.attempt]

    @property
    def facts(self) -> dict[str, str]:
        """The entries of the snapshot's summary, for people."""
        return {
            "stream": self.stream,
            "seq": str(self.seq),
            "attempt": self.attempt,
            "offsets": self.offsets,
        }


class SinkTable(CatalogTable):
    """A table as it is when it is opened. Each change needs a new one.

    Args:
        config: The catalog's properties.
        catalog: The opened catalog.
        identifier: The table's name with the namespace.
        shard: The publisher's name; see `sinks.port.shard_name`.
    """

    def __init__(self, config: CatalogConfig, catalog: Catalog, identifier: str, shard: str) -> None:
        super().__init__(catalog, identifier, shard)
        self._config = config

    def create_for(self, columns: pa.Schema) -> None:
        """Create the namespace and the table, unless they exist. Raises SinkUnavailable."""
        location = self._config.location(self.identifier)
        try:
            self.create(columns, location, {})
        except LakeUnavailable as error:  # it is named after the lake's files, which are not in a warehouse
            raise SinkUnavailable(
                f"The folder {location} of the new table {self.identifier} cannot be used: {error.__cause__}",
                f"Check the warehouse in {self._config.variable}, rights and space; then run again, nothing "
                "is lost.",
            ) from error

    def check_bucket(self) -> None:
        """Check that a new table's bucket exists. Raises SinkRefused."""
        location = self._config.location(self.identifier) or ""
        scheme, _, path = location.partition("://")
        if self.table is not None or scheme not in S3_SCHEMES:
            return
        bucket = path.partition("/")[0]
        system = load_file_io(self._catalog.properties, location).fs_by_scheme(scheme, bucket)
        if system.get_file_info(bucket).type == FileType.NotFound:
            raise SinkRefused(
                f"There is no bucket {bucket} for the new table {self.identifier}",
                f"Create it, or name another one in the `warehouse` of {self._config.variable}.",
            )

    def mark(self) -> TableProgress:
        """Return the newest batch that the table has. Raises ProgressUnreadable."""
        content = None if self.table is None else self.progress
        if content is None:
            return TableProgress(0, "")
        format_, *rest = content
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
        return sorted(name for name in self.existing.metadata.refs if name != "main")

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
        transaction = self._with_columns(rows.schema) if rows is not None else self.existing.transaction()
        with failpoint("iceberg.write"):
            replaced = list(self._rewritten(transaction, removal)) if removal is not None else []
            added = [file for _, files in replaced for file in files]
            added += self._written(transaction, rows) if rows is not None else []
        snapshot_id = self.add_snapshot(
            transaction,
            added,
            [file for file, _ in replaced],
            mark.content if mark is not None else None,
            mark.facts if mark is not None else {},
        )
        self._commit_once(transaction, snapshot_id)
        del self.table

    def remove_history(self, is_dead: Callable[[str], bool]) -> None:
        """Remove all snapshots but the current one, and the files that only they have, or that no snapshot
        ever got.

        Args:
            is_dead: Says, by the name of a file that no snapshot has, that nobody will commit it any more.
        """
        table = self.existing
        current = table.current_snapshot()
        assert current is not None, "a table of which rows were removed has a snapshot"
        current_files = set(map(path_of, files_of(table, current, discard_deleted=True)))
        former = [snapshot for snapshot in table.metadata.snapshots if snapshot != current]
        files = {file for snapshot in former for file in files_of(table, snapshot)}
        files |= {file for file in self._files() if is_dead(file.rpartition("/")[-1])}
        with failpoint("iceberg.remove"):
            # Manifest lists go last: a process that is killed before finds the other files by them again.
            for file in sorted(files, key=lambda file: "/snap-" in file):
                if path_of(file) not in current_files:
                    with suppress(FileNotFoundError):
                        table.io.delete(file)
            if former:
                ids = [snapshot.snapshot_id for snapshot in former]
                table.maintenance.expire_snapshots().by_ids(ids).commit()
        del self.table

    def _with_columns(self, columns: pa.Schema) -> Transaction:
        """Return a transaction that gives the table what it lacks of these columns. Raises SinkRefused."""
        emitted = set(columns.names)
        for column in self.existing.schema().fields:
            if column.required and column.name not in emitted:
                raise SinkRefused(
                    f"The table {self.identifier} needs a value in {column.name}, which is not emitted",
                    "Emit that column, let it be null (`ALTER COLUMN … DROP NOT NULL`), or name another "
                    "table. Nothing was published.",
                )
        try:
            return self.with_columns(columns)
        except NOT_EVOLVED as error:
            raise SinkRefused(
                f"The table {self.identifier} does not take the emissions: {self._config.message(error)}",
                "Emit the column in the type that the table has (`cast(n as int)`), or name another table. "
                "Nothing was published.",
            ) from error

    def _rewritten(
        self, transaction: Transaction, removal: Removal
    ) -> Iterator[tuple[DataFile, list[DataFile]]]:
        """Yield each file that has rows to remove, and the files with its other rows."""
        metadata, io = transaction.table_metadata, self.existing.io
        schema = metadata.schema()
        for task in DataScan(table_metadata=metadata, io=io, row_filter=removal.files).plan_files():

            def read(columns: Schema) -> pa.Table:
                scan = ArrowScan(metadata, io, projected_schema=columns, row_filter=AlwaysTrue())
                return scan.to_table([task])  # noqa: B023

            # Rows of others can have no stream or batch: what is not known to be ours stays.
            removed = pc.fill_null(removal.rows(read(schema.select(*removal.columns))), False)
            if pc.any(removed).as_py():
                rest = read(schema).filter(pc.invert(removed))
                yield task.file, self._written(transaction, rest)

    def _written(self, transaction: Transaction, rows: pa.RecordBatchReader | pa.Table) -> list[DataFile]:
        metadata = transaction.table_metadata
        if isinstance(rows, pa.Table) and not rows.num_rows:  # PyIceberg divides by it
            return []
        if not metadata.spec().is_unpartitioned() and isinstance(rows, pa.RecordBatchReader):
            rows = rows.read_all()  # PyIceberg streams rows only into tables without partitions
        name = self.new_name()
        return list(_dataframe_to_data_files(metadata, rows, self.existing.io, write_uuid=name))

    def _commit_once(self, transaction: Transaction, snapshot_id: int) -> None:
        """Commit, and find out after an error whether the table has the snapshot."""
        try:
            self.commit(transaction)
        except CommitFailedException as error:
            if not self.has(snapshot_id):
                what = f"Another process changed the table {self.identifier} at the same time"
                raise Fenced(what, "Run again.") from error
        except self._config.failures as error:
            if not self.has(snapshot_id):
                raise OutcomeUnknown(
                    f"The catalog in {self._config.variable} did not confirm a commit: "
                    f"{self._config.message(error)}",
                    "Run again: it reads what the table has, and goes on from what is true.",
                ) from None

    def _files(self) -> Iterator[str]:
        """Yield all files in the table's folder, also those that were never committed."""
        table = self.existing
        location = table.location()
        scheme, path = location[: len(location) - len(path_of(location))], path_of(location)
        system = table.io.fs_by_scheme(scheme.partition(":")[0] or "file", path.partition("/")[0])
        for info in system.get_file_info(FileSelector(path, recursive=True)):
            if info.type == FileType.File:
                yield f"{scheme}{info.path}"
