"""The ledger: plans, heads, leases and progress in SQL. Every write names the epoch it was made under.

`Ledger` is what only reads needs; `LeasedLedger` is what the holder of a lease may do besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, Row, Table, and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.errors import Fenced, LeaseHeld
from tidegate.failpoints import failpoint
from tidegate.ledger import schema
from tidegate.ledger.database import answering, open_database
from tidegate.ledger.records import Attempt, Head, Lease, OffsetRange, Plan, Run, Stream

LEASE_SECONDS = 120.0


class Ledger:
    """Reads, and the way to a lease. `now` gives epoch seconds; it only times leases and timestamps rows."""

    def __init__(self, engine: Engine, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._name = engine.url.render_as_string(hide_password=True)
        self._now = now

    @classmethod
    def open(cls, url: str) -> Ledger:
        """The ledger at a SQLAlchemy URL, created or migrated when needed."""
        return cls(open_database(url))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with answering(self._name), self._engine.begin() as connection:
            yield connection

    def streams(self) -> list[Stream]:
        """Every pipeline and generation that was ever planned."""
        with self._transaction() as connection:
            rows = connection.execute(
                select(schema.heads.c.pipeline, schema.heads.c.generation).order_by(
                    schema.heads.c.pipeline, schema.heads.c.generation
                )
            )
            return [Stream(row.pipeline, row.generation) for row in rows]

    def head(self, stream: Stream) -> Head:
        """The last committed batch."""
        with self._transaction() as connection:
            row = connection.execute(select(schema.heads).where(_of(schema.heads, stream))).first()
        if row is None:
            return Head(stream)
        return Head(stream, row.seq, _offsets_in(row.offsets), row.topic_ids)

    def lease_holder(self, stream: Stream) -> str | None:
        """Who holds a lease that has not run out, if anyone."""
        with self._transaction() as connection:
            row = connection.execute(select(schema.heads).where(_of(schema.heads, stream))).first()
        held = row is not None and row.holder is not None and row.lease_until > self._now()
        return str(row.holder) if row is not None and held else None

    def plan(self, stream: Stream, seq: int) -> Plan | None:
        """The plan of a batch."""
        table = schema.plans
        with self._transaction() as connection:
            row = connection.execute(select(table).where(_of(table, stream), table.c.seq == seq)).first()
        return _plan_in(stream, row) if row else None

    def open_plan(self, stream: Stream) -> Plan | None:
        """The plan that is not committed yet, if there is one."""
        return self.plan(stream, self.head(stream).seq + 1)

    def run(self, stream: Stream, run_id: str) -> Run | None:
        """What a trigger came to."""
        table = schema.runs
        with self._transaction() as connection:
            row = connection.execute(
                select(table).where(_of(table, stream), table.c.run_id == run_id)
            ).first()
        return Run(row.run_id, row.seq, row.note) if row else None

    def attempt(self, stream: Stream, seq: int) -> Attempt | None:
        """The committed attempt of a batch; before the commit, the newest computed one."""
        table, commits = schema.attempts, schema.commits
        query = select(table).where(_of(table, stream), table.c.seq == seq).order_by(table.c.epoch.desc())
        decided = select(commits.c.attempt).where(_of(commits, stream), commits.c.seq == seq)
        with self._transaction() as connection:
            name = connection.execute(decided).scalar()
            row = connection.execute(query.where(table.c.name == name) if name else query).first()
        return Attempt(stream, seq, row.name, row.counts, row.validated) if row else None

    def committed(self, stream: Stream, up_to: int | None = None) -> list[tuple[int, str]]:
        """(seq, attempt) of the committed batches, oldest first; `up_to` a seq when given."""
        table = schema.commits
        query = select(table.c.seq, table.c.attempt).where(_of(table, stream)).order_by(table.c.seq)
        if up_to is not None:
            query = query.where(table.c.seq <= up_to)
        with self._transaction() as connection:
            return [(row.seq, row.attempt) for row in connection.execute(query)]

    def publications(self, stream: Stream, seq: int) -> dict[str, int]:
        """Sink -> records, for the sinks that have the whole of a batch."""
        table = schema.publications
        with self._transaction() as connection:
            rows = connection.execute(select(table).where(_of(table, stream), table.c.seq == seq))
            return {row.sink: row.records for row in rows}

    def last_published(self, stream: Stream, sink: str) -> int:
        """The newest batch of which a sink got records; 0 if none."""
        table = schema.publications
        query = select(func.max(table.c.seq)).where(
            _of(table, stream), table.c.sink == sink, table.c.records > 0
        )
        with self._transaction() as connection:
            return connection.execute(query).scalar() or 0

    def sink_identity(self, stream: Stream, sink: str) -> str | None:
        """The identity of the sink that was first published to."""
        table = schema.sinks
        with self._transaction() as connection:
            return connection.execute(
                select(table.c.identity).where(_of(table, stream), table.c.sink == sink)
            ).scalar()

    def metrics(self, stream: Stream, seq: int) -> dict[tuple[str, str], float]:
        """(stage, name) -> value; the stage of a whole batch's metrics is ''."""
        table = schema.metrics
        with self._transaction() as connection:
            rows = connection.execute(select(table).where(_of(table, stream), table.c.seq == seq))
            return {(row.stage, row.name): row.value for row in rows}

    def acquire(self, stream: Stream, holder: str) -> LeasedLedger:
        """Take the lease and raise the epoch: from here on every earlier holder is fenced.

        The same holder (a retry of its run) takes over at once; another waits until the lease ends.
        Raises LeaseHeld.
        """
        table = schema.heads
        with self._transaction() as connection:
            row = connection.execute(select(table).where(_of(table, stream))).first()
            if row is None:
                _create_head(connection, stream)
                row = connection.execute(select(table).where(_of(table, stream))).one()
            taken = connection.execute(
                update(table)
                .where(_of(table, stream), table.c.epoch == row.epoch, self._free_for(holder))
                .values(epoch=row.epoch + 1, holder=holder, lease_until=self._now() + LEASE_SECONDS)
            )
        if taken.rowcount != 1:
            raise LeaseHeld(
                f"{stream} is being worked on by {row.holder}",
                f"Wait for it; its lease ends by itself {LEASE_SECONDS:.0f} s after its last sign of life.",
            )
        return LeasedLedger(self._engine, self._now, Lease(stream, holder, row.epoch + 1))

    def _free_for(self, holder: str) -> Any:
        table = schema.heads
        return or_(table.c.holder.is_(None), table.c.holder == holder, table.c.lease_until <= self._now())


class LeasedLedger(Ledger):
    """What the holder of a lease may write. Every method raises Fenced when a newer epoch exists."""

    def __init__(self, engine: Engine, now: Callable[[], float], lease: Lease) -> None:
        super().__init__(engine, now)
        self.lease = lease
        self.stream = lease.stream

    def renew(self) -> None:
        """Show life: the lease ends LEASE_SECONDS from now."""
        self._hold(lease_until=self._now() + LEASE_SECONDS)

    def release(self) -> None:
        """Let others in at once. Silent when somebody already is."""
        with self._transaction() as connection:
            connection.execute(
                update(schema.heads).where(self._is_current()).values(holder=None, lease_until=None)
            )

    def add_plan(self, plan: Plan) -> None:
        """Fix a batch, and that its run works on it."""
        row = _plan_out(plan) | {"planned_at": self._now()}
        with self._fenced() as connection:
            connection.execute(insert(schema.plans).values(row))
            connection.execute(
                insert(schema.runs).values(self._key(run_id=plan.run_id, seq=plan.seq, note=""))
            )

    def add_run(self, run: Run) -> None:
        """Note what a trigger came to, when that is not a batch of its own."""
        with self._fenced() as connection:
            connection.execute(insert(schema.runs).values(self._key(**asdict(run))))

    def add_attempt(self, attempt: Attempt) -> None:
        """Note that an attempt's files are complete."""
        row = self._key(
            seq=attempt.seq,
            name=attempt.name,
            epoch=self.lease.epoch,
            counts=dict(attempt.counts),
            validated=attempt.validated,
            computed_at=self._now(),
        )
        with self._fenced() as connection:
            connection.execute(insert(schema.attempts).values(row))

    def set_validated(self, attempt: Attempt, passed: bool) -> None:
        """Note what the quality gate said."""
        table = schema.attempts
        with self._fenced() as connection:
            connection.execute(
                update(table)
                .where(_of(table, self.stream), table.c.name == attempt.name)
                .values(validated=passed)
            )

    def commit(self, plan: Plan, attempt: Attempt) -> None:
        """Decide the batch: the head moves from `seq - 1` to `seq`; Fenced if a newer lease exists."""
        table = schema.heads
        failpoint("commit.before")
        with self._transaction() as connection:
            moved = connection.execute(
                update(table)
                .where(self._is_current(), table.c.seq == plan.seq - 1)
                .values(
                    seq=plan.seq,
                    offsets=_offsets_out(self._after(connection, plan)),
                    topic_ids=dict(plan.topic_ids),
                )
            )
            if moved.rowcount != 1:
                raise self._lost()
            connection.execute(
                insert(schema.commits).values(
                    self._key(seq=plan.seq, attempt=attempt.name, committed_at=self._now())
                )
            )
            failpoint("commit.in_transaction")
        failpoint("commit.after")

    def drop_plan(self) -> int | None:
        """Forget the undecided batch, so that the next run plans anew. Returns its seq, or None.

        Safe beside a try that still computes it: that try's epoch is stale, so it can never commit.
        """
        with self._fenced() as connection:
            head = connection.execute(select(schema.heads.c.seq).where(self._is_current())).scalar_one()
            for table in (schema.attempts, schema.metrics, schema.runs):
                connection.execute(delete(table).where(self._row(table, head + 1)))
            dropped = connection.execute(delete(schema.plans).where(self._row(schema.plans, head + 1)))
        return head + 1 if dropped.rowcount else None

    def accept_gap(self, skipped: Sequence[OffsetRange]) -> None:
        """Move the head past offsets that are lost, and keep a record of it among the runs."""
        with self._fenced() as connection:
            table = schema.heads
            stored = connection.execute(select(table.c.offsets).where(self._is_current())).scalar_one()
            offsets = _offsets_in(stored) | {(each.topic, each.partition): each.end for each in skipped}
            connection.execute(update(table).where(self._is_current()).values(offsets=_offsets_out(offsets)))
            note = "accepted as lost: " + ", ".join(
                f"{each.topic}[{each.partition}] {each.start}-{each.end - 1}" for each in skipped
            )
            run_id = f"gap__epoch_{self.lease.epoch}"
            connection.execute(insert(schema.runs).values(self._key(run_id=run_id, seq=None, note=note)))

    def add_publication(self, seq: int, sink: str, records: int) -> None:
        """Note that a sink has the whole of a batch. Noting it twice is harmless."""
        table = schema.publications
        with self._fenced() as connection:
            row = self._key(seq=seq, sink=sink, records=records, published_at=self._now())
            _replace(connection, table, and_(self._row(table, seq), table.c.sink == sink), [row])

    def set_sink_identity(self, sink: str, identity: str) -> None:
        """Remember what a sink is, at its first use."""
        with self._fenced() as connection:
            connection.execute(insert(schema.sinks).values(self._key(sink=sink, identity=identity)))

    def set_metrics(self, seq: int, stage: str, values: Mapping[str, float]) -> None:
        """Write metrics of a batch's stage, over those of an earlier try."""
        table = schema.metrics
        mine = and_(self._row(table, seq), table.c.stage == stage, table.c.name.in_(values))
        rows = [self._key(seq=seq, stage=stage, name=name, value=value) for name, value in values.items()]
        with self._fenced() as connection:
            _replace(connection, table, mine, rows)

    def _after(self, connection: Connection, plan: Plan) -> dict[tuple[str, int], int]:
        """The head's offsets once this plan is in: partitions that the plan does not read stay."""
        table = schema.heads
        before = connection.execute(select(table.c.offsets).where(_of(table, self.stream))).scalar()
        return _offsets_in(before or {}) | plan.ends

    def _row(self, table: Table, seq: int) -> Any:
        return and_(_of(table, self.stream), table.c.seq == seq)

    def _key(self, **columns: Any) -> dict[str, Any]:
        return {"pipeline": self.stream.pipeline, "generation": self.stream.generation, **columns}

    def _is_current(self) -> Any:
        return and_(_of(schema.heads, self.stream), schema.heads.c.epoch == self.lease.epoch)

    def _hold(self, **values: Any) -> None:
        with self._transaction() as connection:
            held = connection.execute(update(schema.heads).where(self._is_current()).values(**values))
            if held.rowcount != 1:
                raise self._lost()

    @contextmanager
    def _fenced(self) -> Iterator[Connection]:
        """A transaction that holds the head's row, so that no newer epoch can begin before it ends."""
        try:
            with self._transaction() as connection:
                held = connection.execute(
                    update(schema.heads)
                    .where(self._is_current())
                    .values(lease_until=self._now() + LEASE_SECONDS)
                )
                if held.rowcount != 1:
                    raise self._lost()
                yield connection
        except IntegrityError as error:
            raise self._lost() from error

    def _lost(self) -> Fenced:
        lease = self.lease
        return Fenced(
            f"{self.stream} was taken over from {lease.holder}, epoch {lease.epoch}, by a newer try",
            "Nothing was written; the newer try goes on.",
        )


def _create_head(connection: Connection, stream: Stream) -> None:
    """The stream's first row. Two first runs at once: the second one's insert waits, then is ignored."""
    row = {"pipeline": stream.pipeline, "generation": stream.generation, "epoch": 0, "seq": 0}
    try:
        with connection.begin_nested():
            connection.execute(insert(schema.heads).values(row | {"offsets": {}, "topic_ids": {}}))
    except IntegrityError:
        return


def _replace(connection: Connection, table: Table, where: Any, rows: list[dict[str, Any]]) -> None:
    connection.execute(delete(table).where(where))
    if rows:
        connection.execute(insert(table), rows)


def _of(table: Table, stream: Stream) -> Any:
    return and_(table.c.pipeline == stream.pipeline, table.c.generation == stream.generation)


def _offsets_in(stored: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {(topic, int(p)): offset for topic, parts in stored.items() for p, offset in parts.items()}


def _offsets_out(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    stored: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        stored.setdefault(topic, {})[str(partition)] = offset
    return stored


def _plan_out(plan: Plan) -> dict[str, Any]:
    row = {name: value for name, value in vars(plan).items() if name != "stream"}
    row["ranges"] = [asdict(each) for each in plan.ranges]
    return row | {
        "pipeline": plan.stream.pipeline,
        "generation": plan.stream.generation,
        "topic_ids": dict(plan.topic_ids),
    }


def _plan_in(stream: Stream, row: Row[Any]) -> Plan:
    return Plan(
        stream=stream,
        seq=row.seq,
        run_id=row.run_id,
        clock_ms=row.clock_ms,
        believed_until_ms=row.believed_until_ms,
        ranges=tuple(OffsetRange(**each) for each in row.ranges),
        topic_ids=row.topic_ids,
        spec_text=row.spec_text,
        spec_hash=row.spec_hash,
    )


__all__ = ["LEASE_SECONDS", "LeasedLedger", "Ledger"]
