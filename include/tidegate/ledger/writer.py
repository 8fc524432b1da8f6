"""Write to the ledger on behalf of the holder of a lease. Every write checks the epoch of the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.errors import Fenced, Halted, TidegateError
from tidegate.failpoints import failpoint
from tidegate.ledger import schema
from tidegate.ledger.history import give_up, remove_stream, send_again
from tidegate.ledger.promotions import Promotion
from tidegate.ledger.quality import QualityResult, add_quality
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import (
    Attempt,
    Clocks,
    GivenUp,
    Head,
    Lease,
    OffsetRange,
    Plan,
    PlannedSpec,
    Resolution,
    Run,
    Stream,
)
from tidegate.ledger.rows import (
    attempt_out,
    charge_in,
    head_in,
    in_stream,
    manifest_out,
    partitions_out,
    plan_out,
    promotions_of,
    resolution_out,
    spec_out,
    storable,
)

LEASE_SECONDS = 120.0
"""A lease ends this long after its last renewal. A longer one delays the next run after a killed process."""
DecidedBatch: TypeAlias = tuple[Plan, Attempt]
"""A batch whose result is not computed from its plan: the attempt already has the result."""


class LeasedLedger(LedgerReader):
    """A ledger that can write for one stream. Every method raises Fenced if a newer epoch exists, and writes
    nothing.

    Example:
        leased = ledger.acquire(stream, holder=run_id)
        leased.add_plan(plan)
        leased.add_attempt(attempt)
        leased.commit(plan, attempt)
        leased.release()
    """

    def __init__(self, engine: Engine, now: Callable[[], float], lease: Lease) -> None:
        super().__init__(engine, now)
        self.lease = lease
        self.stream = lease.stream

    def renew(self) -> None:
        """Extend the lease: it ends LEASE_SECONDS from now.

        Raises Fenced if a newer process has taken the lease.
        """
        with self._writing("renew") as connection:
            until = {"lease_until": self._now() + LEASE_SECONDS}
            renewed = connection.execute(update(schema.heads).where(self._is_current()).values(until))
            if renewed.rowcount != 1:
                raise self._lost()

    def release(self) -> None:
        """End the lease, so that other processes can take it at once. No effect if another process has taken
        it.
        """
        with self._writing("release") as connection:
            connection.execute(
                update(schema.heads).where(self._is_current()).values(holder=None, lease_until=None)
            )

    def add_plan(self, plan: Plan, resolution: Resolution | None = None) -> None:
        """Store the plan of a batch, and record that its run works on the batch.

        `resolution`: for a batch that replays records in quarantine, the resolution of these records. Raises
        Fenced if a newer epoch exists, or if the batch already has a plan.
        """
        row = self._key(**plan_out(plan), planned_at=self._now())
        with self._fenced("add_plan") as connection:
            self._keep_spec(connection, plan.spec)
            self._went_through(connection, "plan")
            connection.execute(insert(schema.plans).values(row))
            connection.execute(
                insert(schema.runs).values(self._key(run_id=plan.run_id, seq=plan.seq, note=""))
            )
            if resolution is not None:
                self._resolve(connection, resolution)

    def add_resolution(self, resolution: Resolution) -> None:
        """Record that records in quarantine are discarded. Raises Fenced if a newer epoch exists."""
        with self._fenced("add_resolution") as connection:
            self._resolve(connection, resolution)

    def _resolve(self, connection: Connection, resolution: Resolution) -> None:
        row = self._key(**resolution_out(resolution), decided_at=self._now())
        connection.execute(insert(schema.resolutions).values(row))

    def add_run(self, run: Run, clocks: Clocks | None = None) -> None:
        """Record the result of a trigger that plans no batch. Raises Fenced if a newer epoch exists.

        `clocks`: the clocks of the head after a run that has no batch. The run's interval is then over, also
        for records that arrive later.
        """
        with self._fenced("add_run") as connection:
            self._went_through(connection, "plan")
            connection.execute(insert(schema.runs).values(self._key(**asdict(run))))
            if clocks is not None:
                row = {"clocks": partitions_out(clocks)}
                connection.execute(update(schema.heads).where(self._is_current()).values(row))

    def add_attempt(self, attempt: Attempt) -> None:
        """Record that an attempt's files are complete. Raises Fenced if a newer epoch exists."""
        row = self._key(**attempt_out(attempt), epoch=self.lease.epoch, computed_at=self._now())
        with self._fenced("add_attempt") as connection:
            connection.execute(insert(schema.attempts).values(row))

    def set_validated(self, attempt: Attempt, passed: bool) -> None:
        """Record the result of the quality gate. Raises Fenced if a newer epoch exists."""
        table = schema.attempts
        with self._fenced("set_validated") as connection:
            connection.execute(
                update(table)
                .where(self._row(table, attempt.seq), table.c.name == attempt.name)
                .values(validated=passed)
            )

    def commit(self, plan: Plan, attempt: Attempt) -> None:
        """Commit the batch: in one transaction the head moves from `seq - 1` to `seq`.

        Raises Fenced if a newer epoch exists, or if the head is another batch.
        """
        with self._writing("commit") as connection:
            self._commit(connection, plan, attempt)

    def promote(self, promotion: Promotion, replaced: Lease, net: DecidedBatch | None = None) -> None:
        """Put this stream's generation in charge of its pipeline, in place of the generation of `replaced`.

        `net` is the batch with the net differences for consumers; it is planned, computed and committed in
        the same transaction. Raises Fenced, and writes nothing, if one of the two leases is stale, if the
        replaced generation's head is not `promotion.replaced_seq`, or if another promotion has the same
        number.
        """
        heads, row = schema.heads, vars(promotion) | {"decided_at": self._now()}
        both = sorted((self.lease, replaced), key=lambda lease: lease.stream.generation)
        try:
            with self._writing("promote") as connection:
                # Rows are locked in one order, so that two promotions at once never deadlock.
                for lease in both:
                    until = {"lease_until": self._now() + LEASE_SECONDS}
                    if connection.execute(update(heads).where(_is_of(lease)).values(until)).rowcount != 1:
                        raise self._lost()
                # Consumers get its batches up to this one: a batch that was committed since would be lost.
                ended = select(heads.c.seq).where(in_stream(heads, replaced.stream))
                if connection.execute(ended).scalar_one() != promotion.replaced_seq:
                    raise self._lost()
                if net is not None:
                    self._add_decided(connection, net)
                with failpoint("ledger.promote.noted"):
                    connection.execute(insert(schema.promotions).values(row))
        except IntegrityError as error:
            raise self._lost() from error

    def begin_from(self, batch: DecidedBatch, origin: Stream, origin_seq: int) -> None:
        """Let a new generation begin with another generation's state, the one after batch `origin_seq` of
        `origin`.

        `batch` is the first batch of the new generation: it has that state, and emits nothing. Raises Fenced
        if a newer epoch exists.
        """
        begun = {"origin_generation": origin.generation, "origin_seq": origin_seq}
        with self._fenced("begin_from") as connection:
            connection.execute(update(schema.heads).where(self._is_current()).values(begun))
            self._add_decided(connection, batch)

    def decide(self, batch: DecidedBatch) -> None:
        """Plan, compute and commit a batch in one transaction; its attempt already has the result.

        Raises Fenced if a newer epoch exists, or if the head is another batch.
        """
        with self._fenced("decide") as connection:
            self._add_decided(connection, batch)

    def drop(self) -> None:
        """Remove the generation's rows, and end this lease: see `repairs.remove_stream`.

        Raises Halted if the generation publishes: it is in charge, or no generation was ever promoted. Raises
        Fenced if a newer epoch exists.
        """
        with self._fenced("drop") as connection:
            charge = charge_in(connection.execute(promotions_of(self.stream.pipeline)))
            if charge.generation in (None, self.stream.generation):
                raise Halted(
                    f"{self.stream} publishes, so it is not dropped",
                    "Promote another generation first: `tidegate generation list` shows them all.",
                )
            remove_stream(connection, self.lease, self._now())

    def _add_decided(self, connection: Connection, batch: DecidedBatch) -> None:
        """Write plan, run, attempt and commit of a batch whose attempt already has the result."""
        plan, attempt = batch
        self._keep_spec(connection, plan.spec)
        planned = self._key(**plan_out(plan), planned_at=self._now())
        connection.execute(insert(schema.plans).values(planned))
        connection.execute(insert(schema.runs).values(self._key(run_id=plan.run_id, seq=plan.seq, note="")))
        computed = self._key(**attempt_out(attempt), epoch=self.lease.epoch, computed_at=self._now())
        connection.execute(insert(schema.attempts).values(computed))
        self._commit(connection, plan, attempt)

    def _commit(self, connection: Connection, plan: Plan, attempt: Attempt) -> None:
        table, before = schema.heads, self._head(connection)
        # One statement checks epoch and head, and moves the head: no other commit can come between.
        moved = connection.execute(
            update(table)
            .where(self._is_current(), table.c.seq == plan.seq - 1)
            .values(
                seq=plan.seq,
                offsets=partitions_out({**before.offsets, **plan.ends}),
                topic_ids=dict(plan.topic_ids),
                epochs=partitions_out(plan.epochs_after(before)),
                clocks=partitions_out(plan.clocks_after),
            )
        )
        if moved.rowcount != 1:
            raise self._lost()
        files = manifest_out(attempt.manifest, "attempt")
        decided = self._key(seq=plan.seq, committed_at=self._instant(connection), **files)
        with failpoint("ledger.commit.noted"):
            connection.execute(insert(schema.commits).values(decided))

    def drop_plan(self) -> int | None:
        """Remove the undecided batch, so that the next run plans anew. Returns its seq, or None if there was
        none.

        This is safe while another process still computes the batch: the epoch of that process is stale, so it
        can never commit. Raises Fenced if a newer epoch exists.
        """
        with self._fenced("drop_plan") as connection:
            head = connection.execute(select(schema.heads.c.seq).where(self._is_current())).scalar_one()
            for table in (
                # The run goes, too: it can plan again under its id.
                *(schema.attempts, schema.failures, schema.metrics, schema.quality, schema.runs),
                schema.resolutions,
            ):
                connection.execute(delete(table).where(self._row(table, head + 1)))
            dropped = connection.execute(delete(schema.plans).where(self._row(schema.plans, head + 1)))
        return head + 1 if dropped.rowcount else None

    def accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        """Move the head past offsets that are lost, and record the gap among the runs.

        `skipped` are the lost ranges, one per partition. Raises Fenced if a newer epoch exists.
        """
        with self._fenced("accept_gap") as connection:
            self._went_through(connection, "plan")  # the failure was the gap that is accepted now
            table = schema.heads
            head = self._head(connection)
            ends = {(lost.topic, lost.partition): lost.end for lost in skipped}
            # An epoch in the head belongs to the record before its offset, which is lost here.
            epochs = {at: epoch for at, epoch in head.epochs.items() if at not in ends}
            moved = {"offsets": {**head.offsets, **ends}, "epochs": epochs}
            connection.execute(
                update(table)
                .where(self._is_current())
                .values({name: partitions_out(numbers) for name, numbers in moved.items()})
            )
            note = "accepted as lost: " + ", ".join(
                f"{lost.topic}[{lost.partition}] {lost.start}-{lost.end - 1}" for lost in skipped
            )
            run_id = f"gap__epoch_{self.lease.epoch}"
            connection.execute(insert(schema.runs).values(self._key(run_id=run_id, seq=None, note=note)))

    def give_up(self, seq: int) -> None:
        """Give up the state before that of batch `seq`, which has a snapshot: from now on nobody can read it.

        A computation that began with an older list of attempts cannot commit, because this lease raised the
        epoch. Raises Fenced if a newer epoch exists.
        """
        table = schema.snapshots
        is_open = and_(self._row(table, seq), table.c.given_up_at.is_(None))
        with self._fenced("give_up") as connection:
            connection.execute(update(table).where(is_open).values(given_up_at=self._instant(connection)))

    def expire_quarantine(self, seq: int) -> None:
        """Expire the quarantine of batches up to `seq`: from now on nobody begins to read it.

        Raises Fenced if a newer epoch exists.
        """
        with self._fenced("expire_quarantine") as connection:
            row = {"expired_seq": seq, "expired_at": self._instant(connection)}
            connection.execute(update(schema.heads).where(self._is_current()).values(row))

    def add_publication(self, seq: int, sink: str, records: int) -> None:
        """Record that a sink has the whole batch. A second call for the same batch changes nothing.

        Raises Fenced if a newer epoch exists.
        """
        table = schema.publications
        with self._fenced("add_publication") as connection:
            row = self._key(seq=seq, sink=sink, records=records, published_at=self._now())
            _replace(connection, table, and_(self._row(table, seq), table.c.sink == sink), [row])
            # A batch without records leaves nothing in the sink, so nobody can search for it there.
            if records:
                self._raise_sink_head(connection, sink, seq)

    def send_again(self, sink: str, seq: int, identity: str | None = None) -> None:
        """Remove the record that a sink has batch `seq` and later ones, so that they are published again.

        `identity`: the new identity of the sink; None: unchanged. Raises Fenced if a newer epoch exists.
        """
        with self._fenced("send_again") as connection:
            send_again(connection, self.stream, sink, seq, identity)

    def end_sending_again(self) -> None:
        """Record that all batches before the head are published again.

        Raises Fenced if a newer epoch exists.
        """
        with self._fenced("end_sending_again") as connection:
            connection.execute(update(schema.heads).where(self._is_current()).values(send_from=None))

    def give_up_publication(self, given_up: GivenUp) -> None:
        """Record that a sink never gets a decided batch, which from now on counts as published to it.

        Raises Fenced if a newer epoch exists.
        """
        with self._fenced("give_up_publication") as connection:
            give_up(connection, self.stream, given_up, self._now())

    def set_sink_identity(self, sink: str, identity: str) -> None:
        """Store the identity of a sink at its first use. Raises Fenced if a newer epoch exists, or if it has
        one.
        """
        with self._fenced("set_sink_identity") as connection:
            connection.execute(insert(schema.sinks).values(self._key(sink=sink, identity=identity)))

    def set_metrics(self, seq: int, stage: str, values: Mapping[str, float]) -> None:
        """Store metrics of a batch's stage ("" for the whole batch), replacing those of an earlier try.

        Raises Fenced if a newer epoch exists.
        """
        table = schema.metrics
        is_replaced = and_(self._row(table, seq), table.c.stage == stage, table.c.name.in_(values))
        rows = [self._key(seq=seq, stage=stage, name=name, value=value) for name, value in values.items()]
        with self._fenced("set_metrics") as connection:
            _replace(connection, table, is_replaced, rows)

    def add_quality(self, seq: int, results: Sequence[QualityResult]) -> None:
        """Store the results of quality suites in one try to validate a batch. Raises Fenced if a newer epoch
        exists.
        """
        with self._fenced("add_quality") as connection:
            add_quality(connection, self.stream, seq, results, self._now())

    def note_failure(self, seq: int, step: str, error: TidegateError) -> None:
        """Store the error that a step of a batch failed with, replacing an earlier one.

        Raises Fenced if a newer epoch exists.
        """
        table = schema.failures
        row = self._key(seq=seq, step=step, error=type(error).__name__, at_ms=int(self._now() * 1000))
        row |= {"what": storable(error.what), "fix": storable(error.fix)}
        with self._fenced("note_failure") as connection:
            _replace(connection, table, self._row(table, seq), [row])

    def _instant(self, connection: Connection) -> float:
        """Return now, but never an instant before that of the stream's last commit.

        A machine whose clock is ahead of this one's may have made that commit. Time travel and cleaning
        compare instants, and rely on instants that do not go back.
        """
        table = schema.commits
        newest = (
            select(table.c.committed_at).where(in_stream(table, self.stream)).order_by(table.c.seq.desc())
        )
        last: float | None = connection.execute(newest.limit(1)).scalar()
        return self._now() if last is None else max(last, self._now())

    def remove_failure(self, step: str) -> None:
        """Remove the failures of a step that has succeeded, or whose cause a person has removed.

        Raises Fenced if a newer epoch exists.
        """
        with self._fenced("remove_failure") as connection:
            self._went_through(connection, step)

    def _went_through(self, connection: Connection, step: str) -> None:
        table = schema.failures
        connection.execute(delete(table).where(in_stream(table, self.stream), table.c.step == step))

    def _keep_spec(self, connection: Connection, spec: PlannedSpec) -> None:
        """Store the pipeline that a batch is planned with, unless an earlier batch was planned with the same
        one.
        """
        table = schema.pipelines
        same = and_(in_stream(table, self.stream), table.c.hash == spec.hash)
        if connection.execute(select(table.c.hash).where(same)).first() is None:
            connection.execute(insert(table).values(self._key(**spec_out(spec))))

    def _raise_sink_head(self, connection: Connection, sink: str, seq: int) -> None:
        """Store the newest batch of a sink. An older batch that is sent again does not lower it."""
        table = schema.sink_heads
        this = and_(in_stream(table, self.stream), table.c.sink == sink)
        newest = connection.execute(select(table.c.seq).where(this)).scalar()
        if newest is None:
            connection.execute(insert(table).values(self._key(sink=sink, seq=seq)))
        elif newest < seq:
            connection.execute(update(table).where(this).values(seq=seq))

    def _head(self, connection: Connection) -> Head:
        table = schema.heads
        return head_in(
            self.stream, connection.execute(select(table).where(in_stream(table, self.stream))).one()
        )

    def _row(self, table: Table, seq: int) -> Any:
        return and_(in_stream(table, self.stream), table.c.seq == seq)

    def _key(self, **columns: Any) -> dict[str, Any]:
        return {"pipeline": self.stream.pipeline, "generation": self.stream.generation, **columns}

    def _is_current(self) -> Any:
        return _is_of(self.lease)

    @contextmanager
    def _fenced(self, name: str) -> Iterator[Connection]:
        """Open a transaction that holds the head's row, so that no newer epoch can begin before it ends.

        It also renews the lease. Raises Fenced if a newer epoch exists, or if a row exists that only another
        process can have written.
        """
        try:
            with self._writing(name) as connection:
                renewed = connection.execute(
                    update(schema.heads)
                    .where(self._is_current())
                    .values(lease_until=self._now() + LEASE_SECONDS)
                )
                if renewed.rowcount != 1:
                    raise self._lost()
                # A write needs the lease, so the start of the step, which takes it, has succeeded.
                self._went_through(connection, "start")
                yield connection
        except IntegrityError as error:
            raise self._lost() from error

    def _lost(self) -> Fenced:
        lease = self.lease
        return Fenced(
            f"{self.stream} was taken over from {lease.holder}, epoch {lease.epoch}, by a newer try",
            "Nothing was written; the newer try goes on.",
        )


def _is_of(lease: Lease) -> Any:
    """Return the SQL condition that the epoch of a head's row is that of the lease."""
    return and_(in_stream(schema.heads, lease.stream), schema.heads.c.epoch == lease.epoch)


def _replace(connection: Connection, table: Table, where: Any, rows: list[dict[str, Any]]) -> None:
    connection.execute(delete(table).where(where))
    if rows:
        connection.execute(insert(table), rows)
