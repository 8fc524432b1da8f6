"""A table of a SQL database as a sink. A progress row advances in the same transaction as the rows."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from tidegate.errors import SinkUnavailable
from tidegate.kafka.progress import Progress
from tidegate.ledger import LeasedLedger
from tidegate.sinks.dataset import Dataset, table_dataset
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.sinks.sql.database import Database, dialect_of
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.model import SqlSink
from tidegate.sinks.sql.progress import Shard, SqlProgress
from tidegate.sinks.sql.publisher import SqlPublisher
from tidegate.sinks.sql.repair import restart_after, seal
from tidegate.sinks.sql.schema import check_emissions, check_table
from tidegate.spec import Connection
from tidegate.storage.schema import KEY, KEY_COLUMNS, SOURCE, VALUE


class OpenSqlTable(OpenSink[SqlSink]):
    """Publishes a batch in one transaction. A lost progress row is derived from the table itself."""

    title = "SQL"
    can_lose_progress = True

    @property
    def dataset(self) -> Dataset:
        """The table."""
        return table_dataset(self._url(), self.declared.table)

    def check_settings(self) -> None:
        """Check that the database is set, and that an existing table has the key. Raises SettingsInvalid,
        SinkRefused.
        """
        # No outbox exists yet, so only the sink's own columns and the key can be checked.
        nothing_emitted = pa.schema([(KEY_COLUMNS, pa.struct([])), (VALUE, pa.struct([]))])
        self._check_table(Layout(self.target, nothing_emitted))

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the database accepts each value, and that the table still has the key and the
        columns.
        """
        dialect, layout = dialect_of(self._url(), self._variable), self.layout(outbox)
        check_emissions(dialect, layout, outbox.batches(COLUMNS))
        self._check_table(layout)

    def _check_table(self, layout: Layout) -> None:
        """Check that the table can take the emissions. Raises SinkRefused.

        If the database does not answer, the batch is decided without this check, and published when the
        database is back.
        """
        with self.database() as database, suppress(SinkUnavailable):
            # Connecting would create the SQLite file, and a check writes nothing.
            if not database.is_missing:
                with database.reading() as connection:
                    check_table(connection, layout)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish the batch completely, or not at all."""
        with self.database() as database:
            publisher = publisher_to(database, self, outbox)
            publisher.publish(outbox.plan.seq, outbox.attempt, outbox.batches(COLUMNS), last_published)

    def check_progress(self) -> None:
        """Check a sink that something was published to: its batch number and attempt must be this
        ledger's.
        """
        ledger, stream = self.context.ledger, self.context.stream
        last = ledger.last_published(stream, self.name)
        if last:
            with self.database() as database:
                self._progress(database).check(last)

    def lost_progress(self, stated: int | None) -> Progress | None:
        """Return the progress by the table's content, unless its readers delete rows."""
        ledger, stream = self.context.ledger, self.context.stream
        last, head = ledger.last_published(stream, self.name), ledger.head(stream).seq
        with self.database() as database:
            newest = self._progress(database).lost(last, head, stated)
            # The table is ahead of the ledger: it may have rows of another ledger's batch with that number.
            if newest is not None and newest > last and stated is None:
                self._check_same_batch(self._progress(database), newest)
        return None if newest is None else Progress(newest, 0, done=True)

    def restore_progress(self, stated: int | None) -> Progress | None:
        """Write the progress row in the transaction that checks the table a last time."""
        ledger, stream = self.context.ledger, self.context.stream
        if self.lost_progress(stated) is None:
            return None
        last, head = ledger.last_published(stream, self.name), ledger.head(stream).seq
        with self.database() as database:
            newest = self._progress(database).restore(last, head, stated, self._attempt_of)
        return None if newest is None else Progress(newest, 0, done=True)

    def _check_same_batch(self, progress: SqlProgress, seq: int) -> None:
        """Check that the table has no rows that this ledger's batch does not have. Raises LedgerMismatch.

        The ledger does not know yet that the batch was published: it may be restored from an older copy, and
        have another batch with that number.
        """
        published = self.published(seq)
        emitted = set()
        if published is not None:
            emissions = published[1].table([KEY, SOURCE])
            emitted = set(zip(emissions[KEY].to_pylist(), emissions[SOURCE].to_pylist(), strict=True))
        has_others = not progress.rows_of(seq) <= emitted
        self.require_committed(seq, lambda _: not has_others)

    def _attempt_of(self, seq: int) -> str | None:
        attempt = self.context.ledger.attempt(self.context.stream, seq)
        return attempt.name if attempt is not None else None

    def _progress(self, database: Database) -> SqlProgress:
        return SqlProgress(database, self.named_shard, self.target, self.require_committed)

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on rows of later batches: deleted in mode `append`, overwritten in mode
        `upsert`.
        """
        if self.declared.mode == "append":
            stream = self.context.stream
            return (
                f"{self.name}: rows of {stream} of batches after {seq} are deleted, before they come again."
            )
        return f"{self.name}: rows of batches after {seq} are written over when they come again."

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the progress row and delete later rows, in one transaction."""
        with self.database() as database:
            restart_after(database, self.named_shard, self.target, seq, self._attempt_name(seq))
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the progress row. A batch is in the table completely or not at all."""
        with self.database() as database:
            return seal(database, self.named_shard, seq, self._attempt_name(seq))

    @property
    def named_shard(self) -> Shard:
        """The publisher, with the stream that rows contain."""
        return Shard(self.shard, self.context.stream)

    @property
    def target(self) -> Target:
        """The table that the sink declares."""
        declared = self.declared
        return Target(declared.table, declared.mode, declared.with_key, self.stage.window is not None)

    def layout(self, outbox: Outbox) -> Layout:
        """Return the table for the columns of an outbox. Raises SinkRefused."""
        return Layout(self.target, outbox.schema(COLUMNS))

    def database(self) -> Database:
        """Return the database, to use as a context manager. Raises SettingsInvalid."""
        return Database(self._url(), self._variable)

    @property
    def _variable(self) -> str:
        return Connection("sql", self.declared.connection).variable

    def _url(self) -> str:
        return self.context.settings.sql_url(self.declared.connection)


def publisher_to(database: Database, sink: OpenSqlTable, outbox: Outbox) -> SqlPublisher:
    """Return what writes the outbox's emissions to the sink's table."""
    return SqlPublisher(database, sink.named_shard, sink.layout(outbox), sink.require_committed)


SINK = OpenSqlTable
