"""Publish to a table of a SQL database exactly once: the rows of a batch and the progress row in one
transaction.

The progress row is advanced first, from the value that was read. This locks the row: of two publishers of one
shard the second waits, finds that the row has changed, and is fenced. After a crash the batch is in the table
completely or not at all, and the progress row says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from sqlalchemy import Connection, delete, update

from tidegate.errors import SettingsInvalid, SinkAhead, SinkUnavailable
from tidegate.failpoints import failpoint
from tidegate.kafka.progress import Progress
from tidegate.kafka.shard import SendShards
from tidegate.ledger import LeasedLedger
from tidegate.model.connection import Connection as DeclaredConnection
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import Dataset, OpenSink, RequireCommitted, table_dataset
from tidegate.sinks.sql.database import Database, dialect_of
from tidegate.sinks.sql.history import update_validity
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.model import SqlSink
from tidegate.sinks.sql.progress import ProgressKey, SqlProgress, restart_after, seal
from tidegate.sinks.sql.schema import (
    check_emissions,
    check_table,
    exists,
    extend_existing,
    lock_progress,
    make_or_extend,
    progress,
    unfit_emissions,
)
from tidegate.sinks.sql.shards import (
    LoadTask,
    can_load,
    drop_tables,
    load_tasks,
    move_rows,
    pipeline_prefix,
    shard_prefix,
)
from tidegate.sinks.sql.write import TableWriter, exceeds, refused_rows, write
from tidegate.storage.schema import KEY, KEY_COLUMNS, SOURCE, VALUE


class SqlPublisher:
    """Publishes a stream's batches to one table, in order, each in one transaction.

    The transaction writes the progress row (compare-and-set), the rows, and the number of rows, in this
    order. So a fenced publisher has written nothing, and a batch is never in the table in part.
    """

    def __init__(
        self, database: Database, shard: ProgressKey, layout: Layout, require_committed: RequireCommitted
    ) -> None:
        self._database = database
        self._shard = shard
        self._layout = layout
        self._progress = SqlProgress(database, shard, layout.target, require_committed)

    def publish(
        self, seq: int, attempt: str, emissions: Iterable[pa.RecordBatch], last_published: int
    ) -> int:
        """Write a batch to the table, unless it is there. Return how many emissions this call sent.

        Args:
            attempt: The name of the attempt that computed the emissions.
            emissions: In order; each record batch must fit into memory.
            last_published: The newest batch that the sink has rows of, by the ledger; 0 if none.

        Raises ProgressLost, ProgressUnreadable; LedgerMismatch if the table has what this ledger has not
        committed; Fenced if a newer publisher went ahead, SinkAhead if the table has a later batch;
        SinkUnavailable, SinkRefused, OutcomeUnknown.
        """
        self._prepare(last_published)
        return self._change(seq, attempt, last_published, partial(self._write, seq, emissions))

    def publish_in_shards(self, outbox: Outbox, shards: int, send: SendShards, last_published: int) -> int:
        """Do as `publish`, but let tasks load the emissions, each into a table of its own.

        A user who may not create tables publishes from this process.

        Args:
            shards: The number of tasks.
            send: Runs the tasks.
        """
        seq, attempt = outbox.plan.seq, outbox.attempt
        self._prepare(last_published)
        with self._database.transaction() as connection:
            newest, newest_attempt = self._progress.stored(connection)
            self._check(newest, newest_attempt, seq, attempt, last_published)
            if newest == seq:
                return 0
            may_load = can_load(connection, self._layout)
            if may_load:
                drop_tables(connection, self._layout.target, shard_prefix(self._shard))
        if not may_load:
            write = partial(self._write, seq, outbox.batches(COLUMNS))
            return self._change(seq, attempt, last_published, write)
        tasks = load_tasks(self._database, self._layout, self._shard, outbox.cut(shards))
        move = partial(self._move, outbox, tasks, send(tasks))
        return self._change(seq, attempt, last_published, move)

    def erase(self, seq: int, attempt: str, keys: Iterable[pa.RecordBatch], last_published: int) -> int:
        """Delete all rows of the keys that any generation of the pipeline has written, unless it is done.

        Return the number of keys. Raises as `publish`.

        Args:
            keys: Emissions with the keys.
        """
        self._prepare(last_published)
        return self._change(seq, attempt, last_published, partial(self._delete, keys))

    def refused(
        self,
        seq: int,
        attempt: str,
        emissions: Iterable[pa.RecordBatch],
        last_published: int,
        most: int | None = None,
    ) -> dict[int, str]:
        """Return the emissions that the table refuses: the place in the batch -> what the database says.

        The batch is written in a transaction that is rolled back. A table that does not exist yet refuses
        nothing. Raises as `publish`.

        Args:
            most: The most emissions that may be refused: more are not looked for. None: any number.
        """
        refused: dict[int, str] = {}
        batch = (str(self._shard.stream), seq)
        with self._database.trial() as connection:
            newest, newest_attempt = self._progress.stored(connection)
            self._check(newest, newest_attempt, seq, attempt, last_published)
            if not exists(connection, self._layout.target):
                return refused
            extend_existing(connection, self._layout)
            first = 0
            for chunk in emissions:
                rows = self._layout.rows(self._database.dialect, chunk, batch, first)
                emissions_of_chunk = (rows, chunk.column(VALUE).is_null())
                with failpoint("sql.trial"):
                    remaining = None if most is None else most - len(refused)
                    refused |= refused_rows(
                        self._database, connection, self._layout, emissions_of_chunk, remaining
                    )
                if exceeds(refused, most):
                    return refused
                first += rows.num_rows
            self._end_versions(connection, seq)
        return refused

    def _change(
        self, seq: int, attempt: str, last_published: int, change: Callable[[Connection], int]
    ) -> int:
        with self._database.transaction() as connection:
            newest, newest_attempt = self._progress.read(connection)
            self._check(newest, newest_attempt, seq, attempt, last_published)
            # An earlier try has committed, and died before the ledger knew: nothing is left to do.
            if newest == seq:
                return 0
            # before the rows: a second publisher waits here for the lock of the progress row
            with failpoint("sql.advance"):
                self._progress.advance(connection, newest, seq, attempt)
            sent = change(connection)
            own_row = progress.c.shard == self._shard.name
            with failpoint("sql.count"):
                # Known only now; `seal` reads it to say how much of a given-up batch is in the table.
                connection.execute(update(progress).where(own_row).values(rows=sent))
        return sent

    def _write(self, seq: int, emissions: Iterable[pa.RecordBatch], connection: Connection) -> int:
        sent, writer = 0, TableWriter(connection, self._layout)
        batch = (str(self._shard.stream), seq)
        for chunk in emissions:
            rows = self._layout.rows(self._database.dialect, chunk, batch, sent)
            with failpoint("sql.write"):
                write(writer, self._layout, rows, chunk.column(VALUE).is_null())
            sent += rows.num_rows
        self._end_versions(connection, seq)
        return sent

    def _move(
        self, outbox: Outbox, tasks: Sequence[LoadTask], loaded: Sequence[int], connection: Connection
    ) -> int:
        move_rows(connection, self._layout, tasks, loaded)
        self._end_versions(connection, outbox.plan.seq)
        drop_tables(connection, self._layout.target, shard_prefix(self._shard))
        return outbox.emitted

    def _end_versions(self, connection: Connection, seq: int) -> None:
        """Set the validity of the versions of the batch's keys, in a table that has it."""
        if self._layout.target.mode == "history":
            update_validity(connection, self._layout.target, (str(self._shard.stream), seq))

    def _delete(self, keys: Iterable[pa.RecordBatch], connection: Connection) -> int:
        table, names = self._layout.table, self._layout.keys
        # A table can be that of several pipelines, whose keys of the same text are others.
        own = table.c[names["stream"]].startswith(f"{self._shard.stream.pipeline}/", autoescape=True)
        deleted, most = 0, self._database.dialect.most_values
        for chunk in keys:
            texts = chunk.column(KEY).to_pylist()
            for first in range(0, len(texts), most):
                are_erased = table.c[names[KEY]].in_(texts[first : first + most])
                with failpoint("sql.erase"):
                    connection.execute(delete(table).where(own, are_erased))
            deleted += len(texts)
        return deleted

    def _prepare(self, last_published: int) -> None:
        # A transaction of its own: all publishers to the database wait for its lock, and rows take long.
        with failpoint("sql.prepare"), self._database.transaction() as connection:
            lock_progress(connection)
            if last_published and not exists(connection, self._layout.target):
                says = f"the table {self._layout.target.table} does not exist"
                # A new, empty table would hide that what was published is lost.
                raise self._progress.lost_error(says, last_published)
            make_or_extend(connection, self._layout)

    def _check(
        self, newest: int | None, newest_attempt: str | None, seq: int, attempt: str, last_published: int
    ) -> None:
        self._progress.require(newest, newest_attempt, last_published)
        if newest is not None and newest > seq:
            raise self._progress.ahead_error(seq, f"batch {newest}", SinkAhead)
        if newest == seq and newest_attempt not in (None, attempt):
            raise self._progress.ahead_error(seq, f"attempt {newest_attempt} of it")


class OpenSqlTable(OpenSink[SqlSink]):
    """Publishes a batch in one transaction. A lost progress row is derived from the table itself."""

    title = "SQL"
    can_lose_progress = True

    @property
    def sends_shards(self) -> bool:
        """Whether the database has a way, and the sink allows more than one writer."""
        return self.declared.writers > 1 and dialect_of(self._url(), self._variable).has_shard_tables

    @property
    def dataset(self) -> Dataset:
        """The table."""
        return table_dataset(self._url(), self.declared.table)

    def check_settings(self) -> None:
        """Check that the database is set, and that an existing table has the key. Raises SettingsInvalid,
        SinkRefused.
        """
        dialect = dialect_of(self._url(), self._variable)
        if self.declared.refused_row == "quarantine" and not dialect.can_try_rows:
            raise SettingsInvalid(
                f"`refused_row: quarantine` of {self.name} needs a database that takes a row back; tidegate "
                f"can do that with PostgreSQL, MySQL, MariaDB and SQLite, and {self._variable} is of "
                f"{dialect.title}",
                "Leave out `refused_row`: a refused row halts its batch; or use one of these databases.",
            )
        # No outbox exists yet, so only the sink's own columns and the key can be checked.
        nothing_emitted = pa.schema([(KEY_COLUMNS, pa.struct([])), (VALUE, pa.struct([]))])
        self._check_table(Layout(self.target, nothing_emitted))

    def refused(self, outbox: Outbox, most: int | None) -> Mapping[int, str]:
        """Return the emissions that the database cannot store, or else those that the table refuses."""
        if self.declared.refused_row == "halt":
            return {}
        layout, unfit = self.layout(outbox), dict[int, str]()
        dialect = dialect_of(self._url(), self._variable)
        for place, why in unfit_emissions(dialect, layout, outbox.batches(COLUMNS)):
            unfit.setdefault(place, why)
        with self.database() as database:
            # Such values cannot be sent at all: the other emissions are tried without them.
            if unfit or database.is_missing:
                return unfit
            last = self.context.ledger.last_published(self.context.stream, self.name)
            publisher = publisher_to(database, self, outbox)
            return publisher.refused(outbox.plan.seq, outbox.attempt, outbox.batches(COLUMNS), last, most)

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
        shards = min(outbox.shards, self.declared.writers) if self.sends_shards else 1
        with self.database() as database:
            publisher = publisher_to(database, self, outbox)
            if shards > 1:
                publisher.publish_in_shards(outbox, shards, self.context.send_shards, last_published)
            else:
                publisher.publish(outbox.plan.seq, outbox.attempt, outbox.batches(COLUMNS), last_published)

    def erase(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Delete the rows of the keys: with `upsert`, by their deletions."""
        if self.target.overwrites:
            self.publish(lease, outbox, last_published)
        else:
            with self.database() as database:
                publisher = publisher_to(database, self, outbox)
                publisher.erase(outbox.plan.seq, outbox.attempt, outbox.batches([KEY]), last_published)
        with self.database() as database:
            self._drop_shard_tables(database)

    def erasure_effect(self) -> str:
        """Return a sentence on the rows, which are all deleted."""
        return f"{self.name}: all rows of the keys are deleted."

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
        """Return a sentence on rows of later batches: deleted, or overwritten in mode `upsert`."""
        return self.restart_effect_on_rows(seq, overwrites=self.target.overwrites)

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the progress row and delete later rows, in one transaction."""
        with self.database() as database:
            restart_after(database, self.named_shard, self.target, seq, self._attempt_name(seq))
            self._drop_shard_tables(database)
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the progress row. A batch is in the table completely or not at all."""
        with self.database() as database:
            sent = seal(database, self.named_shard, seq, self._attempt_name(seq))
            self._drop_shard_tables(database)
        return sent

    def _drop_shard_tables(self, database: Database) -> None:
        """Drop what publishers left behind, also those of generations that publish no more."""
        if database.dialect.has_shard_tables:
            with database.transaction() as connection:
                drop_tables(connection, self.target, pipeline_prefix(self.named_shard))

    @property
    def named_shard(self) -> ProgressKey:
        """The publisher, with the stream that rows contain."""
        return ProgressKey(self.shard, self.context.stream)

    @property
    def target(self) -> Target:
        """The table that the sink declares."""
        declared = self.declared
        types = tuple(declared.types.items())
        return Target(declared.table, declared.mode, declared.with_key, self.stage.window is not None, types)

    def layout(self, outbox: Outbox) -> Layout:
        """Return the table for the columns of an outbox. Raises SinkRefused."""
        return Layout(self.target, outbox.schema(COLUMNS))

    def database(self) -> Database:
        """Return the database, to use as a context manager. Raises SettingsInvalid."""
        return Database(self._url(), self._variable)

    @property
    def _variable(self) -> str:
        return DeclaredConnection("sql", self.declared.connection).variable

    def _url(self) -> str:
        return self.context.settings.sql_url(self.declared.connection)


def publisher_to(database: Database, sink: OpenSqlTable, outbox: Outbox) -> SqlPublisher:
    """Return what writes the outbox's emissions to the sink's table."""
    return SqlPublisher(database, sink.named_shard, sink.layout(outbox), sink.require_committed)


SINK = OpenSqlTable
