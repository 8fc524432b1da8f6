"""Publishing to a SQL table exactly once: a batch's rows and the progress row in one transaction.

The progress row is moved first, from what it was found to be. That locks it, so two publishers of one shard
stand in line, and the second finds that it has moved: it is fenced. A crash anywhere leaves the batch in as a
whole or not at all, and the progress row says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    Connection,
    Select,
    and_,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidegate.errors import SINK_IS_AHEAD, Fenced, ProgressLost, ProgressUnreadable
from tidegate.failpoints import failpoint
from tidegate.lake.outbox import VALUE
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import Layout
from tidegate.sinks.sql.schema import FORMAT, exists, lock_for_changes, make_or_extend, progress
from tidegate.sinks.sql.write import write


@dataclass(frozen=True)
class Shard:
    """Who publishes: the name of the progress row, and the stream (`pipeline/generation`) that rows carry."""

    name: str
    stream: str

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.stream.rpartition("/")[0]


class SqlPublisher:
    """Publishes a stream's batches to one table, in the order of their numbers, each in one transaction.

    The order in it: progress row (compare-and-set), rows, the count of rows. So whoever is fenced has written
    nothing, and a batch is never there in part.
    """

    def __init__(self, database: Database, shard: Shard, layout: Layout) -> None:
        self._database = database
        self._shard = shard
        self._layout = layout
        self._table = layout.table

    def publish(
        self, seq: int, attempt: str, emissions: Iterable[pa.RecordBatch], last_published: int
    ) -> int:
        """Put a batch into the table, unless it is there. Returns how many emissions this call sent.

        `attempt` is the name of the computation that they are of. `emissions` come in order, as many at a
        time as fit into memory. `last_published` is the newest batch that the ledger says this sink has rows
        of, 0 if none.
        Raises ProgressLost, ProgressUnreadable; Fenced also where the table is further than this ledger, or
        has another attempt of the batch; SinkUnavailable, SinkRefused, OutcomeUnknown.
        """
        self._prepare(last_published)
        with self._database.transaction() as connection:
            newest, newest_attempt = self._progress(connection)
            self._check(newest, newest_attempt, seq, attempt, last_published)
            if newest == seq:
                return 0
            with failpoint("sql.advance"):
                self._advance(connection, newest, seq, attempt)
            sent = 0
            for chunk in emissions:
                rows = self._layout.rows(chunk, self._shard.stream, seq, sent)
                with failpoint("sql.write"):
                    write(connection, self._layout, rows, chunk.column(VALUE).is_null().to_pylist())
                sent += len(rows)
            own_row = progress.c.shard == self._shard.name
            with failpoint("sql.count"):
                connection.execute(update(progress).where(own_row).values(rows=sent))
        return sent

    def progress(self) -> int:
        """The newest batch that the database says is in; 0 if none, or if nothing was ever published.

        Raises ProgressUnreadable.
        """
        with self._database.transaction() as connection:
            has_progress_table = inspect(connection).has_table(progress.name)
            return (self._progress(connection)[0] or 0) if has_progress_table else 0

    def check(self, last_published: int, head: int) -> None:
        """Raises ProgressLost where the database does not have all that the ledger knows, Fenced where it has
        batches that come after the ledger's head, and ProgressUnreadable.
        """
        if self._database.is_missing:
            raise self._lost("its file does not exist", last_published)
        newest = self.progress()
        if newest < last_published:
            raise self._lost(f"the progress row says batch {newest}", last_published)
        if newest > head:
            raise self._ahead(head, f"batch {newest}")
        with self._database.transaction() as connection:
            if not exists(connection, self._layout):
                raise self._lost(f"the table {self._layout.target.table} does not exist", last_published)

    def rebuild_progress(self) -> int:
        """Set the progress row to what the table itself shows: the newest batch of which it has a row.

        What comes after that is not in, for batches go in as a whole and in order, or (upsert) does no harm
        when it comes again. Returns that batch, 0 if there is none.
        Raises ProgressUnreadable: what another tidegate has written is not put right by this one.
        """
        with self._database.transaction() as connection:
            lock_for_changes(connection)
            progress.create(connection, checkfirst=True)
            self._progress(connection)
            newest = self._newest_batch(connection)
            connection.execute(delete(progress).where(progress.c.shard == self._shard.name))
            if newest:
                self._advance(connection, None, newest, attempt=None)
        return newest

    def _newest_batch(self, connection: Connection) -> int:
        if not exists(connection, self._layout):
            return 0
        columns = {name: self._table.c[self._layout.keys[name]] for name in ("batch", "stream")}
        newest = select(func.max(columns["batch"])).where(columns["stream"] == self._shard.stream)
        return connection.execute(newest).scalar() or 0

    def _prepare(self, last_published: int) -> None:
        with failpoint("sql.prepare"), self._database.transaction() as connection:
            lock_for_changes(connection)
            progress.create(connection, checkfirst=True)
            if last_published and not exists(connection, self._layout):
                raise self._lost(f"the table {self._layout.target.table} does not exist", last_published)
            make_or_extend(connection, self._layout)

    def _progress(self, connection: Connection) -> tuple[int | None, str | None]:
        """The newest batch, and the name of the attempt that it is of, if that is known.

        All columns that there are, since another tidegate may have other ones. Raises ProgressUnreadable.
        """
        own_row = progress.c.shard == self._shard.name
        everything: Select[Any] = select(literal_column("*")).select_from(progress).where(own_row)
        with failpoint("sql.read_progress"):
            result = connection.execute(everything)
            columns, row = result.keys(), result.mappings().first()
        if "format" not in columns:
            raise self._unreadable(f"The table {progress.name}", None)
        if row is None:
            return None, None
        if row["format"] != FORMAT:
            raise self._unreadable(f"The progress row of {self._shard.name}", row["format"])
        return row["seq"], row["attempt"]

    def _check(
        self, newest: int | None, newest_attempt: str | None, seq: int, attempt: str, last_published: int
    ) -> None:
        if (newest or 0) < last_published:
            says = "there is no progress row" if newest is None else f"the progress row says batch {newest}"
            raise self._lost(says, last_published)
        if newest is not None and newest > seq:
            raise self._ahead(seq, f"batch {newest}")
        if newest == seq and newest_attempt not in (None, attempt):
            raise self._ahead(seq, f"attempt {newest_attempt} of it")

    def _ahead(self, seq: int, says: str) -> Fenced:
        return Fenced(
            f"{self._shard.name} is at batch {seq}, but {says} is in already",
            f"{SINK_IS_AHEAD}.",
        )

    def _lost(self, says: str, last_published: int) -> ProgressLost:
        return ProgressLost(
            f"The database in {self._database.variable} is not what batch {last_published} of "
            f"{self._shard.stream} was published to: {says}",
            "Restore it; or let tidegate find out from the table what is missing, and send that again: "
            f"tidegate doctor {self._shard.pipeline} --reconcile",
        )

    def _unreadable(self, what: str, format_: int | None) -> ProgressUnreadable:
        return ProgressUnreadable.of_format(
            f"{what} in the database in {self._database.variable}",
            format_,
            FORMAT,
            f"Run: DROP TABLE {progress.name}; then let tidegate find out from each pipeline's tables what "
            f"is in them: tidegate doctor {self._shard.pipeline} --reconcile",
        )

    def _advance(self, connection: Connection, previous: int | None, seq: int, attempt: str | None) -> None:
        """Compare-and-set: from `previous` to `seq`. Waits for whoever else is about to do the same."""
        now = func.current_timestamp()
        values = {"format": FORMAT, "seq": seq, "attempt": attempt, "rows": 0, "updated_at": now}
        try:
            if previous is None:
                connection.execute(insert(progress).values(shard=self._shard.name, **values))
                return
        except IntegrityError:
            raise self._fenced(seq) from None
        was = and_(progress.c.shard == self._shard.name, progress.c.seq == previous)
        if connection.execute(update(progress).where(was).values(values)).rowcount != 1:
            raise self._fenced(seq)

    def _fenced(self, seq: int) -> Fenced:
        return Fenced(
            f"Another publisher of {self._shard.name} was faster with batch {seq}",
            "Nothing was written by this one. Run again.",
        )
