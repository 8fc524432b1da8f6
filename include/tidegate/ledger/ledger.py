"""The ledger: plans, heads, leases and progress in SQL.

Three classes separate what a caller may do. `LedgerReader` only reads. `Ledger` opens the database and takes
leases. `LeasedLedger` writes on behalf of the holder of a lease."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, and_, insert, make_url, or_, update
from sqlalchemy.exc import IntegrityError

from tidegate.errors import Fenced, Halted, LeaseHeld, SettingsInvalid
from tidegate.ledger import schema
from tidegate.ledger.database import (
    database_clock,
    open_database,
    open_for_reading,
    overwrite_removed_rows,
)
from tidegate.ledger.erasure import count_rewrites
from tidegate.ledger.facts import Recovery
from tidegate.ledger.history import forget_promotions, remove_batches, remove_stream
from tidegate.ledger.promotions import Promotion
from tidegate.ledger.reader import NO_LEASE_SECONDS, LedgerReader
from tidegate.ledger.records import Head, Lease, Snapshot, Stream
from tidegate.ledger.rows import (
    charge_in,
    columns_of,
    greatest,
    in_stream,
    lock_head,
    promotions_of,
    rows_of,
    stream_key,
)
from tidegate.ledger.writer import LEASE_SECONDS, LeasedLedger


class Ledger(LedgerReader):
    """A reader of the ledger that can take leases, and writes what needs no lease.

    Example:
        ledger = Ledger.open("sqlite:///ledger.db")
        leased = ledger.acquire(Stream("orders", 1), holder="scheduled__2026-01-01")
        leased.add_plan(plan)
    """

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Return the ledger at a SQLAlchemy URL for writing; an empty database gets its tables.

        Raises SettingsInvalid if the URL or the schema's version does not fit, LedgerUnavailable if the
        database does not answer.
        """
        return cls._on_engine(open_database(url))

    @classmethod
    def open_for_reading(cls, url: str) -> Ledger:
        """Return the ledger at a SQLAlchemy URL for reading, without writing anything; an empty one if none
        exists.

        Raises as `open` does.
        """
        return cls._on_engine(open_for_reading(url))

    @classmethod
    def _on_engine(cls, engine: Engine) -> Ledger:
        return cls(engine, database_clock(engine))

    def acquire(self, stream: Stream, holder: str) -> LeasedLedger:
        """Take the lease and raise the epoch: from here on every earlier holder is fenced.

        The same holder (a retry of its run) takes over at once; another has to wait until the lease ends.
        Raises LeaseHeld if another holder has the lease, Halted if the generation was dropped.
        """
        table = schema.heads
        with self._writing("acquire") as connection:
            row = connection.execute(rows_of(table, stream)).first()
            if row is None:
                _create_head(connection, stream)
                row = connection.execute(rows_of(table, stream)).one()
            if row.dropped_at is not None:
                raise dropped(stream)
            # Compare-and-set: of several processes that read this epoch, only one can raise it.
            taken = connection.execute(
                update(table)
                .where(in_stream(table, stream), table.c.epoch == row.epoch, self._free_for(holder))
                .values(epoch=row.epoch + 1, holder=holder, lease_until=self._now() + LEASE_SECONDS)
            )
        if taken.rowcount != 1:
            raise lease_held(stream, row.holder)
        return LeasedLedger(self._engine, self._now, Lease(stream, holder, row.epoch + 1))

    def open_generation(self, stream: Stream, in_charge: int) -> None:
        """Create a generation beside the one in charge of its pipeline.

        `in_charge` is the generation in charge. If nothing was ever promoted, this call records it as the
        first promotion, so that the new generation does not publish. It may be in the ledger already, as one
        whose first plan was refused. Raises SettingsInvalid if the ledger has the generation in another way,
        even as a dropped one, or if another generation is in charge.
        """
        run_id = f"new__{stream.generation}"
        first = Promotion(stream.pipeline, 1, in_charge, 1, 0, False, run_id, decided_at=self._now())
        refused = SettingsInvalid(
            f"{stream} cannot be made: the ledger has that generation, or another one than {in_charge} is in "
            "charge",
            "`tidegate generation list` shows them all. Write a number that was never used into the file.",
        )
        try:
            with self._writing("open_generation") as connection:
                charge = charge_in(connection.execute(promotions_of(stream.pipeline)))
                is_new = _create_head(connection, stream)
                is_usable = is_new or (charge.generation is None and _is_empty(connection, stream))
                if charge.generation not in (None, in_charge) or not is_usable:
                    raise refused
                if not charge.promotions:
                    connection.execute(insert(schema.promotions).values(vars(first)))
        except IntegrityError as error:
            # Another process has recorded the first promotion between: its number is taken.
            raise refused from error

    def add_promotions(self, promotions: Sequence[Promotion]) -> None:
        """Note promotions that this ledger has lost, which come after its newest one, as they were decided.

        One transaction. Raises Fenced where another one was decided meanwhile.
        """
        try:
            with self._writing("add_promotions") as connection:
                newest = charge_in(connection.execute(promotions_of(promotions[0].pipeline))).promotions
                if len(newest) + 1 != promotions[0].number:
                    raise _promoted_meanwhile(promotions[0].pipeline)
                connection.execute(insert(schema.promotions).values([vars(made) for made in promotions]))
        except IntegrityError as error:
            raise _promoted_meanwhile(promotions[0].pipeline) from error

    def add_snapshot(self, snapshot: Snapshot, after: int, rewrites: int = 0) -> bool:
        """Record a snapshot whose files are complete, if the snapshot that it was made from is still the
        newest.

        Returns False if another compaction was faster, or an erasure has rewritten files since: the snapshot
        is then never used, since it may have an erased key. The call takes no
        lease, so batches continue meanwhile; only the recording itself is serialized.

        Args:
            after: the batch of the snapshot that it was made from; 0 if it was made without one.
            rewrites: `LedgerReader.rewrites` before its files were read.
        """
        table, stream = schema.snapshots, snapshot.stream
        with self._writing("add_snapshot") as connection:
            lock_head(connection, stream)
            if greatest(connection, table.c.seq, stream) != after or snapshot.seq <= after:
                return False
            if count_rewrites(connection, stream) != rewrites:
                return False
            row = stream_key(stream) | columns_of(snapshot) | {"made_at": self._now()}
            connection.execute(insert(table).values(row))
        return True

    def add_recovery(self, recovery: Recovery) -> int:
        """Record that a remedy is used, and return the number of the record in its stream.

        The call takes no lease: the remedy takes the leases that it needs.
        """
        table, stream = schema.recoveries, recovery.stream
        with self._writing("add_recovery") as connection:
            lock_head(connection, stream)
            number = greatest(connection, table.c.number, stream) + 1
            row = stream_key(stream) | columns_of(recovery) | {"number": number, "decided_at": self._now()}
            # PostgreSQL refuses a text that is longer than its column.
            row["decided_by"] = recovery.decided_by[:300]
            connection.execute(insert(table).values(row))
        return number

    def end_recovery(self, stream: Stream, number: int, outcome: Sequence[str]) -> None:
        """Record the outcome of a remedy.

        Args:
            number: the number that `add_recovery` returned.
            outcome: what the remedy did, in lines for people.
        """
        table = schema.recoveries
        with self._writing("end_recovery") as connection:
            is_record = and_(in_stream(table, stream), table.c.number == number)
            connection.execute(update(table).where(is_record).values(outcome=outcome))

    def overwrite_removed_rows(self) -> None:
        """Write SQLite's file anew, without the bytes of rows that were removed or changed.

        PostgreSQL does that by its own vacuum. Raises LedgerUnavailable while another process keeps the file
        open in a transaction.
        """
        if self._engine.dialect.name == "sqlite":
            overwrite_removed_rows(self._engine)

    def forget(self, pipeline: str, leases: Sequence[Lease]) -> None:
        """Remove all rows of a pipeline in one transaction, and end `leases`, one of each of its streams.

        See `history.remove_stream` for the rows that stay. Raises Fenced, and removes nothing, if another
        process has taken one of the leases, or the pipeline has a stream without a lease here; Halted if an
        erasure is not finished.
        """
        with self._writing("forget") as connection:
            # The check comes after the removal: if it fails, the error rolls the whole transaction back.
            ended = [remove_stream(connection, lease, self._now()) for lease in leases]
            if not (forget_promotions(connection, pipeline) and all(ended)):
                raise Fenced(
                    f"A stream of {pipeline} was made or taken over meanwhile",
                    "Nothing was removed; look again.",
                )

    def remove_batches(self, stream: Stream, before: int, most: int) -> int:
        """Remove old rows of at most `most` batches before `before`, and return of how many.

        The call takes no lease: see `history.remove_batches`. Call it until it returns 0.
        """
        with self._writing("remove_batches") as connection:
            return remove_batches(connection, stream, before, most)

    def _free_for(self, holder: str) -> Any:
        until, now = schema.heads.c.lease_until, self._now()
        is_implausible = until > now + NO_LEASE_SECONDS  # a machine with a wrong clock wrote it
        is_over = until <= now
        is_own = schema.heads.c.holder == holder
        return or_(schema.heads.c.holder.is_(None), is_own, is_over, is_implausible)


def lease_held(stream: Stream, holder: str | None) -> LeaseHeld:
    """Return the error for a process that finds the lease of a stream taken."""
    return LeaseHeld(
        f"{stream} is being worked on by {holder}",
        f"Wait for it; its lease ends by itself {LEASE_SECONDS:.0f} s after its last sign of life.",
    )


def dropped(stream: Stream) -> Halted:
    """Return the error for a process that wants to work on a dropped generation."""
    return Halted(
        f"{stream} was dropped (tidegate generation drop): its state and its progress no longer exist",
        "Write a number that was never used as `generation` into its pipeline file, or remove the file.",
    )


def _promoted_meanwhile(pipeline: str) -> Fenced:
    return Fenced(f"A generation of {pipeline} was promoted meanwhile", "Nothing was noted; look again.")


def _create_head(connection: Connection, stream: Stream) -> bool:
    """Create the stream's first row; return False if it exists.

    If two processes are the first at once, the insert of the second one waits for the first, then has no
    effect.
    """
    row = stream_key(stream) | columns_of(Head(stream)) | {"epoch": 0}
    try:
        # A savepoint: without it PostgreSQL would refuse all further statements after the violation.
        with connection.begin_nested():
            connection.execute(insert(schema.heads).values(row))
    except IntegrityError:
        return False
    return True


def _is_empty(connection: Connection, stream: Stream) -> bool:
    """Return whether a stream has no batch, neither decided nor planned, and was not dropped."""
    head = connection.execute(rows_of(schema.heads, stream)).one()
    if head.seq or head.dropped_at is not None:
        return False
    return connection.execute(rows_of(schema.plans, stream)).first() is None


def current_ledger(url: str) -> Ledger:
    """Return the ledger at a URL for reading, with one connection pool for all callers.

    A ledger without tables is opened again at each call, so that the page shows the tables as soon as they
    exist. A SQLite file is opened again if another file has taken its place. Raises SettingsInvalid and
    LedgerUnavailable as `Ledger.open_for_reading` does.
    """
    try:
        return _cached(url, _file_identity(url))
    except _NoTablesYet as empty:
        return empty.ledger


@lru_cache(maxsize=2)
def _cached(url: str, _: tuple[int, int] | None) -> Ledger:
    # The second argument is only part of the cache's key: another file at this URL is another ledger.
    ledger = Ledger.open_for_reading(url)
    if not ledger.is_stored:
        raise _NoTablesYet(ledger)  # lru_cache does not cache a call that raises
    return ledger


def _file_identity(url: str) -> tuple[int, int] | None:
    """Return device and inode of SQLite's file; None if it has no file, or on PostgreSQL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or not Path(parsed.database).exists():
        return None
    stat = Path(parsed.database).stat()
    return stat.st_dev, stat.st_ino


class _NoTablesYet(Exception):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
