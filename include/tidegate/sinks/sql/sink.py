"""A table of a SQL database as a sink. How far it is stands in a progress row, which moves in the same
transaction as the rows.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from tidegate.broker.progress import Progress
from tidegate.errors import SinkUnavailable
from tidegate.lake.outbox import KEY_COLUMNS, SOURCE, VALUE
from tidegate.lake.schema import KEY
from tidegate.ledger import LeasedLedger
from tidegate.sinks.dataset import Dataset, table_dataset
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.sinks.sql.database import Database, dialect_of
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.progress import Shard, SqlProgress
from tidegate.sinks.sql.publisher import SqlPublisher
from tidegate.sinks.sql.repair import restart_after, seal
from tidegate.sinks.sql.schema import check_emissions, check_table
from tidegate.spec import Connection, SqlSink


class OpenSqlTable(OpenSink[SqlSink]):
    """Publishes a batch in one transaction. A lost progress row is found in the table itself."""

    title = "SQL"
    can_lose_progress = True

    @property
    def dataset(self) -> Dataset:
        """The table."""
        return table_dataset(self._url(), self.declared.table)

    def check_settings(self) -> None:
        """Its database is set, and a table that exists has the key. The file's check has found the rest."""
        nothing_emitted = pa.schema([(KEY_COLUMNS, pa.struct([])), (VALUE, pa.struct([]))])
        self._check_table(Layout(self.target, nothing_emitted))

    def check_outbox(self, outbox: Outbox) -> None:
        """Find what such a database does not take, and whether the table is another one."""
        dialect, layout = dialect_of(self._url(), self._variable), self.layout(outbox)
        check_emissions(dialect, layout, outbox.batches(COLUMNS))
        self._check_table(layout)

    def _check_table(self, layout: Layout) -> None:
        """Raise SinkRefused where the table cannot take the emissions. Of a database that does not answer
        nothing is known: the batch is decided without it, and goes out when it is there again.
        """
        with self.database() as database, suppress(SinkUnavailable):
            if not database.is_missing:
                with database.reading() as connection:
                    check_table(connection, layout)

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """All of it, or nothing."""
        with self.database() as database:
            publisher = publisher_to(database, self, outbox)
            publisher.publish(outbox.plan.seq, outbox.attempt, outbox.batches(COLUMNS), last_published)

    def check_progress(self) -> None:
        """Of a sink that something was published to: by its number and its attempt it is this ledger's."""
        ledger, stream = self.context.ledger, self.context.stream
        last = ledger.last_published(stream, self.name)
        if last:
            with self.database() as database:
                self._progress(database).check(last)

    def lost_progress(self, stated: int | None) -> Progress | None:
        """The table shows it, unless its readers take rows out of it."""
        ledger, stream = self.context.ledger, self.context.stream
        last, head = ledger.last_published(stream, self.name), ledger.head(stream).seq
        with self.database() as database:
            newest = self._progress(database).lost(last, head, stated)
            if newest is not None and newest > last and stated is None:
                self._check_same_batch(self._progress(database), newest)
        return None if newest is None else Progress(newest, 0, done=True)

    def restore_progress(self, stated: int | None) -> Progress | None:
        """In one transaction with a last look."""
        ledger, stream = self.context.ledger, self.context.stream
        if self.lost_progress(stated) is None:
            return None
        last, head = ledger.last_published(stream, self.name), ledger.head(stream).seq
        with self.database() as database:
            newest = self._progress(database).restore(last, head, stated, self._attempt_of)
        return None if newest is None else Progress(newest, 0, done=True)

    def _check_same_batch(self, progress: SqlProgress, seq: int) -> None:
        """Raise LedgerMismatch where the table has rows that this ledger's batch does not have.

        The ledger does not know yet that the batch was published: it may be restored from an older copy, and
        have another batch by that number.
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
        """Rows that are appended again are deleted first."""
        if self.declared.mode == "append":
            stream = self.context.stream
            return (
                f"{self.name}: rows of {stream} of batches after {seq} are deleted, before they come again."
            )
        return f"{self.name}: rows of batches after {seq} are written over when they come again."

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Progress row and rows, in one transaction."""
        with self.database() as database:
            restart_after(database, self.named_shard, self.target, seq, self._attempt_name(seq))
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """A batch is in as a whole, or not at all."""
        with self.database() as database:
            return seal(database, self.named_shard, seq, self._attempt_name(seq))

    @property
    def named_shard(self) -> Shard:
        """Who publishes, with the stream that rows carry."""
        return Shard(self.shard, self.context.stream)

    @property
    def target(self) -> Target:
        """The table that the sink asks for."""
        declared = self.declared
        return Target(declared.table, declared.mode, declared.with_key, self.stage.window is not None)

    def layout(self, outbox: Outbox) -> Layout:
        """The table, for emissions as they are in an outbox. Raises SinkRefused."""
        return Layout(self.target, outbox.schema(COLUMNS))

    def database(self) -> Database:
        """Use it as a context manager. Raises SettingsInvalid."""
        return Database(self._url(), self._variable)

    @property
    def _variable(self) -> str:
        return Connection("sql", self.declared.connection).variable

    def _url(self) -> str:
        return self.context.settings.sql_url(self.declared.connection)


def publisher_to(database: Database, sink: OpenSqlTable, outbox: Outbox) -> SqlPublisher:
    """What puts the outbox's emissions into the sink's table."""
    return SqlPublisher(database, sink.named_shard, sink.layout(outbox), sink.require_committed)
