"""Whether files are still as they were written: each has its size and digest in a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import LakeDamaged
from tidegate.lake.manifest import DataFile, damaged
from tidegate.lake.store import Store, Written, store_errors


def verify(
    store: Store, files: Sequence[DataFile], progress: Callable[[DataFile], None] | None = None
) -> list[LakeDamaged]:
    """Read all bytes of the files; gives what is wrong with those that are missing, short or changed.

    `progress` is called after each file. Raises LakeUnavailable.
    """
    found = []
    for file in files:
        try:
            require_unchanged(store, file)
        except LakeDamaged as error:
            found.append(error)
        if progress is not None:
            progress(file)
    return found


def require_unchanged(store: Store, file: DataFile) -> None:
    """Raises LakeDamaged when the file is missing, short or changed; LakeUnavailable if it cannot be read."""
    found = store.digest(file.path)
    if found.bytes != file.bytes:
        raise damaged(file.path, f"it has {found.bytes} bytes of {file.bytes}")
    if found != Written(file.bytes, file.digest):
        raise damaged(file.path, "its content has another digest")


@contextmanager
def open_data(store: Store, file: DataFile) -> Iterator[pq.ParquetFile]:
    """A file of a manifest, to read. Raises LakeDamaged when it is missing or has another size, and on
    reading when pages differ from their checksums; LakeUnavailable.
    """
    with store.open(file.path) as stream:
        with store_errors(file.path):
            size = stream.size()
        if size != file.bytes:
            raise damaged(file.path, f"it has {size} bytes of {file.bytes}")
        with data_errors(store, file):
            parquet = pq.ParquetFile(stream, page_checksum_verification=True)
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
