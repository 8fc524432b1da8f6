"""The progress of a stream in a table: the progress row, and the table's content if the row is lost.

`tidegate recover` changes the progress row, and deletes rows that are sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    column,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    select,
    table,
    update,
)

from tidegate.errors import SINK_IS_AHEAD, Fenced, ProgressLost, ProgressUnreadable, SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.ledger import Stream
from tidegate.sinks.port import RequireCommitted
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.history import update_validity
from tidegate.sinks.sql.layout import Target
from tidegate.sinks.sql.schema import FORMAT, exists, lock_progress, progress
from tidegate.storage.schema import KEY, SOURCE


@dataclass(frozen=True)
class ProgressKey:
    """A publisher: the name of its progress row, and its stream, which rows contain as text."""

    name: str
    stream: Stream


class SqlProgress:
    """Reads and writes the progress row of one shard, for a table that need not exist.

    A row that is not older than what the ledger and the table show is intact, even if rows were deleted from
    the table since. The row must agree with `require_committed`: see `OpenSink.require_committed`.
    """

    def __init__(
        self, database: Database, shard: ProgressKey, target: Target, require_committed: RequireCommitted
    ) -> None:
        self._require_committed = require_committed
        self._database = database
        self._shard = shard
        self._target = target
        self._own_row = progress.c.shard == shard.name
        columns: list[Any] = [column(name) for name in (KEY, SOURCE, "stream", "batch")]
        self._rows = table(target.name, *columns, schema=target.schema)
        self._is_own = self._rows.c.stream == str(shard.stream)

    def newest(self) -> int:
        """Return the newest batch by the progress row; 0 if there is none. Raises ProgressUnreadable."""
        if self._database.is_missing:
            return 0
        with self._database.transaction() as connection:
            return self.stored(connection)[0] or 0

    def check(self, last_published: int) -> None:
        """Check that the row has all that the ledger knows, and nothing that the ledger does not know.

        Raises ProgressLost, ProgressUnreadable, LedgerMismatch.
        """
        if self._database.is_missing:
            raise self.lost_error("its file does not exist", last_published)
        with self._database.transaction() as connection:
            newest, attempt = self.stored(connection)
            self.require(newest, attempt, last_published)
            # The row is in a table of its own, so it survives a DROP of the emissions.
            if not exists(connection, self._target):
                raise self.lost_error(f"the table {self._target.table} does not exist", last_published)

    def lost(self, last_published: int, head: int, stated: int | None) -> int | None:
        """Return the newest batch that the table has, if the progress row is lost; None if it is not lost.
        Writes nothing.

        Args:
            stated: The newest batch in the table, as a user states it; None if no user did.

        Raises SettingsInvalid if the statement cannot be true; ProgressLost if there is no row, and the table
        shows less than was published, because rows were deleted from it or the newest emissions were
        deletions; LedgerMismatch if the table has a batch after the head; ProgressUnreadable.
        """
        if self._database.is_missing:
            return self._lost(None, None, last_published, head, stated) if last_published else None
        with self._database.transaction() as connection:
            return self._lost_in(connection, last_published, head, stated)

    def restore(
        self, last_published: int, head: int, stated: int | None, attempt_of: Callable[[int], str | None]
    ) -> int | None:
        """Write what `lost` returns into the row, in the transaction that reads the table.

        A row that is not lost stays unchanged. Raises what `lost` raises.
        """
        with failpoint("sql.restore"), self._database.transaction() as connection:
            lock_progress(connection)
            newest = self._lost_in(connection, last_published, head, stated)
            if newest is not None:
                # `advance` inserts without a previous row; 0 stands for no row at all.
                connection.execute(delete(progress).where(self._own_row))
                if newest:
                    self.advance(connection, None, newest, attempt_of(newest))
        return newest

    def rows_of(self, seq: int) -> set[tuple[str, str]]:
        """Return key and source of each row that the table has of a batch."""
        rows = self._rows
        query = select(rows.c[KEY], rows.c[SOURCE]).where(self._is_own, rows.c.batch == seq)
        with self._database.transaction() as connection:
            return {(row[0], row[1]) for row in connection.execute(query)}

    def read(self, connection: Connection) -> tuple[int | None, str | None]:
        """Return the newest batch, and the name of its attempt if that is known.

        All columns are selected, since another version of tidegate can have other columns. Raises
        ProgressUnreadable.
        """
        everything: Select[Any] = select(literal_column("*")).select_from(progress).where(self._own_row)
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

    def advance(self, connection: Connection, previous: int | None, seq: int, attempt: str | None) -> None:
        """Advance the row from `previous` to `seq` by compare-and-set. Waits for another transaction that
        does the same.

        Raises Fenced if another publisher has advanced the row.
        """
        now = func.current_timestamp()
        values = {"format": FORMAT, "seq": seq, "attempt": attempt, "rows": 0, "updated_at": now}
        dialect = dialect_named(connection.dialect.name)
        if previous is None:
            # only one of two first publishers inserts the row
            advanced = dialect.inserted(connection, progress, {"shard": self._shard.name, **values})
        else:
            was = and_(self._own_row, progress.c.seq == previous)
            advanced = dialect.updated(connection, update(progress).where(was).values(values)) == 1
        if not advanced:
            raise self._overtaken(seq)

    def require(self, newest: int | None, attempt: str | None, last_published: int) -> None:
        """Check that the row agrees with the ledger.

        Raises ProgressLost if the row lacks the newest batch that was published, LedgerMismatch if it has a
        batch as an attempt that the ledger has not committed.
        """
        if newest is not None:
            # The attempt is null if it is unknown, as in a row that was restored; it then fits any.
            self._require_committed(newest, lambda name: attempt in (None, name))
        if (newest or 0) < last_published:
            says = "there is no progress row" if newest is None else f"the progress row says batch {newest}"
            raise self.lost_error(says, last_published)

    def lost_error(self, says: str, last_published: int) -> ProgressLost:
        """Return the error for a database that lacks what was published to it."""
        stream = self._shard.stream
        return ProgressLost(
            f"The database in {self._database.variable} is not what batch {last_published} of {stream} was "
            f"published to: {says}",
            "Restore it; or let tidegate find out from the table what is missing, and send that again: "
            f"{stream.recover_command('restore-progress')}",
        )

    def ahead_error(self, seq: int, says: str, error: type[Fenced] = Fenced) -> Fenced:
        """Return the error for a database that is ahead of this ledger."""
        return error(
            f"{self._shard.name} is at batch {seq}, but {says} is in already",
            f"{SINK_IS_AHEAD} of {self._shard.stream.pipeline}.",
        )

    def stored(self, connection: Connection) -> tuple[int | None, str | None]:
        """Return what `read` returns, also if nothing was ever published to the database."""
        return self.read(connection) if inspect(connection).has_table(progress.name) else (None, None)

    def _lost_in(
        self, connection: Connection, last_published: int, head: int, stated: int | None
    ) -> int | None:
        newest, _ = self.stored(connection)
        shown = self._shown(connection)
        if shown is None and last_published == 0:
            return None
        return self._lost(newest, shown, last_published, head, stated)

    def _lost(
        self, newest: int | None, shown: int | None, last_published: int, head: int, stated: int | None
    ) -> int | None:
        """Decide whether progress is lost. `shown` is the newest batch with a row in the table; None
        without a table.
        """
        if shown is not None and (newest or 0) >= max(last_published, shown):
            return None
        # Without a table nothing is there, whatever the row says.
        has = 0 if shown is None else max(newest or 0, shown)
        self._require_committed(has, lambda _: True)
        if stated is not None:
            self._check_stated(stated, has, 0 if shown is None else head)
            return stated
        # A table shows only batches that still have rows: a batch of deletions leaves none in mode `upsert`.
        if newest is None and shown is not None and shown < last_published:
            raise self._unclear(shown, last_published)
        return has

    def _check_stated(self, stated: int, least: int, most: int) -> None:
        if not least <= stated <= most:
            raise SettingsInvalid(
                f"The table {self._target.table} cannot have just the batches up to {stated}: those in "
                f"question are {least} to {most}",
                "A batch that the table has a row of is in it, and one after the head was never sent.",
            )

    def _unclear(self, shown: int, last_published: int) -> ProgressLost:
        stream, name = self._shard.stream, self._target.table
        return ProgressLost(
            f"The table {name} does not show how far it is: there is no progress row, its newest row of "
            f"{stream} is of batch {shown}, and batch {last_published} was published. Rows may have been "
            "taken out of it, or the newest emissions were deletions",
            "State which is the newest batch that the table has got; later batches are sent again: "
            f"{stream.recover_command('restore-progress')} --progress sql:{name}={last_published}",
        )

    def _shown(self, connection: Connection) -> int | None:
        """Return the newest batch with a row in the table; None if there is no table."""
        if not exists(connection, self._target):
            return None
        newest = select(func.max(self._rows.c.batch)).where(self._is_own)
        return connection.execute(newest).scalar() or 0

    def _unreadable(self, what: str, format_: int | None) -> ProgressUnreadable:
        return ProgressUnreadable.of_format(
            f"{what} in the database in {self._database.variable}",
            format_,
            FORMAT,
            f"Run: DROP TABLE {progress.name}; then let tidegate find out from each pipeline's tables what "
            f"is in them: {self._shard.stream.recover_command('restore-progress')}",
        )

    def _overtaken(self, seq: int) -> Fenced:
        return Fenced(
            f"Another publisher of {self._shard.name} was faster with batch {seq}",
            "Nothing was written by this one. Run again.",
        )


def restart_after(database: Database, shard: ProgressKey, target: Target, seq: int, attempt: str) -> None:
    """Set the progress row to batch `seq`, and delete rows of later batches.

    In mode `upsert` they stay: a row is overwritten when its key is sent again.
    """
    with failpoint("sql.restart"), database.transaction() as connection:
        lock_progress(connection)
        connection.execute(delete(progress).where(progress.c.shard == shard.name))
        if seq:
            connection.execute(insert(progress).values(_progress_row(shard, seq, attempt)))
        if not target.overwrites and inspect(connection).has_table(target.name, target.schema):
            rows = table(target.name, column("stream"), column("batch"), schema=target.schema)
            later = rows.c.batch > seq
            connection.execute(delete(rows).where(rows.c.stream == str(shard.stream), later))
            if target.mode == "history":
                update_validity(connection, target)


def seal(database: Database, shard: ProgressKey, seq: int, attempt: str) -> int:
    """Set the progress row to batch `seq`, unless it is ahead. Return how many rows of the batch the table
    has.
    """
    with failpoint("sql.seal"), database.transaction() as connection:
        lock_progress(connection)
        newest, rows = _newest_batch(connection, shard)
        if newest is None:
            connection.execute(insert(progress).values(_progress_row(shard, seq, attempt)))
        elif newest < seq:
            own_row = progress.c.shard == shard.name
            connection.execute(update(progress).where(own_row).values(_progress_row(shard, seq, attempt)))
        return rows if newest == seq else 0


def _newest_batch(connection: Connection, shard: ProgressKey) -> tuple[int | None, int]:
    query = select(progress.c.seq, progress.c.rows).where(progress.c.shard == shard.name)
    row = connection.execute(query).first()
    return (row.seq, row.rows) if row is not None else (None, 0)


def _progress_row(shard: ProgressKey, seq: int, attempt: str) -> dict[str, object]:
    now = func.current_timestamp()
    row = {"shard": shard.name, "format": FORMAT, "seq": seq, "attempt": attempt or None, "rows": 0}
    return row | {"updated_at": now}
