"""A Delta table as a sink. Its log contains the progress, in the same commit as the rows."""

from __future__ import annotations

from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from tidegate.errors import SinkRefused
from tidegate.ledger import LeasedLedger
from tidegate.sinks.dataset import Dataset, folder_dataset
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.sinks.table.append import Appender, append_batch, check_table
from tidegate.sinks.table.model import TableSink
from tidegate.sinks.table.repair import restart_after, seal
from tidegate.sinks.table.room import require_room
from tidegate.storage.schema import KEY, KEY_COLUMNS, REASON, SEQ, TIMESTAMP, VALUE, parts_of, window_columns


class OpenDeltaTable(OpenSink[TableSink]):
    """Appends a batch in one commit. Rows and progress cannot be lost separately."""

    title = "table"

    @property
    def dataset(self) -> Dataset:
        """The table's folder."""
        return folder_dataset(self.context.lake.table_sink(self.declared.path))

    def check_settings(self) -> None:
        """Check that the table's folder and the folder of any pipeline do not overlap. Raises SinkRefused."""
        lake, ledger = self.context.lake, self.context.ledger
        # Its place is `published` in the stream's own folder, which nothing else uses.
        if self.declared.path is None:
            return
        table = _place(lake.table_sink(self.declared.path))
        for pipeline in sorted({lake.pipeline, *(stream.pipeline for stream in ledger.streams())}):
            folder = _place(f"{lake.root.rstrip('/')}/{pipeline}")
            if folder.is_relative_to(table) or table.is_relative_to(folder):
                raise SinkRefused(
                    f"The table {table} of the sink {self.name} and the folder {folder} of the pipeline "
                    f"{pipeline} overlap: a vacuum of the table would remove the pipeline's state",
                    "Give the sink a `path` outside of that folder and not above it.",
                )

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that no column of the table is narrower than what is emitted since an edit. Raises
        SinkRefused.
        """
        path = self.context.lake.table_sink(self.declared.path)
        require_room(path, table_rows(self.declared, outbox).schema)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish the batch completely, or not at all."""
        rows = table_rows(self.declared, outbox)
        append_batch(self._appender, outbox.plan.seq, outbox.attempt, rows, last_published)

    def check_progress(self) -> None:
        """Check that the table has what was published to it, and nothing that this ledger has not
        committed.
        """
        ledger, stream = self.context.ledger, self.context.stream
        check_table(self._appender, ledger.last_published(stream, self.name))

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on rows of later batches, which are removed before they are sent again."""
        return f"{self.name}: rows of batches after {seq} are removed, before they come again."

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the batch number and remove later files, in one commit."""
        restart_after(self._appender, seq, self._attempt_name(seq))
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the batch number. A batch is in the table completely or not at all."""
        is_in = seal(self._appender, seq, self._attempt_name(seq))
        published = self.published(seq) if is_in else None
        return published[1].emitted if published is not None else 0

    @property
    def _appender(self) -> Appender:
        path = self.context.lake.table_sink(self.declared.path)
        return Appender(path, self.shard, self.require_committed)


def _place(path: str) -> PurePath:
    """Return the path of a folder without links; for an object store, its URI.

    >>> _place("s3://lake/shop/").is_relative_to(_place("s3://lake"))
    True
    """
    if "://" not in path:
        return Path(path).resolve()
    return Path(url2pathname(urlsplit(path).path)).resolve() if path.startswith("file:") else PurePath(path)


def table_rows(sink: TableSink, outbox: Outbox) -> pa.RecordBatchReader:
    """Return the rows of a table: key, window if there is one, emitted columns, timestamp, reason, batch.

    The emitted columns of a deletion are null.
    """
    windows = window_columns(outbox.stage is not None and outbox.stage.window is not None)
    columns = [KEY, *windows, KEY_COLUMNS, VALUE, TIMESTAMP, REASON, SEQ]

    def as_rows(emissions: pa.RecordBatch) -> pa.RecordBatch:
        parts = {name: emissions.column(name) for name in (KEY, *windows)}
        if sink.with_key:
            parts |= parts_of(emissions.column(KEY_COLUMNS))
        parts |= parts_of(emissions.column(VALUE))
        parts |= {name: emissions.column(name) for name in (TIMESTAMP, REASON, SEQ)}
        return pa.RecordBatch.from_pydict(parts)

    # A reader needs its schema before its first batch: no row has the same columns as all rows.
    none = pa.RecordBatch.from_pylist([], outbox.schema(columns))
    return pa.RecordBatchReader.from_batches(as_rows(none).schema, map(as_rows, outbox.batches(columns)))


SINK = OpenDeltaTable
