"""Write to the ledger on behalf of the holder of a lease. Every write checks the epoch of the lease."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.errors import Fenced, Halted, TidegateError
from tidegate.failpoints import failpoint
from tidegate.ledger import schema
from tidegate.ledger.erasure import (
    add_erasure,
    count_rewrites,
    end_erasure,
    forget_keys,
    point_to,
    remove_samples,
    require_no_erasure,
)
from tidegate.ledger.facts import (
    Erasure,
    Expiring,
    Failure,
    GivenUp,
    QualityResult,
    Resolution,
    Rewritten,
    SinkProgress,
)
from tidegate.ledger.history import give_up, remove_stream, send_again
from tidegate.ledger.promotions import Promotion
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Attempt, Clocks, Head, Lease, OffsetRange, Plan, PlannedSpec, Run, Stream
from tidegate.ledger.rows import (
    charge_in,
    columns_of,
    in_stream,
    lock_head,
    manifest_out,
    plan_out,
    promotions_of,
    record_in,
    rows_of,
    stream_key,
)

LEASE_SECONDS = 120.0
"""A lease ends this long after its last renewal. A longer one delays the next run after a killed process."""
MOST_TRIES = 10
"""The number of tries to validate a batch whose results are stored; older tries are deleted."""
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
        """Extend the lease: it ends LEASE_SECONDS from now."""
        with self._writing("renew") as connection:
            self._renew(connection, self.lease)

    def release(self) -> None:
        """End the lease, unless another process has taken it: others can take it at once."""
        with self._writing("release") as connection:
            self._set_head(connection, holder=None, lease_until=None)

    def add_plan(self, plan: Plan, resolution: Resolution | None = None) -> None:
        """Store the plan of a batch, and record that its run works on the batch.

        `resolution`: for a batch that replays records in quarantine, the resolution of these records. Raises
        Fenced also if the batch already has a plan.
        """
        with self._fenced("add_plan") as connection:
            self._went_through(connection, "plan")
            self._add_plan(connection, plan)
            if resolution is not None:
                self._add_resolution(connection, resolution)

    def _add_plan(self, connection: Connection, plan: Plan) -> None:
        require_no_erasure(self.stream, self._head(connection).erasure)
        self._keep_spec(connection, plan.spec)
        self._insert(connection, schema.plans, **plan_out(plan), planned_at=self._now())
        self._insert(connection, schema.runs, **columns_of(Run(plan.run_id, plan.seq)))

    def add_resolution(self, resolution: Resolution) -> None:
        """Record that records in quarantine are discarded."""
        with self._fenced("add_resolution") as connection:
            self._add_resolution(connection, resolution)

    def _add_resolution(self, connection: Connection, resolution: Resolution) -> None:
        row = columns_of(resolution) | {"decided_at": self._now()}
        self._insert(connection, schema.resolutions, **row)

    def add_run(self, run: Run, clocks: Clocks | None = None) -> None:
        """Record the result of a trigger that plans no batch.

        Args:
            clocks: the clocks of the head after a run that has no batch. The run's interval is then over,
                also for records that arrive later.
        """
        with self._fenced("add_run") as connection:
            self._went_through(connection, "plan")
            self._insert(connection, schema.runs, **columns_of(run))
            if clocks is not None:
                self._set_head(connection, clocks=clocks)

    def add_attempt(self, attempt: Attempt) -> None:
        """Record that an attempt's files are complete."""
        with self._fenced("add_attempt") as connection:
            self._add_attempt(connection, attempt)

    def _add_attempt(self, connection: Connection, attempt: Attempt) -> None:
        row = columns_of(attempt) | {"epoch": self.lease.epoch, "computed_at": self._now()}
        self._insert(connection, schema.attempts, **row)

    def replace_files(self, attempt: Attempt) -> None:
        """Let an attempt that is not decided have the manifest and the counts of `attempt`."""
        table = schema.attempts
        is_attempt = self._in_batch(table, attempt.seq, table.c.name == attempt.name)
        row = columns_of(attempt)
        values = {name: row[name] for name in (*manifest_out(attempt.manifest), "counts")}
        with self._fenced("replace_files") as connection:
            connection.execute(update(table).where(is_attempt).values(values))

    def set_validated(self, attempt: Attempt, passed: bool) -> None:
        """Record the result of the quality gate."""
        table = schema.attempts
        is_attempt = self._in_batch(table, attempt.seq, table.c.name == attempt.name)
        with self._fenced("set_validated") as connection:
            connection.execute(update(table).where(is_attempt).values(validated=passed))

    def commit(self, plan: Plan, attempt: Attempt) -> None:
        """Commit the batch: in one transaction the head moves from `seq - 1` to `seq`.

        Raises Fenced also if the head is another batch.
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
        heads, row = schema.heads, columns_of(promotion) | {"decided_at": self._now()}
        both = sorted((self.lease, replaced), key=lambda lease: lease.stream.generation)
        try:
            with self._writing("promote") as connection:
                # Rows are locked in one order, so that two promotions at once never deadlock.
                for lease in both:
                    self._renew(connection, lease)
                    # A batch that was to erase a key would otherwise be withheld from then on.
                    require_no_erasure(lease.stream, self._head_of(connection, lease.stream).erasure)
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

    def begin_from(self, batch: DecidedBatch, origin: Stream, origin_seq: int, rewrites: int) -> None:
        """Let a new generation begin with the state of another one.

        Args:
            batch: the first batch of the new generation: it has that state, and emits nothing.
            origin: the other generation.
            origin_seq: the batch after which its state is taken.
            rewrites: `LedgerReader.rewrites` of `origin` before its files were read.

        Raises Halted if an erasure of `origin` is at work, or has rewritten its files since.
        """
        with self._fenced("begin_from") as connection:
            # Its state may have an erased key, which the erasure would not look for here. Locked, so that an
            # erasure begins before this or after it: then it finds this generation.
            lock_head(connection, origin)
            require_no_erasure(origin, self._head_of(connection, origin).erasure)
            if count_rewrites(connection, origin) != rewrites:
                raise Halted(f"Keys of {origin} were erased meanwhile", "Run the command again.")
            self._set_head(connection, origin_generation=origin.generation, origin_seq=origin_seq)
            self._add_decided(connection, batch)

    def decide(self, batch: DecidedBatch) -> None:
        """Plan, compute and commit a batch in one transaction; its attempt already has the result.

        Raises Fenced also if the head is another batch.
        """
        with self._fenced("decide") as connection:
            self._add_decided(connection, batch)

    def begin_erasure(self, erasure: Erasure, batch: DecidedBatch) -> None:
        """Record an erasure, and decide the batch that tells sinks. No other batch is planned before it ends.

        Raises Halted if another erasure is not finished.
        """
        with self._fenced("begin_erasure") as connection:
            self._add_decided(connection, batch)
            add_erasure(connection, erasure, self._now())
            self._set_head(connection, erasure=erasure.number)

    def point_to_rewritten(self, number: int, rewritten: Rewritten) -> None:
        """Let readers find the files that erasure `number` has rewritten, in place of the former ones."""
        with self._fenced("point_to_rewritten") as connection:
            point_to(connection, self.stream, number, rewritten, self._now())

    def remove_samples(self, batches: Collection[int], redacted: Callable[[str], str]) -> None:
        """Remove what the ledger quotes of erased keys: see `erasure.remove_samples`."""
        with self._fenced("remove_samples") as connection:
            remove_samples(connection, self.stream, batches, redacted)

    def forget_keys(self, erasure: Erasure) -> None:
        """Complete the certificate of an erasure, and remove the keys themselves from the ledger."""
        with self._fenced("forget_keys") as connection:
            forget_keys(connection, erasure)

    def end_erasure(self, number: int) -> None:
        """Note that an erasure is finished. From then on batches are planned again."""
        with self._fenced("end_erasure") as connection:
            end_erasure(connection, self.stream, number, self._now())
            self._set_head(connection, erasure=None)

    def drop(self) -> None:
        """Remove the generation's rows, and end this lease: see `history.remove_stream`.

        Raises Halted if the generation publishes: it is in charge, or no generation was ever promoted; or if
        an erasure of it is not finished.
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
        plan, attempt = batch
        self._add_plan(connection, plan)
        self._add_attempt(connection, attempt)
        self._commit(connection, plan, attempt)

    def _commit(self, connection: Connection, plan: Plan, attempt: Attempt) -> None:
        head = self._head(connection)
        # One statement checks epoch and head, and moves the head: no other commit can come between.
        has_moved = self._set_head(
            connection,
            schema.heads.c.seq == plan.seq - 1,
            seq=plan.seq,
            offsets={**head.offsets, **plan.ends},
            topic_ids=plan.topic_ids,
            epochs=plan.epochs_after(head),
            clocks=plan.clocks_after,
        )
        if not has_moved:
            raise self._lost()
        files = manifest_out(attempt.manifest, "attempt")
        committed_at = self._instant(connection)
        with failpoint("ledger.commit.noted"):
            self._insert(connection, schema.commits, seq=plan.seq, committed_at=committed_at, **files)

    def drop_plan(self) -> int | None:
        """Remove the undecided batch, so that the next run plans anew; return its seq, None if there is none.

        This is safe while another process still computes the batch: the epoch of that process is stale, so it
        can never commit.
        """
        plans = schema.plans
        # The run goes, too: it can plan again under its id.
        results = (schema.attempts, schema.failures, schema.metrics, schema.quality, schema.runs)
        with self._fenced("drop_plan") as connection:
            seq = self._head(connection).seq + 1
            for table in (*results, schema.resolutions):
                connection.execute(delete(table).where(self._in_batch(table, seq)))
            dropped = connection.execute(delete(plans).where(self._in_batch(plans, seq)))
        return seq if dropped.rowcount else None

    def accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        """Move the head past lost ranges, one per partition, and record the gap among the runs."""
        ends = {lost.place: lost.end for lost in skipped}
        note = "accepted as lost: " + ", ".join(
            f"{lost.topic}[{lost.partition}] {lost.start}-{lost.end - 1}" for lost in skipped
        )
        with self._fenced("accept_gap") as connection:
            self._went_through(connection, "plan")  # the failure was the gap that is accepted now
            head = self._head(connection)
            # An epoch in the head belongs to the record before its offset, which is lost here.
            epochs = {at: epoch for at, epoch in head.epochs.items() if at not in ends}
            self._set_head(connection, offsets={**head.offsets, **ends}, epochs=epochs)
            run = Run(f"gap__epoch_{self.lease.epoch}", None, note)
            self._insert(connection, schema.runs, **columns_of(run))

    def give_up(self, seq: int) -> None:
        """Give up the state before that of batch `seq`, which has a snapshot: from now on nobody can read it.

        A computation that began with an older list of attempts cannot commit, because this lease raised the
        epoch.
        """
        table = schema.snapshots
        is_open = self._in_batch(table, seq, table.c.given_up_at.is_(None))
        with self._fenced("give_up") as connection:
            connection.execute(update(table).where(is_open).values(given_up_at=self._instant(connection)))

    def expire(self, kind: Expiring, seq: int) -> None:
        """Expire quarantine, or outboxes, of batches up to `seq`: from now on nobody begins to read them."""
        with self._fenced("expire") as connection:
            limit = {f"{kind}_expired_seq": seq, f"{kind}_expired_at": self._instant(connection)}
            self._set_head(connection, **limit)

    def add_publication(self, seq: int, sink: str, records: int) -> None:
        """Record that a sink has the whole batch. A second call for the same batch changes nothing."""
        table = schema.publications
        is_replaced = self._in_batch(table, seq, table.c.sink == sink)
        row = {"seq": seq, "sink": sink, "records": records, "published_at": self._now()}
        with self._fenced("add_publication") as connection:
            self._replace(connection, table, is_replaced, [row])
            # A batch without records leaves nothing in the sink, so nobody can search for it there.
            if records:
                self._raise_sink_head(connection, sink, seq)

    def send_again(self, sink: str, seq: int, identity: str | None = None) -> None:
        """Remove the record that a sink has batch `seq` and later ones, so that they are published again.

        Args:
            identity: the new identity of the sink; None: unchanged.
        """
        with self._fenced("send_again") as connection:
            send_again(connection, self.stream, sink, seq, identity)

    def end_sending_again(self) -> None:
        """Record that all batches before the head are published again."""
        with self._fenced("end_sending_again") as connection:
            self._set_head(connection, send_from=None)

    def give_up_publication(self, given_up: GivenUp) -> None:
        """Record that a sink never gets a decided batch, which from now on counts as published to it."""
        with self._fenced("give_up_publication") as connection:
            give_up(connection, self.stream, given_up, self._now())

    def set_sink_identity(self, sink: str, identity: str) -> None:
        """Store the identity of a sink at its first use. Raises Fenced also if it has one."""
        with self._fenced("set_sink_identity") as connection:
            self._insert(connection, schema.sinks, sink=sink, identity=identity)

    def set_sink_progress(self, sink: str, progress: SinkProgress) -> None:
        """Store what a sink without transactions of its own has acknowledged."""
        table = schema.sink_progress
        is_sink = and_(in_stream(table, self.stream), table.c.sink == sink)
        with self._fenced("set_sink_progress") as connection:
            self._replace(connection, table, is_sink, [{"sink": sink, **columns_of(progress)}])

    def set_metrics(self, seq: int, stage: str, values: Mapping[str, float]) -> None:
        """Store metrics of a batch's stage ("" for the whole batch), replacing those of an earlier try."""
        table = schema.metrics
        is_replaced = self._in_batch(table, seq, table.c.stage == stage, table.c.name.in_(values))
        rows = [{"seq": seq, "stage": stage, "name": name, "value": value} for name, value in values.items()]
        with self._fenced("set_metrics") as connection:
            self._replace(connection, table, is_replaced, rows)

    def add_quality(self, seq: int, results: Sequence[QualityResult]) -> None:
        """Store the results of one try to validate a batch; those of the newest `MOST_TRIES` tries stay."""
        table, checked = schema.quality, {"seq": seq, "checked_at": self._now()}
        oldest = max((result.try_number for result in results), default=0) - MOST_TRIES
        is_superseded = self._in_batch(table, seq, table.c.try_number <= oldest)
        with self._fenced("add_quality") as connection:
            self._replace(connection, table, is_superseded, [checked | vars(result) for result in results])

    def note_failure(self, seq: int, step: str, error: TidegateError) -> None:
        """Store the error that a step of a batch failed with, replacing an earlier one."""
        table, at_ms = schema.failures, int(self._now() * 1000)
        failure = Failure(self.stream, seq, step, type(error).__name__, error.what, error.fix, at_ms)
        with self._fenced("note_failure") as connection:
            self._replace(connection, table, self._in_batch(table, seq), [columns_of(failure)])

    def _instant(self, connection: Connection) -> float:
        """Return now, but never an instant before that of the stream's last commit.

        A machine whose clock is ahead of this one's may have made that commit. Time travel and cleaning
        compare instants, and rely on instants that do not go back.
        """
        commits = rows_of(schema.commits, self.stream).order_by(schema.commits.c.seq.desc()).limit(1)
        last = connection.execute(commits).first()
        return self._now() if last is None else max(last.committed_at, self._now())

    def remove_failure(self, step: str) -> None:
        """Remove the failures of a step that has succeeded, or whose cause a person has removed."""
        with self._fenced("remove_failure") as connection:
            self._went_through(connection, step)

    def _went_through(self, connection: Connection, step: str) -> None:
        table = schema.failures
        connection.execute(delete(table).where(in_stream(table, self.stream), table.c.step == step))

    def _keep_spec(self, connection: Connection, spec: PlannedSpec) -> None:
        """Store the pipeline that a batch is planned with, unless an earlier batch was planned with it."""
        table = schema.pipelines
        if connection.execute(rows_of(table, self.stream, table.c.hash == spec.hash)).first() is None:
            self._insert(connection, table, hash=spec.hash, **columns_of(spec))

    def _raise_sink_head(self, connection: Connection, sink: str, seq: int) -> None:
        """Store the newest batch of a sink. An older batch that is sent again does not lower it."""
        table = schema.sink_heads
        is_sink = and_(in_stream(table, self.stream), table.c.sink == sink)
        newest = connection.execute(select(table.c.seq).where(is_sink)).scalar() or 0
        if newest < seq:
            self._replace(connection, table, is_sink, [{"sink": sink, "seq": seq}])

    def _head(self, connection: Connection) -> Head:
        return self._head_of(connection, self.stream)

    def _head_of(self, connection: Connection, stream: Stream) -> Head:
        return record_in(Head, connection.execute(rows_of(schema.heads, stream)).one())

    def _set_head(self, connection: Connection, *conditions: Any, **columns: Any) -> bool:
        """Write columns of the head; return False if a newer epoch exists or a condition is not fulfilled."""
        query = update(schema.heads).where(_is_of(self.lease), *conditions).values(columns)
        return connection.execute(query).rowcount == 1

    def _renew(self, connection: Connection, lease: Lease) -> None:
        """Renew a lease, which locks the head's row until the end of the transaction."""
        until = {"lease_until": self._now() + LEASE_SECONDS}
        if connection.execute(update(schema.heads).where(_is_of(lease)).values(until)).rowcount != 1:
            raise self._lost()

    def _in_batch(self, table: Table, seq: int, *conditions: Any) -> Any:
        return and_(in_stream(table, self.stream), table.c.seq == seq, *conditions)

    def _insert(self, connection: Connection, table: Table, **columns: Any) -> None:
        connection.execute(insert(table).values(columns | stream_key(self.stream)))

    def _replace(self, connection: Connection, table: Table, where: Any, rows: list[dict[str, Any]]) -> None:
        connection.execute(delete(table).where(where))
        if rows:
            connection.execute(insert(table), [row | stream_key(self.stream) for row in rows])

    @contextmanager
    def _fenced(self, name: str) -> Iterator[Connection]:
        """Open a transaction that holds the head's row, so that no newer epoch can begin before it ends.

        It also renews the lease. Raises Fenced if a newer epoch exists, or if a row exists that only another
        process can have written.
        """
        try:
            with self._writing(name) as connection:
                self._renew(connection, self.lease)
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
