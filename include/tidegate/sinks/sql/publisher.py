"""Publish to a SQL table exactly once: the rows of a batch and the progress row in one transaction.

The progress row is advanced first, from the value that was read. This locks the row: of two publishers of one
shard the second waits, finds that the row has changed, and is fenced. After a crash the batch is in the table
completely or not at all, and the progress row says which.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlalchemy import update

from tidegate.errors import SinkAhead
from tidegate.failpoints import failpoint
from tidegate.sinks.port import RequireCommitted
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import Layout
from tidegate.sinks.sql.progress import Shard, SqlProgress
from tidegate.sinks.sql.schema import exists, lock_for_changes, make_or_extend, progress
from tidegate.sinks.sql.write import write
from tidegate.storage.schema import VALUE


class SqlPublisher:
    """Publishes a stream's batches to one table, in order, each in one transaction.

    The transaction writes the progress row (compare-and-set), the rows, and the number of rows, in this
    order. So a fenced publisher has written nothing, and a batch is never in the table in part.
    """

    def __init__(
        self, database: Database, shard: Shard, layout: Layout, require_committed: RequireCommitted
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
        # A transaction of its own: all publishers to the database wait for its lock, and rows take long.
        self._prepare(last_published)
        with self._database.transaction() as connection:
            newest, newest_attempt = self._progress.read(connection)
            self._check(newest, newest_attempt, seq, attempt, last_published)
            # An earlier try has committed, and died before the ledger knew: nothing is left to do.
            if newest == seq:
                return 0
            # before the rows: a second publisher waits here for the lock of the progress row
            with failpoint("sql.advance"):
                self._progress.advance(connection, newest, seq, attempt)
            sent = 0
            for chunk in emissions:
                rows = self._layout.rows(chunk, str(self._shard.stream), seq, sent)
                with failpoint("sql.write"):
                    write(connection, self._layout, rows, chunk.column(VALUE).is_null().to_pylist())
                sent += len(rows)
            own_row = progress.c.shard == self._shard.name
            with failpoint("sql.count"):
                # Known only now; `seal` reads it to say how much of a given-up batch is in the table.
                connection.execute(update(progress).where(own_row).values(rows=sent))
        return sent

    def _prepare(self, last_published: int) -> None:
        with failpoint("sql.prepare"), self._database.transaction() as connection:
            lock_for_changes(connection)
            progress.create(connection, checkfirst=True)
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
