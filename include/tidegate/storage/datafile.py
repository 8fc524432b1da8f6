"""Open the Parquet files of manifests; a file that is missing, short or changed raises LakeDamaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.storage.aliases import NO_ALIASES, Aliases, aliases_in
from tidegate.storage.evolution import conformed, merged_schema, renamed_schema
from tidegate.storage.manifest import DataFile, damaged
from tidegate.storage.store import Store, Written, store_errors, written_of
from tidegate.storage.verify import require_unchanged


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
    schemas = zip(_schemas(store, files), map(aliases_for, files), strict=True)
    return merged_schema(renamed_schema(schema, aliases) for schema, aliases in schemas)


def written_schema(store: Store, files: Sequence[DataFile]) -> pa.Schema:
    """Return all columns that any of the files has, each under the name in its file, as Delta readers see
    them.

    Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    return merged_schema(_schemas(store, files))


def _schemas(store: Store, files: Sequence[DataFile]) -> Iterator[pa.Schema]:
    for file in files:
        with open_data(store, file) as parquet:
            yield parquet.schema_arrow.remove_metadata()
