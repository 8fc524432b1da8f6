"""Sort any number of rows of a quarantine by their positions: runs on disk, merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.lake.quarantine_files import IDENTITY

_RUN_BYTES = 64 * 1024 * 1024
_RUN_ROWS = 131_072
_BLOCK_ROWS = 4_096
_LAST = 2**31 - 1
"""The sort key of a record without a part: after all parts of its position."""


def sorted_by_position(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield all rows, sorted by `IDENTITY`. The tables have the columns of `QUARANTINE`.

    Memory has a run of 131,072 rows or 64 MiB, or a block of 4,096 rows of each run.
    """
    with TemporaryDirectory(prefix="tidegate-sort-") as folder:
        runs = [
            _write_run(Path(folder) / f"{number}.parquet", run) for number, run in enumerate(_runs(tables))
        ]
        yield from _merged(runs)


def _runs(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    buffered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        buffered.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _RUN_ROWS or size >= _RUN_BYTES:
            yield _sorted(pa.concat_tables(buffered))
            buffered, rows, size = [], 0, 0
    if buffered:
        yield _sorted(pa.concat_tables(buffered))


def _write_run(path: Path, run: pa.Table) -> Path:
    pq.write_table(run, path, compression="zstd", row_group_size=_BLOCK_ROWS)
    return path


def _sorted(rows: pa.Table) -> pa.Table:
    keys = pa.table([_sort_key(rows, name) for name in IDENTITY], list(IDENTITY))
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in IDENTITY]))


def _sort_key(rows: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.fill_null(rows[name], _LAST) if name == "part" else rows[name]


class _Run:
    """A run that is read a block at a time."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._next = 0
        self.block = self._file.schema_arrow.empty_table()
        self.load()

    def load(self) -> None:
        """Read the next block if the block before is used up; after the last one the block stays empty."""
        while not self.block.num_rows and self._next < self._file.num_row_groups:
            self.block = self._file.read_row_group(self._next, use_threads=False)
            self._next += 1

    @property
    def last(self) -> tuple[Any, ...]:
        """The sort key of the block's last row."""
        row = self.block.slice(self.block.num_rows - 1)
        return tuple(_sort_key(row, name)[0].as_py() for name in IDENTITY)

    def take_up_to(self, bound: tuple[Any, ...]) -> pa.Table:
        """Take the rows of the block that do not sort after `bound`; they are its first ones."""
        number = pc.sum(_not_behind(self.block, bound)).as_py()
        taken, self.block = self.block.slice(0, number), self.block.slice(number)
        self.load()
        return taken


def _merged(paths: Iterable[Path]) -> Iterator[pa.Table]:
    runs = [run for run in map(_Run, paths) if run.block.num_rows]
    while runs:
        # All rows up to the least of the last keys are loaded: no later block can have one that sorts before
        # them.
        bound = min(run.last for run in runs)
        yield _sorted(pa.concat_tables([run.take_up_to(bound) for run in runs]))
        runs = [run for run in runs if run.block.num_rows]


def _not_behind(rows: pa.Table, bound: tuple[Any, ...]) -> pa.ChunkedArray:
    mask: Any = True
    for name, limit in zip(reversed(IDENTITY), reversed(bound), strict=True):
        key = _sort_key(rows, name)
        mask = pc.or_(pc.less(key, limit), pc.and_(pc.equal(key, limit), mask))
    return mask
