"""Write, open and verify the Parquet files of manifests.

A file that is missing, short or changed raises LakeDamaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import LakeDamaged
from tidegate.storage.evolution import (
    NO_ALIASES,
    Aliases,
    aliases_in,
    conformed,
    merged_schema,
    renamed_schema,
)
from tidegate.storage.manifest import DataFile, Kind, damaged
from tidegate.storage.schema import DUE_AT, HASH, TOPIC
from tidegate.storage.store import Sink, Store, Written, store_errors, written_of

ROW_GROUP_ROWS = 32_768
STATE_GROUP_ROWS = 2_048
"""A batch reads whole row groups of a state. A batch of 10,000 keys reads a fifth of a state of 100,000,000
keys if row groups are this small, and all of it if they have 16 times as many rows.
"""
PATH = "tidegate.path"
"""The footer's key for the path of its file: so two files never have the same footer, even with the same
rows.
"""
_NULL_COLUMNS = "tidegate.null-columns"
"""The footer's key for the names of the columns that are null in all rows."""
_ROW_GROUP_BYTES = 16 * 1024 * 1024
_WHOLE = ("INT32", "INT64")
"""The physical types of whole numbers, times and dates."""
_LONG_TEXT, _SAMPLE_BYTES, _WORTHWHILE = 128, 64 * 1024, 0.6
"""The bytes of a long text in a row; the bytes that are tried; the share of them that may be left."""


class RowWriter:
    """A Parquet file that begins with its first row; without rows no file is made.

    Use it as a context manager, and read `file` after the block: then the file is durable. Rows with a column
    `hash` must be sorted by it. Raises LakeUnavailable on writing.

    Example::

        with RowWriter(store, path, "outbox", "orders") as writer:
            writer.write(batch)
        data_file = writer.file  # None if there were no rows
    """

    def __init__(self, store: Store, path: str, kind: Kind, stage: str = "") -> None:
        self._store, self._path = store, path
        self._kind, self._stage = kind, stage
        self._open = ExitStack()
        self._sink: Sink | None = None
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = self._gathered_bytes = self._rows = 0
        self._columns: list[str] = []
        self._with_values: set[str] = set()
        self._least: int | None = None
        self._most: int | None = None
        self.file: DataFile | None = None

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._gathered.clear()
            self._open.__exit__(type_, error, trace)
            return
        self._write_group()
        # Arrow raises errors of its own, for example for a full disk
        with store_errors(self._path):
            if self._sink is not None and self._writer is not None:
                # All row groups are written: what Arrow writes from now on until it is closed is the footer.
                self._sink.begin_footer()
                null_columns = [name for name in self._columns if name not in self._with_values]
                self._writer.add_key_value_metadata(
                    {PATH: self._path, _NULL_COLUMNS: json.dumps(null_columns)}
                )
            self._open.close()
        if self._sink is not None:
            written, footer = self._sink.written, self._sink.footer
            self.file = DataFile(
                *(self._kind, self._stage, self._path, self._rows, written.bytes, written.digest),
                *(footer.bytes, footer.digest, self._least, self._most),
            )

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, all of one schema. They are gathered into row groups of 32,768 rows, in a state 2,048
        rows, or 16 MiB.

        Raises LakeUnavailable.
        """
        if not rows.num_rows:
            return
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self._gathered_bytes += rows.nbytes
        if self._gathered_rows >= ROW_GROUP_ROWS or self._gathered_bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._gathered:
            with store_errors(self._path):
                self._write_gathered()

    def _write_gathered(self) -> None:
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        if self._writer is None:
            self._sink = self._open.enter_context(self._store.create(self._path))
            self._writer = self._open.enter_context(
                pq.ParquetWriter(
                    *(self._sink, table.schema),
                    **_encoding(table, self._kind),
                    write_page_checksum=True,
                )
            )
        most_rows = STATE_GROUP_ROWS if self._kind == "state" else max(table.num_rows, 1)
        self._writer.write_table(table, row_group_size=most_rows)
        self._rows += table.num_rows
        self._columns = table.column_names
        self._with_values |= {name for name in table.column_names if table[name].null_count < len(table)}
        if HASH in table.column_names:
            least, most = pc.min_max(table[HASH]).as_py().values()
            self._least = least if self._least is None else min(self._least, least)
            self._most = most if self._most is None else max(self._most, most)


def _encoding(table: pa.Table, kind: Kind) -> dict[str, Any]:
    """Return how a file that begins with these rows is encoded and compressed."""
    codec = _codec(table)
    if kind != "state":
        level = {"compression_level": 1} if codec == "zstd" else {}
        # Hashes, keys and positions hardly repeat: a dictionary makes files larger and slower.
        return {"compression": codec, "use_dictionary": False, **level}
    # Zstandard takes longer to begin than a small row group of numbers takes to read. Packed differences are
    # small without it: sorted hashes take five bytes in place of eight.
    types = _leaf_types(table.schema)
    encodings = {path: "DELTA_BINARY_PACKED" for path, type_ in types.items() if type_ in _WHOLE}
    if TOPIC in types:
        encodings[TOPIC] = "DELTA_BYTE_ARRAY"  # each is like the one before it
    is_small = {path: path in encodings or type_ == "BOOLEAN" for path, type_ in types.items()}
    return {
        "column_encoding": encodings,
        "use_dictionary": False,
        "compression": {path: "snappy" if small else codec for path, small in is_small.items()},
        "compression_level": {path: 1 for path, small in is_small.items() if codec == "zstd" and not small},
        # Readers look for row groups by these two, and the others would make footers a third larger.
        "write_statistics": [path for path in types if path in (HASH, DUE_AT)],
    }


def _leaf_types(schema: pa.Schema) -> dict[str, str]:
    """Return the path of each leaf column that Parquet makes of a schema -> its physical type.

    Example: a struct `value` with a boolean `open` gives `{"value.open": "BOOLEAN"}`.
    """
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    leaves = pq.ParquetFile(pa.BufferReader(empty.getvalue())).schema
    return {leaf.path: leaf.physical_type for leaf in map(leaves.column, range(len(leaves)))}


def _codec(table: pa.Table) -> str:
    """Return how the columns of a file that begins with these rows are compressed.

    Long texts that hardly repeat take Zstandard several times longer than Snappy, and become little smaller.
    """
    buffers = [part for column in table.columns for chunk in column.chunks for part in chunk.buffers()]
    largest = max((part for part in buffers if part is not None), key=lambda part: part.size)
    if largest.size >= _LONG_TEXT * table.num_rows:
        sample = largest.slice(0, min(largest.size, _SAMPLE_BYTES))
        if len(pa.compress(sample, codec="zstd", asbytes=True)) > _WORTHWHILE * sample.size:
            return "snappy"
    return "zstd"


def verify(store: Store, files: Sequence[DataFile]) -> list[LakeDamaged]:
    """Read all bytes of the files, and return an error for each file that is missing, short or changed.

    Raises LakeUnavailable.
    """
    damages = []
    for file in files:
        try:
            require_unchanged(store, file)
        except LakeDamaged as error:
            damages.append(error)
    return damages


def require_unchanged(store: Store, file: DataFile) -> None:
    """Raises LakeDamaged when the file is missing, short or changed; LakeUnavailable if it cannot be read."""
    actual = store.digest(file.path)
    if actual.bytes != file.bytes:
        raise damaged(file.path, f"it has {actual.bytes} bytes of {file.bytes}")
    if actual != Written(file.bytes, file.digest):
        raise damaged(file.path, "its content has another digest")


@contextmanager
def open_data(store: Store, file: DataFile) -> Iterator[pq.ParquetFile]:
    """Open a file of a manifest for reading.

    Raises LakeDamaged when the file is missing or has another size or footer, and while you read when a page
    differs from its checksum; raises LakeUnavailable when the store fails.

    The footer is read once, in one request, and Arrow gets the very bytes that were compared.
    """
    with store.open(file.path) as stream:
        with store_errors(file.path):
            size = stream.size()
        if size != file.bytes:
            raise damaged(file.path, f"it has {size} bytes of {file.bytes}")
        with data_errors(store, file):
            # Arrow would read the footer again by itself; it could then be another one than the one compared.
            footer = stream.read_at(file.footer_bytes, size - file.footer_bytes)
            if written_of(footer) != Written(file.footer_bytes, file.footer_digest):
                raise damaged(file.path, "its footer was changed, or is another file's")
            metadata = pq.read_metadata(pa.BufferReader(footer))
            parquet = pq.ParquetFile(
                stream, metadata=metadata, page_checksum_verification=True, pre_buffer=store.is_remote
            )
        yield parquet


def leaf_numbers(parquet: pq.ParquetFile) -> dict[str, int]:
    """Return the path of each leaf column of a file of `RowWriter` -> its number in a row group's metadata.

    Metadata numbers the leaves of nested columns, and not the columns.
    """
    # `parquet.schema` has the paths, too, but it and the metadata would then refer to each other: a closed
    # file would take megabytes of memory until Python's next collection of garbage.
    group = parquet.metadata.row_group(0)
    return {group.column(number).path_in_schema: number for number in range(group.num_columns)}


def columns_with_values(parquet: pq.ParquetFile) -> list[str]:
    """Return the columns of a file of `RowWriter` that are not null in all rows."""
    null_columns = json.loads(parquet.metadata.metadata[_NULL_COLUMNS.encode()])
    return [name for name in parquet.schema_arrow.names if name not in null_columns]


@contextmanager
def data_errors(store: Store, file: DataFile) -> Iterator[None]:
    """Distinguish why Parquet cannot be read: raises LakeDamaged if the file was changed, else
    LakeUnavailable.

    Arrow raises the same error for bytes that make no sense and for a disk that fails. Therefore the file is
    read once more, and compared with its digest.
    """
    with store_errors(file.path):
        try:
            yield
        except (OSError, pa.ArrowException):
            require_unchanged(store, file)
            raise


def read_files(store: Store, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of some files, one file after the other, with only `columns` if they are given.

    The table has the columns that any of the files has. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    tables = []
    for file in files:
        with open_data(store, file) as parquet, data_errors(store, file):
            tables.append(parquet.read(columns=None if columns is None else list(columns)))
    return joined(tables)


def rewritten(
    store: Store, file: DataFile, path: str, remaining: Callable[[pa.Table], pa.Table]
) -> DataFile | None:
    """Write rows of a file into another one at `path`; return None if none remain.

    `remaining` gets the row groups in order, and returns the rows that the new file has of each. Raises
    LakeDamaged, LakeUnavailable.
    """
    writer = RowWriter(store, path, file.kind, file.stage)
    with open_data(store, file) as parquet, writer:
        for group in range(parquet.num_row_groups):
            with data_errors(store, file):
                rows = parquet.read_row_group(group)
            for batch in remaining(rows).replace_schema_metadata(None).combine_chunks().to_batches():
                writer.write(batch)
    if writer.file is None:
        return None
    return replace(writer.file, key_types=file.key_types, aliases=file.aliases)


def first_rows(
    store: Store, files: Sequence[DataFile], columns: Sequence[str], most: int
) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of some files, `most` of all files together, for a page that shows few of many.

    They have those of `columns` that their file has. Raises LakeDamaged, LakeUnavailable.
    """
    for file in files:
        if most <= 0:
            return
        with open_data(store, file) as parquet, data_errors(store, file):
            # Older files lack columns that were added since.
            existing = [name for name in columns if name in parquet.schema_arrow.names]
            # The batch size bounds what is decoded: a row group has many more rows than a page shows.
            for rows in parquet.iter_batches(batch_size=most, columns=existing):
                yield rows.slice(0, most)
                most -= rows.num_rows
                if most <= 0:
                    break


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of stored tables, one after the other, with the columns that any of them has.

    Raises SchemaChanged if a column has two types of which neither is wider.
    """
    schema = merged_schema(table.schema for table in tables)
    return pa.concat_tables([schema.empty_table(), *(conformed(table, schema) for table in tables)])


def stored_schema(store: Store, files: Sequence[DataFile], aliases: Aliases = NO_ALIASES) -> pa.Schema:
    """Return all columns that any of the files has, under their newest names: those that manifests and
    `aliases` declare. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    aliases_for = aliases_in(files, aliases)
    samples = one_file_of_each(files)
    schemas = zip(_schemas(store, samples), map(aliases_for, samples), strict=True)
    return merged_schema(renamed_schema(schema, aliases) for schema, aliases in schemas)


def written_schema(store: Store, files: Sequence[DataFile]) -> pa.Schema:
    """Return all columns that any of the files has, each under the name in its file, as Delta readers see
    them.

    Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    return merged_schema(_schemas(store, one_file_of_each(files)))


def one_file_of_each(files: Sequence[DataFile]) -> list[DataFile]:
    """Return a file of each attempt and snapshot: all of its files of a stage have the same columns."""
    return list({(file.stage, file.path.rpartition("/")[0]): file for file in files}.values())


def _schemas(store: Store, files: Sequence[DataFile]) -> Iterator[pa.Schema]:
    for file in files:
        with open_data(store, file) as parquet:
            yield parquet.schema_arrow.remove_metadata()
