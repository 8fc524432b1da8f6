"""The ledger: plans, heads, leases and progress in SQL.

`LedgerReader` is what only reads needs, `Ledger` opens it and is the way to a lease, and `LeasedLedger` is
what the holder of the lease may write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.errors import Fenced, Halted, LeaseHeld, SettingsInvalid
from tidegate.ledger import schema
from tidegate.ledger.database import database_clock, open_database, open_for_reading
from tidegate.ledger.history import remove_batches
from tidegate.ledger.promotions import Promotion
from tidegate.ledger.reader import NO_LEASE_SECONDS, LedgerReader
from tidegate.ledger.records import Lease, Recovery, Snapshot, Stream
from tidegate.ledger.repairs import forget_promotions, remove_stream
from tidegate.ledger.rows import charge_in, manifest_out, of, promotions_of, recovery_out, storable
from tidegate.ledger.writer import LEASE_SECONDS, LeasedLedger


class Ledger(LedgerReader):
    """Reads, and the way to a lease."""

    @classmethod
    def open(cls, url: str) -> Ledger:
        """The ledger at a SQLAlchemy URL; an empty database gets its tables."""
        return cls._of(open_database(url))

    @classmethod
    def open_for_reading(cls, url: str) -> Ledger:
        """The ledger at a SQLAlchemy URL as it is; an empty one where there is none. Nothing is written."""
        return cls._of(open_for_reading(url))

    @classmethod
    def _of(cls, engine: Engine) -> Ledger:
        return cls(engine, database_clock(engine))

    def acquire(self, stream: Stream, holder: str) -> LeasedLedger:
        """Take the lease and raise the epoch: from here on every earlier holder is fenced.

        The same holder (a retry of its run) takes over at once; another waits until the lease ends.
        Raises LeaseHeld; Halted where the generation was dropped.
        """
        table = schema.heads
        with self._writing("acquire") as connection:
            row = connection.execute(select(table).where(of(table, stream))).first()
            if row is None:
                _create_head(connection, stream)
                row = connection.execute(select(table).where(of(table, stream))).one()
            if row.dropped_at is not None:
                raise dropped(stream)
            taken = connection.execute(
                update(table)
                .where(of(table, stream), table.c.epoch == row.epoch, self._free_for(holder))
                .values(epoch=row.epoch + 1, holder=holder, lease_until=self._now() + LEASE_SECONDS)
            )
        if taken.rowcount != 1:
            raise lease_held(stream, row.holder)
        return LeasedLedger(self._engine, self._now, Lease(stream, holder, row.epoch + 1))

    def open_generation(self, stream: Stream, in_charge: int) -> None:
        """Make a generation beside the one in charge of its pipeline, which is `in_charge` from now on where
        nothing was ever promoted.

        Raises SettingsInvalid where the ledger has such a generation, also a dropped one, or the one in
        charge is another by now.
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
                if charge.generation not in (None, in_charge) or not _create_head(connection, stream):
                    raise refused
                if not charge.promotions:
                    connection.execute(insert(schema.promotions).values(vars(first)))
        except IntegrityError as error:
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

    def add_snapshot(self, snapshot: Snapshot, after: int) -> bool:
        """Note a snapshot whose files are complete, if the newest is still the one that it was made from.

        That is the one of batch `after`, 0: none. False when another was faster: then this one never counts.

        It takes no lease, so batches go on; only the noting itself is one at a time.
        """
        table, heads, stream = schema.snapshots, schema.heads, snapshot.stream
        with self._writing("add_snapshot") as connection:
            connection.execute(
                update(heads).where(of(heads, stream)).values(seq=heads.c.seq)
            )  # the row's lock
            newest = connection.execute(select(func.max(table.c.seq)).where(of(table, stream))).scalar() or 0
            if newest != after or snapshot.seq <= after:
                return False
            row = {"seq": snapshot.seq, "made_at": self._now(), **manifest_out(snapshot.manifest)}
            mine = {"pipeline": stream.pipeline, "generation": stream.generation}
            connection.execute(insert(table).values(mine | row))
        return True

    def add_recovery(self, recovery: Recovery) -> int:
        """Record that a remedy is used, and return the number of the record in its stream.

        It takes no lease: the remedy takes those that it needs.
        """
        table, heads, stream = schema.recoveries, schema.heads, recovery.stream
        with self._writing("add_recovery") as connection:
            connection.execute(update(heads).where(of(heads, stream)).values(seq=heads.c.seq))  # its lock
            newest = select(func.max(table.c.number)).where(of(table, stream))
            number = (connection.execute(newest).scalar() or 0) + 1
            key = {"pipeline": stream.pipeline, "generation": stream.generation, "number": number}
            row = key | recovery_out(recovery) | {"decided_at": self._now()}
            connection.execute(insert(table).values(row))
        return number

    def end_recovery(self, stream: Stream, number: int, outcome: Sequence[str]) -> None:
        """Record what came of the use of a remedy."""
        table = schema.recoveries
        with self._writing("end_recovery") as connection:
            connection.execute(
                update(table)
                .where(of(table, stream), table.c.number == number)
                .values(outcome=list(map(storable, outcome)))
            )

    def forget(self, pipeline: str, leases: Sequence[Lease]) -> None:
        """Remove all rows of a pipeline, of whose streams `leases` are the leases; they end.

        One transaction: see `repairs.remove_stream`. Raises Fenced where one of them is another's by now, or
        the pipeline has another stream.
        """
        with self._writing("forget") as connection:
            ended = [remove_stream(connection, lease, self._now()) for lease in leases]
            if not (forget_promotions(connection, pipeline) and all(ended)):
                raise Fenced(
                    f"A stream of {pipeline} was made or taken over meanwhile",
                    "Nothing was removed; look again.",
                )

    def remove_batches(self, stream: Stream, before: int, most: int) -> int:
        """Remove what nothing needs any more of at most `most` batches before `before`; says of how many.

        It takes no lease: see `history.remove_batches`. Call it until it says 0.
        """
        with self._writing("remove_batches") as connection:
            return remove_batches(connection, stream, before, most)

    def _free_for(self, holder: str) -> Any:
        until, now = schema.heads.c.lease_until, self._now()
        of_a_clock_that_was_wrong = until > now + NO_LEASE_SECONDS
        is_over = until <= now
        mine = schema.heads.c.holder == holder
        return or_(schema.heads.c.holder.is_(None), mine, is_over, of_a_clock_that_was_wrong)


def lease_held(stream: Stream, holder: str | None) -> LeaseHeld:
    """What whoever finds the lease taken is told."""
    return LeaseHeld(
        f"{stream} is being worked on by {holder}",
        f"Wait for it; its lease ends by itself {LEASE_SECONDS:.0f} s after its last sign of life.",
    )


def dropped(stream: Stream) -> Halted:
    """What whoever wants to work on a dropped generation is told."""
    return Halted(
        f"{stream} was dropped (tidegate generation drop): its state and its progress are gone for good",
        "Write a number that was never used as `generation` into its pipeline file, or remove the file.",
    )


def _promoted_meanwhile(pipeline: str) -> Fenced:
    return Fenced(f"A generation of {pipeline} was promoted meanwhile", "Nothing was noted; look again.")


def _create_head(connection: Connection, stream: Stream) -> bool:
    """The stream's first row. Two first runs at once: the second one's insert waits, then is ignored.

    False where the row is there already.
    """
    row = {"pipeline": stream.pipeline, "generation": stream.generation, "epoch": 0, "seq": 0}
    try:
        with connection.begin_nested():
            connection.execute(
                insert(schema.heads).values(
                    row | {"offsets": {}, "topic_ids": {}, "epochs": {}, "clocks": {}}
                )
            )
    except IntegrityError:
        return False
    return True
