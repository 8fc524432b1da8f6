"""Opening the Parquet files of manifests: one that is missing, short or changed is LakeDamaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.lake.aliases import NO_ALIASES, Aliases, aliases_in
from tidegate.lake.evolution import conformed, merged_schema, renamed_schema
from tidegate.lake.manifest import DataFile, damaged
from tidegate.lake.store import Store, Written, store_errors, written_of
from tidegate.lake.verify import require_unchanged


@contextmanager
def open_data(store: Store, file: DataFile) -> Iterator[pq.ParquetFile]:
    """A file of a manifest, to read. Raises LakeDamaged when it is missing or has another size or footer, and
    on reading when pages differ from their checksums; LakeUnavailable.

    The footer is read once, in one request, and Arrow gets what was compared.
    """
    with store.open(file.path) as stream:
        with store_errors(file.path):
            size = stream.size()
        if size != file.bytes:
            raise damaged(file.path, f"it has {size} bytes of {file.bytes}")
        with data_errors(store, file):
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
    """Tell apart why Parquet cannot be read: LakeDamaged when the file was changed, else LakeUnavailable.

    Arrow has the same error for bytes that make no sense and for a disk that fails: so the file is read
    once more, and compared with its digest.
    """
    with store_errors(file.path):
        try:
            yield
        except (OSError, pa.ArrowException):
            require_unchanged(store, file)
            raise


def read_files(store: Store, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of some files, one after the other; `columns`: only these.

    The columns are those that any of the files has. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    tables = []
    for file in files:
        with open_data(store, file) as parquet, data_errors(store, file):
            tables.append(parquet.read(columns=None if columns is None else list(columns)))
    return joined(tables)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of stored tables, one after the other, with the columns that any of them has."""
    schema = merged_schema(table.schema for table in tables)
    return pa.concat_tables([schema.empty_table(), *(conformed(table, schema) for table in tables)])


def stored_schema(store: Store, files: Sequence[DataFile], aliases: Aliases = NO_ALIASES) -> pa.Schema:
    """All columns that any of the files has, under their newest names: by what manifests say of the files,
    and by `aliases`. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    aliases_for = aliases_in(files, aliases)
    own = zip(_schemas(store, files), map(aliases_for, files), strict=True)
    return merged_schema(renamed_schema(*each) for each in own)


def written_schema(store: Store, files: Sequence[DataFile]) -> pa.Schema:
    """The same, as readers see the files that know nothing of tidegate: each column under its own name."""
    return merged_schema(_schemas(store, files))


def _schemas(store: Store, files: Sequence[DataFile]) -> Iterator[pa.Schema]:
    for file in files:
        with open_data(store, file) as parquet:
            yield parquet.schema_arrow.remove_metadata()
