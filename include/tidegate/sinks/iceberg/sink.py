"""Publish to a table of an Iceberg catalog exactly once: each batch is one snapshot, which names the batch.

The catalog accepts a snapshot only if the table is as it was when it was read. So of two publishers at once
one is refused, and the commit itself is the fence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from tidegate.errors import ProgressLost, SinkRefused
from tidegate.failpoints import failpoint
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.ledger import LeasedLedger, Plan
from tidegate.model.connection import Connection
from tidegate.sinks.iceberg.model import IcebergSink
from tidegate.sinks.iceberg.table import (
    STREAM,
    SinkTable,
    TableProgress,
    newest_rows,
    rows_after,
    rows_of_keys,
)
from tidegate.sinks.outbox import Outbox, check_names, table_rows
from tidegate.sinks.places import require_apart
from tidegate.sinks.port import Dataset, OpenSink, generation_in, require_not_ahead
from tidegate.storage.schema import KEY, VALUE, window_columns


class OpenIcebergTable(OpenSink[IcebergSink]):
    """Publishes a batch in one snapshot. Rows and progress cannot be lost separately."""

    title = "Iceberg"

    @property
    def dataset(self) -> Dataset:
        """The catalog and the table."""
        return Dataset(self._config.place, self.declared.table)

    def check_settings(self) -> None:
        """Check that the catalog is set, and that a new table is not in the folder of a pipeline. Raises
        SettingsInvalid, SinkRefused.
        """
        location = self._config.location(self.declared.table)
        if location is not None:
            require_apart(self, location)

    def check_target(self) -> None:
        """Check that the catalog and the store of its tables answer. Writes nothing."""
        with self._opened() as table:
            table.mark()
            table.check_bucket()

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the table takes the emitted columns, also those that are new since an edit, or can be
        created.
        """
        with self._opened() as table:
            table.check_bucket()
            table.check_columns(self._rows(outbox).schema)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish the batch completely, or not at all."""
        rows = self._rows(outbox)
        with self._opened() as table:
            if not last_published:
                table.create_for(rows.schema)
            if self._lacks(table, outbox, last_published):
                mark = self._mark(outbox.plan, outbox.attempt)
                if self.declared.mode == "append":
                    table.change(mark, rows)
                else:
                    entry = (KEY, *window_columns(self.stage.window is not None))
                    removal, newest = newest_rows(rows.read_all(), _deleted(outbox), entry)
                    table.change(mark, newest, removal)
            table.flush()

    def erase(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Delete the rows of the keys, and every file and snapshot that still shows them.

        Raises SinkRefused if the table has branches or tags, which keep snapshots.
        """
        with self._opened() as table:
            if not self._lacks(table, outbox, last_published) or table.table is None:
                return
            if table.branches:
                raise SinkRefused(
                    f"The table {self.declared.table} has branches or tags, which may show the keys: "
                    f"{', '.join(table.branches)}",
                    "Drop them, then run again: the erasure goes on.",
                )
            with failpoint("iceberg.erase"):
                table.change(None, removal=rows_of_keys(_keys(outbox), self.context.stream.pipeline))
            # The snapshot before still lists the removed files in a manifest; the one after it does not.
            table.change(None)
            table.remove_history(self._dead_writers())
            # The batch comes last: a process that is killed before begins again.
            table.change(self._mark(outbox.plan, outbox.attempt))
            table.flush()

    def _dead_writers(self) -> Callable[[str], bool]:
        """Return a function that says, by a file's name, whether nobody will commit the file any more.

        Nobody commits files of this publisher, which is at work here, or of generations that send nothing.
        """
        own, ledger = self.context.stream, self.context.ledger
        streams = [stream for stream in ledger.streams() if stream.pipeline == own.pipeline and stream != own]
        charge = ledger.charge(own.pipeline)
        sending = {stream.generation for stream in streams if not charge.withholds(stream.generation)}
        return lambda file: generation_in(file, own.pipeline) not in (None, *sending)

    def erasure_effect(self) -> str:
        """Return a sentence on the rows, and on the table's earlier snapshots."""
        return f"{self.name}: all rows of the keys are deleted, and with them the table's earlier snapshots."

    def check_progress(self) -> None:
        """Check that the table has what was published to it, and nothing that this ledger has not
        committed.
        """
        with self._opened() as table:
            self._check(table, self.context.ledger.last_published(self.context.stream, self.name))

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on rows of later batches: deleted, or overwritten in mode `upsert`."""
        return self.restart_effect_on_rows(seq, overwrites=self.declared.mode != "append")

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the batch and remove later rows, in one snapshot."""
        with self._opened() as table, failpoint("iceberg.restart"):
            if table.mark().seq >= seq and table.table is not None:
                removal = rows_after(self.context.stream, seq) if self.declared.mode == "append" else None
                table.change(self._mark_of(seq), removal=removal)
                table.flush()
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the batch. A batch is in the table completely or not at all."""
        with self._opened() as table, failpoint("iceberg.seal"):
            is_in = table.mark().seq >= seq
            if not is_in and table.table is not None:
                table.change(self._mark_of(seq))
                table.flush()
        published = self.published(seq) if is_in else None
        return published[1].emitted if published is not None else 0

    def _lacks(self, table: SinkTable, outbox: Outbox, last_published: int) -> bool:
        """Return whether the table lacks a batch. Raises as `publish`."""
        self._check(table, last_published)
        seq, newest = outbox.plan.seq, table.mark().seq
        require_not_ahead(self.shard, self.declared.table, seq, newest)
        return newest < seq

    def _check(self, table: SinkTable, last_published: int) -> None:
        mark = table.mark()
        if mark.seq < last_published:
            raise ProgressLost(
                f"The table {self.declared.table} is not what batch {last_published} of {self.shard} was "
                f"published to: it says batch {mark.seq}",
                "Restore it; or let it get batches again: `tidegate recover`, with --choose send-again.",
            )
        if mark.seq:
            self.require_committed(mark.seq, lambda name: name == mark.attempt)

    def _rows(self, outbox: Outbox) -> pa.RecordBatchReader:
        """Return the rows of a Delta table, and the stream."""
        rows, stream = table_rows(self.declared, outbox), str(self.context.stream)
        check_names(f"table of {self.name}", [STREAM], rows.schema.names)

        def with_stream(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.append_column(STREAM, pa.repeat(stream, batch.num_rows))

        schema = rows.schema.append(pa.field(STREAM, pa.string()))
        return pa.RecordBatchReader.from_batches(schema, map(with_stream, rows))

    def _mark(self, plan: Plan, attempt: str) -> TableProgress:
        offsets = {f"{read.topic}-{read.partition}": read.end for read in plan.ranges}
        return TableProgress(plan.seq, attempt, str(plan.stream), json.dumps(offsets))

    def _mark_of(self, seq: int) -> TableProgress:
        """Return the mark of a committed batch, whose plan the ledger may no longer have."""
        plan, attempt = self.context.ledger.plan(self.context.stream, seq), self._attempt_name(seq)
        return (
            TableProgress(seq, attempt, str(self.context.stream))
            if plan is None
            else self._mark(plan, attempt)
        )

    @contextmanager
    def _opened(self) -> Iterator[SinkTable]:
        config = self._config
        with config.opened() as catalog:
            yield SinkTable(config, catalog, self.declared.table, self.shard)

    @property
    def _config(self) -> CatalogConfig:
        name = self.declared.connection
        return CatalogConfig.parse(self.context.settings.iceberg(name), Connection("iceberg", name).variable)


def _deleted(outbox: Outbox) -> pa.ChunkedArray:
    """Return for each emission whether it is a deletion."""
    return pa.chunked_array([batch.column(VALUE).is_null() for batch in outbox.batches([VALUE])], pa.bool_())


def _keys(outbox: Outbox) -> pa.ChunkedArray:
    return pa.chunked_array([batch.column(KEY) for batch in outbox.batches([KEY])], pa.string())


SINK = OpenIcebergTable
