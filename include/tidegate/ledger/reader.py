"""Read the ledger. A reader needs no lease: it sees one committed state of the database per call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, func, select

from tidegate.errors import StateGivenUp
from tidegate.failpoints import failpoint
from tidegate.ledger import schema
from tidegate.ledger.batches import failing_streams, newest_batches, plans_with_pipelines, stream_statuses
from tidegate.ledger.database import answering, for_reading
from tidegate.ledger.history import count_removable, newest_publication
from tidegate.ledger.promotions import Charge
from tidegate.ledger.quality import QualityResult, quality_of
from tidegate.ledger.records import (
    Attempt,
    BatchFacts,
    CommittedBatch,
    Expired,
    Failure,
    GivenUp,
    Head,
    KnownNames,
    LastPlanned,
    ManifestRef,
    Plan,
    PlannedSpec,
    Recovery,
    Resolution,
    Run,
    Snapshot,
    Stream,
    StreamStatus,
    Times,
)
from tidegate.ledger.rows import (
    attempt_in,
    charge_in,
    expired_in,
    failure_in,
    head_in,
    in_stream,
    manifest_in,
    plan_in,
    promotions_of,
    recovery_in,
    resolution_in,
    snapshot_in,
)

NO_LEASE_SECONDS = 3600.0
"""A lease that ends later than this was written by a wrong clock, so nobody has to wait for it."""


class LedgerReader:
    """A reader of the ledger. Each method is one transaction.

    Raises LedgerUnavailable if the database does not answer.

    Args:
        engine: the database.
        now: gives epoch seconds; it only limits leases and dates rows, and decides nothing about data.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._reading = for_reading(engine)
        self._now = now

    @property
    def is_stored(self) -> bool:
        """Whether a ledger exists. If none exists, an empty one in memory takes its place."""
        return str(self._engine.url) != "sqlite://"

    def now(self) -> float:
        """Return epoch seconds by the clock that all users of this ledger share: see `database_clock`."""
        return self._now()

    @contextmanager
    def _transaction(self, name: str) -> Iterator[Connection]:
        """Open a transaction that only reads and sees the ledger as it is at one instant.

        The failpoint `ledger.<name>` is around it.
        """
        with answering(self._engine.url), failpoint(f"ledger.{name}"), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self, name: str) -> Iterator[Connection]:
        """Open a transaction that can write. On SQLite writers take turns from the beginning of the
        transaction.

        The failpoint `ledger.<name>` is around it.
        """
        with answering(self._engine.url), failpoint(f"ledger.{name}"), self._engine.begin() as connection:
            yield connection

    def streams(self) -> list[Stream]:
        """Return every stream that was ever planned and is not dropped, ordered by name and generation."""
        table = schema.heads
        query = select(table.c.pipeline, table.c.generation).where(table.c.dropped_at.is_(None))
        with self._transaction("streams") as connection:
            rows = connection.execute(query.order_by(table.c.pipeline, table.c.generation))
            return [Stream(row.pipeline, row.generation) for row in rows]

    def dropped_streams(self, pipeline: str) -> list[Stream]:
        """The generations of a pipeline that were given up for good."""
        table = schema.heads
        query = select(table.c.generation).where(
            table.c.pipeline == pipeline, table.c.dropped_at.is_not(None)
        )
        with self._transaction("dropped_streams") as connection:
            generations = connection.execute(query.order_by(table.c.generation)).scalars()
            return [Stream(pipeline, generation) for generation in generations]

    def is_dropped(self, stream: Stream) -> bool:
        """Return whether a generation was dropped. Its number is never used again."""
        table = schema.heads
        query = select(table.c.dropped_at).where(in_stream(table, stream))
        with self._transaction("is_dropped") as connection:
            return connection.execute(query).scalar() is not None

    def origin(self, stream: Stream) -> tuple[Stream, int] | None:
        """Return the stream whose state a generation began with, and the batch after which; None if it began
        empty.
        """
        table = schema.heads
        query = select(table.c.origin_generation, table.c.origin_seq).where(in_stream(table, stream))
        with self._transaction("origin") as connection:
            row = connection.execute(query).first()
        if row is None or row.origin_generation is None:
            return None
        return Stream(stream.pipeline, row.origin_generation), row.origin_seq

    def charge(self, pipeline: str) -> Charge:
        """Return which generation of a pipeline is in charge, and which ones were.

        Read the head first, then the charge. Only a promotion changes whether a committed batch is published,
        and this order sees every promotion that happened before the head's commit.
        """
        with self._transaction("charge") as connection:
            return charge_in(connection.execute(promotions_of(pipeline)))

    def head(self, stream: Stream) -> Head:
        """Return the last committed batch; an empty head (`seq` 0) if the stream is new."""
        with self._transaction("head") as connection:
            row = connection.execute(select(schema.heads).where(in_stream(schema.heads, stream))).first()
        if row is None:
            return Head(stream)
        return head_in(stream, row)

    def committed_batch(self, stream: Stream, seq: int | None = None) -> CommittedBatch | None:
        """Return the committed attempt of batch `seq`, by default of the head; None if the batch is not
        committed.
        """
        heads, commits = schema.heads, schema.commits
        newest = select(heads.c.seq).where(in_stream(heads, stream))
        with self._transaction("committed_batch") as connection:
            ledger = connection.execute(select(schema.identity.c.ledger)).scalar_one()
            if seq is None:
                seq = connection.execute(newest).scalar() or 0
            attempt = select(commits.c.attempt).where(in_stream(commits, stream), commits.c.seq == seq)
            name = connection.execute(attempt).scalar() if seq else ""
        return None if name is None else CommittedBatch(ledger, seq, name)

    def lease_holder(self, stream: Stream) -> str | None:
        """Return who holds a lease that others have to wait for; None if nobody does."""
        with self._transaction("lease_holder") as connection:
            row = connection.execute(select(schema.heads).where(in_stream(schema.heads, stream))).first()
        return self._holder_in(row) if row is not None else None

    def _holder_in(self, row: Row[Any]) -> str | None:
        if row.holder is None:
            return None
        # A lease of a wrong clock can end in years: nobody waits for it.
        seconds_left = row.lease_until - self._now()
        return str(row.holder) if 0 < seconds_left <= NO_LEASE_SECONDS else None

    def stream_statuses(self, streams: Sequence[Stream]) -> list[StreamStatus]:
        """Return the status of each stream, in the given order, without streams that were never planned."""
        with self._transaction("stream_statuses") as connection:
            return stream_statuses(connection, streams, self._holder_in)

    def batches(self, stream: Stream, before: int | None = None, limit: int = 50) -> list[BatchFacts]:
        """Return at most `limit` batches before batch `before` (None: from the newest on), newest first.

        Raises Halted if the ledger lacks the pipeline that one of them was planned with.
        """
        with self._transaction("batches") as connection:
            return newest_batches(connection, stream, before, limit)

    def failing_streams(self) -> dict[Stream, list[Failure]]:
        """Return the recorded failures of each stream's head and of the batch after it. A later try may have
        succeeded.
        """
        with self._transaction("failing_streams") as connection:
            return failing_streams(connection)

    def plan(self, stream: Stream, seq: int) -> Plan | None:
        """Return the plan of a batch; None if it was never planned, or has left the ledger.

        Raises Halted if the ledger lacks the pipeline that the batch was planned with.
        """
        query = plans_with_pipelines().where(in_stream(schema.plans, stream), schema.plans.c.seq == seq)
        with self._transaction("plan") as connection:
            row = connection.execute(query).first()
        return plan_in(stream, row) if row else None

    def open_plan(self, stream: Stream) -> Plan | None:
        """Return the plan that is not committed yet, if there is one.

        Raises Halted if the ledger lacks the pipeline that the batch was planned with.
        """
        # A plan is the next batch of its head, so at most one is undecided.
        return self.plan(stream, self.head(stream).seq + 1)

    def run(self, stream: Stream, run_id: str) -> Run | None:
        """Return the result of a trigger; None if the run has recorded none."""
        table = schema.runs
        with self._transaction("run") as connection:
            row = connection.execute(
                select(table).where(in_stream(table, stream), table.c.run_id == run_id)
            ).first()
        return Run(row.run_id, row.seq, row.note) if row else None

    def attempt(self, stream: Stream, seq: int) -> Attempt | None:
        """Return the committed attempt of a batch; before the commit, the newest computed one."""
        table, commits = schema.attempts, schema.commits
        query = (
            select(table).where(in_stream(table, stream), table.c.seq == seq).order_by(table.c.epoch.desc())
        )
        decided = select(commits.c.attempt).where(in_stream(commits, stream), commits.c.seq == seq)
        with self._transaction("attempt") as connection:
            name = connection.execute(decided).scalar()
            row = connection.execute(query.where(table.c.name == name) if name else query).first()
        return attempt_in(stream, row) if row else None

    def times(self, stream: Stream) -> Times:
        """Return the time of each stage in each partition at the head; empty before the first batch."""
        head = self.head(stream)
        attempt = self.attempt(stream, head.seq) if head.seq else None
        return attempt.times if attempt is not None else {}

    def committed(self, stream: Stream, after: int = 0) -> list[tuple[int, ManifestRef]]:
        """Return (seq, manifest) of the batches committed after batch `after`, oldest first."""
        table = schema.commits
        query = select(table).where(in_stream(table, stream), table.c.seq > after).order_by(table.c.seq)
        with self._transaction("committed") as connection:
            return [(row.seq, manifest_in(row, "attempt")) for row in connection.execute(query)]

    def resolutions(self, stream: Stream) -> list[Resolution]:
        """Return the decisions about records in quarantine, oldest first, also those of a batch that is only
        planned.
        """
        with self._transaction("resolutions") as connection:
            return _resolutions(connection, stream)

    def recoveries(self, stream: Stream) -> list[Recovery]:
        """Return each use of `tidegate recover` for the stream, oldest first."""
        table = schema.recoveries
        query = select(table).where(in_stream(table, stream)).order_by(table.c.number)
        with self._transaction("recoveries") as connection:
            return [recovery_in(stream, row) for row in connection.execute(query)]

    def expired_quarantine(self, stream: Stream) -> Expired:
        """Return up to which batch the quarantine is not read any more."""
        with self._transaction("expired_quarantine") as connection:
            return expired_in(
                connection.execute(select(schema.heads).where(in_stream(schema.heads, stream))).first()
            )

    def state_manifests(self, stream: Stream, up_to: int | None = None) -> list[ManifestRef]:
        """Return the manifests whose files are the state after batch `up_to` (default the head), oldest
        first.

        They are the newest snapshot up to that batch, and the attempts committed after it. If several files
        have a row of an entry, the newest row is valid.

        Raises StateGivenUp if that state is older than the oldest one that is kept.
        """
        until = 2**62 if up_to is None else up_to
        commits = schema.commits
        # One transaction: a compaction in between could replace the snapshot, and the attempts after it
        # would then belong to another one.
        with self._transaction("state_manifests") as connection:
            require_kept(stream, _given_up_after(connection, stream, until), until)
            base = _newest_snapshot(connection, stream, until)
            after = base.seq if base is not None else 0
            query = select(commits).where(
                in_stream(commits, stream), commits.c.seq > after, commits.c.seq <= until
            )
            changelogs = connection.execute(query.order_by(commits.c.seq))
            manifests = [manifest_in(row, "attempt") for row in changelogs]
            return [base.manifest, *manifests] if base is not None else manifests

    def snapshots(self, stream: Stream) -> list[Snapshot]:
        """Return the snapshots of a stream's state, oldest first."""
        with self._transaction("snapshots") as connection:
            return _snapshots(connection, stream)

    def newest_snapshots(self, stream: Stream, after: int) -> list[Snapshot]:
        """Return the newest snapshot, and before it the oldest readable state, if another.

        The cost does not depend on the number of snapshots.

        Args:
            after: the oldest readable state counts only if it is after this batch.
        """
        with self._transaction("snapshots") as connection:
            newest = _newest_snapshot(connection, stream, 2**62)
            given_up = _given_up_after(connection, stream, after)
        older = [snapshot for snapshot in given_up if snapshot != newest]
        return [*older, newest] if newest is not None else older

    def head_at(self, stream: Stream, instant: float) -> int:
        """Return the batch that was the head at an instant (epoch seconds); 0 before the first commit."""
        table = schema.commits
        # Instants of commits never go back (`LeasedLedger._instant`), so the greatest seq is the last.
        query = select(func.max(table.c.seq)).where(in_stream(table, stream), table.c.committed_at <= instant)
        with self._transaction("head_at") as connection:
            return connection.execute(query).scalar() or 0

    def open_lookups(self) -> list[Mapping[str, Any]]:
        """Return `Plan.lookups` of every plan of any stream that is not committed yet."""
        plans, heads = schema.plans, schema.heads
        is_open = and_(
            plans.c.pipeline == heads.c.pipeline,
            plans.c.generation == heads.c.generation,
            plans.c.seq == heads.c.seq + 1,
        )
        query = select(plans.c.lookups).select_from(heads.join(plans, is_open))
        with self._transaction("open_lookups") as connection:
            return list(connection.execute(query.order_by(*heads.primary_key)).scalars())

    def planned_specs(self, stream: Stream) -> list[PlannedSpec]:
        """Return each version of the pipeline that batches were planned with, the newest last."""
        plans, pipelines = schema.plans, schema.pipelines
        newest = select(plans.c.spec_hash, func.max(plans.c.seq).label("seq")).where(in_stream(plans, stream))
        used = newest.group_by(plans.c.spec_hash).subquery()
        query = select(pipelines).join(used, pipelines.c.hash == used.c.spec_hash)
        with self._transaction("planned_specs") as connection:
            rows = connection.execute(query.where(in_stream(pipelines, stream)).order_by(used.c.seq))
            return [PlannedSpec(row.text, row.compiled) for row in rows]

    def last_planned(self, stream: Stream) -> LastPlanned | None:
        """Return the newest planned batch, committed or not, and its pipeline file; None before the first
        batch.
        """
        plans = schema.plans
        query = plans_with_pipelines().where(in_stream(plans, stream)).order_by(plans.c.seq.desc()).limit(1)
        with self._transaction("plan") as connection:
            row = connection.execute(query).first()
        return LastPlanned(row.seq, row.run_id, row.planned_at, row.spec_text or "") if row else None

    def known_names(self, stream: Stream) -> KnownNames:
        """Return the names of all valid attempts, snapshots and resolutions, read in one transaction."""
        commits, attempts = schema.commits, schema.attempts
        with self._transaction("known_names") as connection:
            row = connection.execute(select(schema.heads).where(in_stream(schema.heads, stream))).first()
            head, epoch = (row.seq, row.epoch) if row else (0, 0)
            decided = connection.execute(select(commits).where(in_stream(commits, stream)))
            waiting = select(attempts.c.name).where(in_stream(attempts, stream), attempts.c.seq > head)
            return KnownNames(
                head,
                epoch,
                {commit.seq: manifest_in(commit, "attempt") for commit in decided},
                frozenset(connection.execute(waiting).scalars()),
                tuple(_snapshots(connection, stream)),
                {made.manifest.name: made for made in _resolutions(connection, stream)},
                expired_in(row),
            )

    def failure(self, stream: Stream, seq: int) -> Failure | None:
        """Return the last recorded failure of a batch; a later try may have succeeded."""
        table = schema.failures
        with self._transaction("failure") as connection:
            row = connection.execute(
                select(table).where(in_stream(table, stream), table.c.seq == seq)
            ).first()
        return failure_in(stream, row) if row else None

    def publications(self, stream: Stream, seq: int) -> dict[str, int]:
        """Return sink -> records, for the sinks that have the whole batch."""
        table = schema.publications
        with self._transaction("publications") as connection:
            rows = connection.execute(select(table).where(in_stream(table, stream), table.c.seq == seq))
            return {row.sink: row.records for row in rows}

    def given_up(self, stream: Stream) -> list[GivenUp]:
        """Return the parts of the stream's batches that sinks never get, oldest first."""
        table = schema.given_up
        columns = [table.c[name] for name in ("seq", "sink", "sent", "records", "export", "given_up_at")]
        query = select(*columns).where(in_stream(table, stream)).order_by(table.c.seq, table.c.sink)
        with self._transaction("given_up") as connection:
            return [GivenUp(*row) for row in connection.execute(query)]

    def newest_publication(self, stream: Stream) -> int:
        """Return the newest batch that a sink has, even if the batch had no record for it; 0 if none.

        Batches are published in order, so all earlier batches that are published at all are out.
        """
        with self._transaction("newest_publication") as connection:
            return newest_publication(connection, stream)

    def published_after(self, stream: Stream, seq: int, limit: int) -> list[int]:
        """Return the batches of which a sink has a record, oldest first.

        Args:
            seq: only batches after this one.
            limit: the largest number of batches.
        """
        table = schema.publications
        later = and_(in_stream(table, stream), table.c.seq > seq, table.c.records > 0)
        query = select(table.c.seq).where(later).distinct().order_by(table.c.seq).limit(limit)
        with self._transaction("published_after") as connection:
            return list(connection.execute(query).scalars())

    def last_published(self, stream: Stream, sink: str) -> int:
        """Return the newest batch of which a sink, or a part of one, got something; 0 if none."""
        table = schema.sink_heads
        query = select(table.c.seq).where(in_stream(table, stream), table.c.sink == sink)
        with self._transaction("last_published") as connection:
            return connection.execute(query).scalar() or 0

    def removable_batches(self, stream: Stream, before: int) -> int:
        """Return how many batches before `before` could leave the ledger, but for their commits and runs."""
        with self._transaction("removable_batches") as connection:
            return count_removable(connection, stream, before)

    def sink_identity(self, stream: Stream, sink: str) -> str | None:
        """Return the identity of the sink, or of the part of one, that was first published to."""
        table = schema.sinks
        with self._transaction("sink_identity") as connection:
            return connection.execute(
                select(table.c.identity).where(in_stream(table, stream), table.c.sink == sink)
            ).scalar()

    def publishers(self, identity: str) -> list[tuple[Stream, str]]:
        """Return every stream, also a dropped one, that has published to the sink of an identity, with its
        name of that sink.
        """
        table = schema.sinks
        query = select(table).where(table.c.identity == identity).order_by(*table.primary_key)
        with self._transaction("publishers") as connection:
            return [(Stream(row.pipeline, row.generation), row.sink) for row in connection.execute(query)]

    def quality(self, stream: Stream, seq: int) -> list[QualityResult]:
        """Return the results of quality suites for a batch, for each try to validate it; the newest try is
        last.
        """
        with self._transaction("quality") as connection:
            return quality_of(connection, stream, seq)

    def metrics(self, stream: Stream, seq: int) -> dict[tuple[str, str], float]:
        """Return (stage, name) -> value; the stage of the whole batch's metrics is ""."""
        table = schema.metrics
        with self._transaction("metrics") as connection:
            rows = connection.execute(select(table).where(in_stream(table, stream), table.c.seq == seq))
            return {(row.stage, row.name): row.value for row in rows}


def _snapshots(connection: Connection, stream: Stream) -> list[Snapshot]:
    table = schema.snapshots
    query = select(table).where(in_stream(table, stream)).order_by(table.c.seq)
    return [snapshot_in(stream, row) for row in connection.execute(query)]


def _resolutions(connection: Connection, stream: Stream) -> list[Resolution]:
    table = schema.resolutions
    query = select(table).where(in_stream(table, stream)).order_by(table.c.number)
    return [resolution_in(stream, row) for row in connection.execute(query)]


def _newest_snapshot(connection: Connection, stream: Stream, until: int) -> Snapshot | None:
    table = schema.snapshots
    query = (
        select(table)
        .where(in_stream(table, stream), table.c.seq <= until)
        .order_by(table.c.seq.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return snapshot_in(stream, row) if row else None


def _given_up_after(connection: Connection, stream: Stream, until: int) -> list[Snapshot]:
    """Return the newest snapshot after batch `until` before which nothing can be read, if there is one."""
    table = schema.snapshots
    given_up = and_(in_stream(table, stream), table.c.seq > until, table.c.given_up_at.is_not(None))
    rows = connection.execute(select(table).where(given_up).order_by(table.c.seq.desc()).limit(1))
    return [snapshot_in(stream, row) for row in rows]


def require_kept(stream: Stream, snapshots: Sequence[Snapshot], up_to: int) -> None:
    """Raise StateGivenUp if the state after batch `up_to` is no longer kept. Batch 0 has no state.

    `snapshots` are snapshots of the stream, at least the newest one before which nothing can be read.
    """
    given_up = (snapshot.seq for snapshot in snapshots if snapshot.given_up_at is not None)
    oldest = max(given_up, default=0)
    if 0 < up_to < oldest:
        raise StateGivenUp(
            f"The state of {stream} after batch {up_to} is no longer kept",
            f"The oldest state that is kept is that after batch {oldest}. TIDEGATE_TIME_TRAVEL sets for how "
            "many days states are kept.",
        )
