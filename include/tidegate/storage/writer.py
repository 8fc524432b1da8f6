"""Write a data file of an attempt: rows in row groups, and then the line for its manifest."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.storage.manifest import DataFile, Kind
from tidegate.storage.schema import HASH
from tidegate.storage.store import Sink, Store, store_errors

ROW_GROUP_ROWS = 32_768
PATH = "tidegate.path"
"""The footer's key for the path of its file: so two files never have the same footer, even with the same
rows.
"""
_ROW_GROUP_BYTES = 16 * 1024 * 1024


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
                self._writer.add_key_value_metadata({PATH: self._path})
            self._open.close()
        if self._sink is not None:
            written, footer = self._sink.written, self._sink.footer
            self.file = DataFile(
                *(self._kind, self._stage, self._path, self._rows, written.bytes, written.digest),
                *(footer.bytes, footer.digest, self._least, self._most),
            )

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, all of one schema. They are gathered into row groups of 32,768 rows or 16 MiB.

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
                    compression="zstd",
                    compression_level=1,
                    # hashes, keys and positions hardly repeat: a dictionary makes files larger and slower
                    use_dictionary=False,
                    write_page_checksum=True,
                )
            )
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows
        if HASH in table.column_names:
            least, most = pc.min_max(table[HASH]).as_py().values()
            self._least = least if self._least is None else min(self._least, least)
            self._most = most if self._most is None else max(self._most, most)
