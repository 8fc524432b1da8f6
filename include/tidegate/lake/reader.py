"""Reading the tables without a JVM. Callers name the committed attempts; no other row is ever seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSystem, SubTreeFileSystem

from tidegate.errors import LakeUnavailable

_WINDOW = ("window_start", "window_end")
_PLACE = ("topic", "partition")


@contextmanager
def lake_errors(path: str) -> Iterator[None]:
    """Turn failures of the store into LakeUnavailable."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise LakeUnavailable(
            f"The table {path} cannot be used: {str(error).splitlines()[0][:300]}",
            "Check rights, space and TIDEGATE_LAKE; then run again, nothing is lost.",
        ) from error


def read_attempts(
    path: str, attempts: Sequence[str], columns: Sequence[str] | None = None
) -> pa.Table | None:
    """The rows of these attempts, in no order, or None when the table has none of them."""
    with lake_errors(path):
        table = open_table(path)
        if table is None or not attempts:
            return None
        dataset = table.to_pyarrow_dataset(filesystem=file_system(path))
        wanted = None if columns is None else list(columns)
        return dataset.to_table(columns=wanted, filter=pc.field("attempt").isin(list(attempts)))


def file_system(path: str) -> FileSystem:
    """Arrow's own file system, rooted at the table.

    The one that deltalake makes calls Python from Arrow's threads; if one of them is still about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception").
    """
    system, root = FileSystem.from_uri(path if "://" in path else str(Path(path).absolute()))
    return SubTreeFileSystem(root, system)


@dataclass(frozen=True)
class AttemptFiles:
    """The Parquet files of some attempts, ordered by name, and the table's schema as Spark's JSON."""

    paths: tuple[str, ...]
    schema_json: str


def attempt_files(path: str, attempts: Sequence[str]) -> AttemptFiles | None:
    """The files of these attempts, or None if there are none. Each key is in one file of an attempt."""
    with lake_errors(path):
        table = open_table(path)
        if table is None:
            return None
        paths = tuple(f"{path}/{name}" for name in sorted(_files(table, attempts)["path"].to_pylist()))
        return AttemptFiles(paths, table.schema().to_json()) if paths else None


class OnDisk(NamedTuple):
    """What some attempts take."""

    rows: int
    bytes: int
    files: int


def on_disk(path: str, attempts: Sequence[str]) -> OnDisk:
    """What these attempts' files take, as the table's log has them."""
    with lake_errors(path):
        table = open_table(path)
        if table is None:
            return OnDisk(0, 0, 0)
        files = _files(table, attempts)
        rows, size = (pc.sum(files[name]).as_py() or 0 for name in ("num_records", "size_bytes"))
        return OnDisk(rows, size, files.num_rows)


def _files(table: DeltaTable, attempts: Sequence[str]) -> pa.Table:
    """The log's entries of these attempts' files."""
    files = pa.table(table.get_add_actions(flatten=True))
    return files.filter(pc.is_in(files["partition.attempt"], pa.array(attempts, pa.string())))


def newest_per_key(state: pa.Table, by_partition: bool = False) -> pa.Table:
    """The newest row of each key and window, by key and window, of what is live.

    `by_partition`: for state that belongs to a topic-partition, where a key has a row for each.
    """
    rows = _with_nulls(state, _WINDOW)
    entry = ["key", *_WINDOW, *(_PLACE if by_partition else ())]
    aged = rows.select(entry).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    aged = aged.append_column("updated_seq", rows["updated_seq"]).sort_by("updated_seq")
    newest = aged.group_by(entry, use_threads=False).aggregate([("row", "last")])
    found = rows.take(newest["row_last"].combine_chunks())
    live = found.filter(found["live"]).drop_columns(["live"])
    return live.sort_by([(name, "ascending") for name in entry])


def _with_nulls(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with all of these columns; those that they lack are null."""
    for name in names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.int64()))
    return rows


def open_table(path: str) -> DeltaTable | None:
    """The table, or None when there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        # A local folder that cannot be read also "is not a table"; say so instead of finding nothing.
        if "://" not in path and Path(path).exists():
            list(Path(path).iterdir())
        return None
