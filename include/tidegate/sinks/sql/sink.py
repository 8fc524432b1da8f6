"""A table of a SQL database as a sink. How far it is stands in a progress row, which moves in the same
transaction as the rows.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from tidegate.errors import SinkUnavailable
from tidegate.lake.outbox import KEY_COLUMNS, VALUE
from tidegate.ledger import LeasedLedger
from tidegate.sinks.dataset import Dataset, table_dataset
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.sinks.sql.database import Database, dialect_of
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.publisher import Shard, SqlPublisher
from tidegate.sinks.sql.repair import restart_after, seal
from tidegate.sinks.sql.schema import check_emissions, check_table
from tidegate.spec import Connection, SqlSink


class OpenSqlTable(OpenSink[SqlSink]):
    """Publishes a batch in one transaction. A lost progress row is found in the table itself."""

    title = "SQL"
    is_reconcilable = True

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
        """Of a sink that something was published to."""
        ledger, stream = self.context.ledger, self.context.stream
        last = ledger.last_published(stream, self.name)
        published = self.published(last)
        if published is not None:
            with self.database() as database:
                publisher_to(database, self, published[1]).check(last, ledger.head(stream).seq)

    def reconcile(self, lease: LeasedLedger, stated: int | None) -> str:
        """The table's newest batch is what it has; a database always tells."""
        head = lease.head(lease.stream).seq
        published = self.published(lease.last_published(lease.stream, self.name))
        if published is None:
            return f"{self.name}: nothing was published yet."
        with self.database() as database:
            newest = publisher_to(database, self, published[1]).rebuild_progress()
        sent = self.publish_again(lease, range(newest + 1, head + 1))
        return f"{self.name}: its table has batches up to {newest}; {sent}."

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
        return Shard(self.shard, str(self.context.stream))

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
    return SqlPublisher(database, sink.named_shard, sink.layout(outbox))
