"""What the holder of a lease may write. Every write names the epoch it was made under."""

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
from tidegate.ledger.repairs import give_up, remove_stream, send_again
from tidegate.ledger.rows import (
    attempt_out,
    charge_in,
    head_in,
    manifest_out,
    of,
    partitions_out,
    plan_out,
    promotions_of,
    resolution_out,
    spec_out,
    storable,
)

LEASE_SECONDS = 120.0
DecidedBatch: TypeAlias = tuple[Plan, Attempt]
"""A batch that was computed by other means than its plan: what its attempt has is its result."""


class LeasedLedger(LedgerReader):
    """What the holder of a lease may write. Every method raises Fenced when a newer epoch exists."""

    def __init__(self, engine: Engine, now: Callable[[], float], lease: Lease) -> None:
        super().__init__(engine, now)
        self.lease = lease
        self.stream = lease.stream

    def renew(self) -> None:
        """Show life: the lease ends LEASE_SECONDS from now."""
        with self._writing("renew") as connection:
            until = {"lease_until": self._now() + LEASE_SECONDS}
            held = connection.execute(update(schema.heads).where(self._is_current()).values(until))
            if held.rowcount != 1:
                raise self._lost()

    def release(self) -> None:
        """Let others in at once. Silent when somebody already is."""
        with self._writing("release") as connection:
            connection.execute(
                update(schema.heads).where(self._is_current()).values(holder=None, lease_until=None)
            )

    def add_plan(self, plan: Plan, resolution: Resolution | None = None) -> None:
        """Fix a batch, and that its run works on it. `resolution`: of one that replays, what it resolves."""
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
        """Note that records in quarantine are discarded."""
        with self._fenced("add_resolution") as connection:
            self._resolve(connection, resolution)

    def _resolve(self, connection: Connection, resolution: Resolution) -> None:
        row = self._key(**resolution_out(resolution), decided_at=self._now())
        connection.execute(insert(schema.resolutions).values(row))

    def add_run(self, run: Run, clocks: Clocks | None = None) -> None:
        """Note what a trigger came to, when that is not a batch of its own.

        `clocks`: of a run that has no batch, what the head's are after it. Its interval is over for later
        records, too.
        """
        with self._fenced("add_run") as connection:
            self._went_through(connection, "plan")
            connection.execute(insert(schema.runs).values(self._key(**asdict(run))))
            if clocks is not None:
                row = {"clocks": partitions_out(clocks)}
                connection.execute(update(schema.heads).where(self._is_current()).values(row))

    def add_attempt(self, attempt: Attempt) -> None:
        """Note that an attempt's files are complete."""
        row = self._key(**attempt_out(attempt), epoch=self.lease.epoch, computed_at=self._now())
        with self._fenced("add_attempt") as connection:
            connection.execute(insert(schema.attempts).values(row))

    def set_validated(self, attempt: Attempt, passed: bool) -> None:
        """Note what the quality gate said."""
        table = schema.attempts
        with self._fenced("set_validated") as connection:
            connection.execute(
                update(table)
                .where(self._row(table, attempt.seq), table.c.name == attempt.name)
                .values(validated=passed)
            )

    def commit(self, plan: Plan, attempt: Attempt) -> None:
        """Decide the batch: the head moves from `seq - 1` to `seq`; Fenced if a newer lease exists."""
        with self._writing("commit") as connection:
            self._commit(connection, plan, attempt)

    def promote(self, promotion: Promotion, replaced: Lease, net: DecidedBatch | None = None) -> None:
        """Put this stream's generation in charge of its pipeline, in the place of that of `replaced`.

        One transaction. It holds only while both leases do, the replaced generation's head is the one that
        the promotion names, and no other promotion has its number; else Fenced. `net`: the batch with what
        changes for consumers, which is planned, computed and committed in the same transaction.
        """
        heads, row = schema.heads, vars(promotion) | {"decided_at": self._now()}
        both = sorted((self.lease, replaced), key=lambda lease: lease.stream.generation)
        try:
            with self._writing("promote") as connection:
                for lease in both:  # always in one order, so that two promotions never wait for one another
                    until = {"lease_until": self._now() + LEASE_SECONDS}
                    if connection.execute(update(heads).where(_is_of(lease)).values(until)).rowcount != 1:
                        raise self._lost()
                ended = select(heads.c.seq).where(of(heads, replaced.stream))
                if connection.execute(ended).scalar_one() != promotion.replaced_seq:
                    raise self._lost()
                if net is not None:
                    self._add_decided(connection, net)
                with failpoint("ledger.promote.noted"):
                    connection.execute(insert(schema.promotions).values(row))
        except IntegrityError as error:
            raise self._lost() from error

    def begin_from(self, batch: DecidedBatch, origin: Stream, origin_seq: int) -> None:
        """Let a generation that has no batch yet begin with another's state after a batch of it: `batch`, the
        first one, has that state, and emits nothing.
        """
        begun = {"origin_generation": origin.generation, "origin_seq": origin_seq}
        with self._fenced("begin_from") as connection:
            connection.execute(update(schema.heads).where(self._is_current()).values(begun))
            self._add_decided(connection, batch)

    def decide(self, batch: DecidedBatch) -> None:
        """Plan, compute and commit a batch at once, which nothing is computed of. Fenced as `commit`."""
        with self._fenced("decide") as connection:
            self._add_decided(connection, batch)

    def drop(self) -> None:
        """Remove the generation's rows, and end this lease: see `repairs.remove_stream`.

        Raises Halted where it is in charge.
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
        """A batch from plan to commit at once, which nothing is computed of."""
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
        """Forget the undecided batch, so that the next run plans anew. Returns its seq, or None.

        Safe beside a try that still computes it: that try's epoch is stale, so it can never commit.
        """
        with self._fenced("drop_plan") as connection:
            head = connection.execute(select(schema.heads.c.seq).where(self._is_current())).scalar_one()
            for table in (
                *(schema.attempts, schema.failures, schema.metrics, schema.quality, schema.runs),
                schema.resolutions,
            ):
                connection.execute(delete(table).where(self._row(table, head + 1)))
            dropped = connection.execute(delete(schema.plans).where(self._row(schema.plans, head + 1)))
        return head + 1 if dropped.rowcount else None

    def accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        """Move the head past offsets that are lost, and keep a record of it among the runs."""
        with self._fenced("accept_gap") as connection:
            self._went_through(connection, "plan")  # it failed of what is accepted now
            table = schema.heads
            head, ends = self._head(connection), {(each.topic, each.partition): each.end for each in skipped}
            known = {at: epoch for at, epoch in head.epochs.items() if at not in ends}  # of offsets before
            moved = {"offsets": {**head.offsets, **ends}, "epochs": known}
            connection.execute(
                update(table)
                .where(self._is_current())
                .values({name: partitions_out(of_partitions) for name, of_partitions in moved.items()})
            )
            note = "accepted as lost: " + ", ".join(
                f"{each.topic}[{each.partition}] {each.start}-{each.end - 1}" for each in skipped
            )
            run_id = f"gap__epoch_{self.lease.epoch}"
            connection.execute(insert(schema.runs).values(self._key(run_id=run_id, seq=None, note=note)))

    def give_up(self, seq: int) -> None:
        """From now on no state before that of batch `seq`, which has a snapshot, can be read.

        A computation that began on an older list of attempts is fenced, for this lease raised the epoch.
        """
        table = schema.snapshots
        mine = and_(self._row(table, seq), table.c.given_up_at.is_(None))
        with self._fenced("give_up") as connection:
            connection.execute(update(table).where(mine).values(given_up_at=self._instant(connection)))

    def expire_quarantine(self, seq: int) -> None:
        """From now on nobody begins to read what batches up to `seq` have put into quarantine."""
        with self._fenced("expire_quarantine") as connection:
            row = {"expired_seq": seq, "expired_at": self._instant(connection)}
            connection.execute(update(schema.heads).where(self._is_current()).values(row))

    def add_publication(self, seq: int, sink: str, records: int) -> None:
        """Note that a sink has the whole of a batch. Noting it twice is harmless."""
        table = schema.publications
        with self._fenced("add_publication") as connection:
            row = self._key(seq=seq, sink=sink, records=records, published_at=self._now())
            _replace(connection, table, and_(self._row(table, seq), table.c.sink == sink), [row])
            if records:
                self._raise_sink_head(connection, sink, seq)

    def send_again(self, sink: str, seq: int, identity: str | None = None) -> None:
        """Let a sink lack all batches from batch `seq` on, so that they are published again.

        `identity`: what the sink is from now on; None: what it was.
        """
        with self._fenced("send_again") as connection:
            send_again(connection, self.stream, sink, seq, identity)

    def end_sending_again(self) -> None:
        """Note that all batches before the head are out again."""
        with self._fenced("end_sending_again") as connection:
            connection.execute(update(schema.heads).where(self._is_current()).values(send_from=None))

    def give_up_publication(self, given_up: GivenUp) -> None:
        """Record what a sink never gets of a decided batch, which counts as published to it."""
        with self._fenced("give_up_publication") as connection:
            give_up(connection, self.stream, given_up, self._now())

    def set_sink_identity(self, sink: str, identity: str) -> None:
        """Remember what a sink is, at its first use."""
        with self._fenced("set_sink_identity") as connection:
            connection.execute(insert(schema.sinks).values(self._key(sink=sink, identity=identity)))

    def set_metrics(self, seq: int, stage: str, values: Mapping[str, float]) -> None:
        """Write metrics of a batch's stage, over those of an earlier try."""
        table = schema.metrics
        mine = and_(self._row(table, seq), table.c.stage == stage, table.c.name.in_(values))
        rows = [self._key(seq=seq, stage=stage, name=name, value=value) for name, value in values.items()]
        with self._fenced("set_metrics") as connection:
            _replace(connection, table, mine, rows)

    def add_quality(self, seq: int, results: Sequence[QualityResult]) -> None:
        """Keep what quality suites have found in one try to validate a batch."""
        with self._fenced("add_quality") as connection:
            add_quality(connection, self.stream, seq, results, self._now())

    def note_failure(self, seq: int, step: str, error: TidegateError) -> None:
        """Remember what a step of a batch failed of, in place of what was noted before."""
        table = schema.failures
        row = self._key(seq=seq, step=step, error=type(error).__name__, at_ms=int(self._now() * 1000))
        row |= {"what": storable(error.what), "fix": storable(error.fix)}
        with self._fenced("note_failure") as connection:
            _replace(connection, table, self._row(table, seq), [row])

    def _instant(self, connection: Connection) -> float:
        """Return now, but never an instant before that of the stream's last commit.

        Another machine, whose clock is ahead of this one's, may have made that commit. Time travel and the
        ages that cleaning waits for rely on instants that do not go back.
        """
        table = schema.commits
        newest = select(table.c.committed_at).where(of(table, self.stream)).order_by(table.c.seq.desc())
        last: float | None = connection.execute(newest.limit(1)).scalar()
        return self._now() if last is None else max(last, self._now())

    def remove_failure(self, step: str) -> None:
        """Remove the notes of a step that has gone through, or that somebody has cured."""
        with self._fenced("remove_failure") as connection:
            self._went_through(connection, step)

    def _went_through(self, connection: Connection, step: str) -> None:
        table = schema.failures
        connection.execute(delete(table).where(of(table, self.stream), table.c.step == step))

    def _keep_spec(self, connection: Connection, spec: PlannedSpec) -> None:
        """Write what a batch is planned with, unless an earlier one was planned with the same."""
        table = schema.pipelines
        same = and_(of(table, self.stream), table.c.hash == spec.hash)
        if connection.execute(select(table.c.hash).where(same)).first() is None:
            connection.execute(insert(table).values(self._key(**spec_out(spec))))

    def _raise_sink_head(self, connection: Connection, sink: str, seq: int) -> None:
        """An older batch, which is sent again, is not the newest."""
        table = schema.sink_heads
        this = and_(of(table, self.stream), table.c.sink == sink)
        newest = connection.execute(select(table.c.seq).where(this)).scalar()
        if newest is None:
            connection.execute(insert(table).values(self._key(sink=sink, seq=seq)))
        elif newest < seq:
            connection.execute(update(table).where(this).values(seq=seq))

    def _head(self, connection: Connection) -> Head:
        table = schema.heads
        return head_in(self.stream, connection.execute(select(table).where(of(table, self.stream))).one())

    def _row(self, table: Table, seq: int) -> Any:
        return and_(of(table, self.stream), table.c.seq == seq)

    def _key(self, **columns: Any) -> dict[str, Any]:
        return {"pipeline": self.stream.pipeline, "generation": self.stream.generation, **columns}

    def _is_current(self) -> Any:
        return _is_of(self.lease)

    @contextmanager
    def _fenced(self, name: str) -> Iterator[Connection]:
        """A transaction that holds the head's row, so that no newer epoch can begin before it ends."""
        try:
            with self._writing(name) as connection:
                held = connection.execute(
                    update(schema.heads)
                    .where(self._is_current())
                    .values(lease_until=self._now() + LEASE_SECONDS)
                )
                if held.rowcount != 1:
                    raise self._lost()
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
    """The condition that a head's row has no newer epoch than a lease."""
    return and_(of(schema.heads, lease.stream), schema.heads.c.epoch == lease.epoch)


def _replace(connection: Connection, table: Table, where: Any, rows: list[dict[str, Any]]) -> None:
    connection.execute(delete(table).where(where))
    if rows:
        connection.execute(insert(table), rows)
