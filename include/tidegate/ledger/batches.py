"""Queries over many batches or many streams: each takes a few queries, and not one for every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, or_, select, tuple_

from tidegate.errors import Halted, StateGivenUp
from tidegate.ledger import schema
from tidegate.ledger.facts import (
    EXPIRING,
    BatchFacts,
    CurrentBatches,
    Expired,
    Expiring,
    Failure,
    KnownNames,
    Resolution,
    StreamStatus,
)
from tidegate.ledger.records import Attempt, Head, ManifestRef, Plan, Snapshot, Stream
from tidegate.ledger.rows import (
    in_stream,
    manifest_in,
    plan_in,
    plans_with_pipelines,
    record_in,
    rows_of,
    same_stream,
    stream_in,
)

Place = tuple[Stream, int]
"""A stream, and the number of one of its batches."""


def newest_batches(
    connection: Connection, stream: Stream, before: int | None, limit: int
) -> list[BatchFacts]:
    """Return batches of a stream, newest first.

    The batch that is planned and not decided is included. Only rows of these batches are read, so the cost
    does not depend on the length of the history.

    Args:
        connection: an open transaction.
        before: only batches before this one; None: from the newest on.
        limit: the largest number of batches.

    Raises Halted if the ledger lacks the pipeline that one of them was planned with.
    """
    tables = (schema.commits, schema.plans)
    # Either can be missing: an open batch has no commit, and an old one has lost its plan.
    numbers = {seq for table in tables for seq in _newest(connection, table, stream, before, limit)}
    seqs = sorted(numbers, reverse=True)[:limit]
    if not seqs:
        return []

    def is_listed(table: Table) -> Any:
        return and_(in_stream(table, stream), table.c.seq.between(seqs[-1], seqs[0]))

    rows = _BatchRows.read(connection, is_listed)
    return [rows.facts(stream, seq) for seq in seqs]


def current_batches(connection: Connection, streams: Sequence[StreamStatus]) -> dict[Stream, CurrentBatches]:
    """Return the head's batch and the one after it of each stream. The number of queries does not depend on
    the number of streams.
    """
    heads = schema.heads
    keys = heads.c.pipeline, heads.c.generation
    is_of_stream = tuple_(*keys).in_(
        [(status.stream.pipeline, status.stream.generation) for status in streams]
    )
    # DISTINCT changes no row. It makes SQLite read the heads first, and the other tables by their keys;
    # without it, and for `(pipeline, generation, seq) IN (...)`, SQLite reads the other tables whole.
    current = select(*keys, heads.c.seq).distinct().where(is_of_stream).subquery("current_heads")

    def is_listed(table: Table) -> Any:
        is_current = table.c.seq.between(current.c.seq, current.c.seq + 1)
        return and_(
            table.c.pipeline == current.c.pipeline, table.c.generation == current.c.generation, is_current
        )

    rows = _BatchRows.read(connection, is_listed)
    return {status.stream: rows.current(status.stream, status.head.seq) for status in streams}


@dataclass(frozen=True)
class _BatchRows:
    """The rows of batches in the tables of the ledger, by stream and batch."""

    commits: Mapping[Place, Row[Any]]
    plans: Mapping[Place, Row[Any]]
    attempts: Mapping[Place, Attempt]
    metrics: Mapping[Place, Mapping[str, float]]
    publications: Mapping[Place, Mapping[str, int]]
    failures: Mapping[Place, Failure]
    runs: Mapping[Place, str]

    @classmethod
    def read(cls, connection: Connection, is_listed: Callable[[Table], Any]) -> _BatchRows:
        """Read the rows that fulfil a condition, which `is_listed` returns for a table."""

        def rows(table: Table, *conditions: Any) -> Sequence[Row[Any]]:
            return connection.execute(select(table).where(is_listed(table), *conditions)).all()

        commits = {_place(row): row for row in rows(schema.commits)}
        planned = connection.execute(plans_with_pipelines().where(is_listed(schema.plans)))
        return cls(
            commits=commits,
            plans={_place(row): row for row in planned},
            attempts=_attempts(rows(schema.attempts), commits),
            metrics=_by_batch(rows(schema.metrics, schema.metrics.c.stage == ""), "name", "value"),
            publications=_by_batch(rows(schema.publications), "sink", "records"),
            failures={_place(row): record_in(Failure, row) for row in rows(schema.failures)},
            runs={_place(row): str(row.run_id) for row in rows(schema.runs)},
        )

    def facts(self, stream: Stream, seq: int) -> BatchFacts:
        """Return the facts of a batch. Raises Halted if the ledger lacks the pipeline of its plan."""
        row = self.plans.get((stream, seq))
        return self._facts(stream, seq, None if row is None else plan_in(row))

    def current(self, stream: Stream, head: int) -> CurrentBatches:
        """Return the batches of a stream at its head. A plan that cannot be read is a fact about them."""
        try:
            return CurrentBatches(self.facts(stream, head), self.facts(stream, head + 1))
        except Halted as error:
            decided, following = (self._facts(stream, seq, None) for seq in (head, head + 1))
            return CurrentBatches(decided, following, error)

    def _facts(self, stream: Stream, seq: int, plan: Plan | None) -> BatchFacts:
        place = (stream, seq)
        commit, planned = self.commits.get(place), self.plans.get(place)
        return BatchFacts(
            stream=stream,
            seq=seq,
            run_id=plan.run_id if plan is not None else self.runs.get(place),
            plan=plan,
            planned_at=None if planned is None else planned.planned_at,
            attempt=self.attempts.get(place),
            committed_at=None if commit is None else commit.committed_at,
            metrics=self.metrics.get(place, {}),
            publications=self.publications.get(place, {}),
            failure=self.failures.get(place),
        )


def stream_statuses(
    connection: Connection, streams: Sequence[Stream], holder_in: Callable[[Row[Any]], str | None]
) -> list[StreamStatus]:
    """Return the status of each stream, in the given order, without streams that were never planned.

    Args:
        connection: an open transaction.
        streams: the streams to read.
        holder_in: takes a row of `heads` and returns who holds a lease that is still valid, or None.
    """
    rows = {stream_in(row): row for row in connection.execute(_status_query(streams))}
    return [_status(rows[stream], holder_in(rows[stream])) for stream in streams if stream in rows]


def failing_streams(connection: Connection) -> dict[Stream, list[Failure]]:
    """Return the recorded failures of each stream's head and of the batch after it. A later try may have
    succeeded.
    """
    heads, failures = schema.heads, schema.failures
    joined = heads.join(failures, same_stream(heads, failures))
    query = select(failures).select_from(joined)
    is_current = or_(failures.c.seq == heads.c.seq, failures.c.seq == heads.c.seq + 1)
    failures_by_stream: dict[Stream, list[Failure]] = defaultdict(list)
    for row in connection.execute(query.where(is_current).order_by(failures.c.seq)):
        failures_by_stream[stream_in(row)].append(record_in(Failure, row))
    return failures_by_stream


def _newest(
    connection: Connection, table: Table, stream: Stream, before: int | None, limit: int
) -> Sequence[int]:
    """Return the numbers of the newest batches that have a row in a table."""
    query = select(table.c.seq).where(in_stream(table, stream)).order_by(table.c.seq.desc()).limit(limit)
    return connection.execute(query if before is None else query.where(table.c.seq < before)).scalars().all()


def _attempts(rows: Sequence[Row[Any]], commits: Mapping[Place, Row[Any]]) -> dict[Place, Attempt]:
    """Return the committed attempt of each batch; for a batch without a commit, the newest attempt."""
    attempts: dict[Place, Attempt] = {}
    # By epoch, so that the last assignment is the newest try.
    for row in sorted(rows, key=lambda row: int(row.epoch)):
        commit = commits.get(_place(row))
        if commit is None or commit.attempt == row.name:
            attempts[_place(row)] = record_in(Attempt, row)
    return attempts


def _by_batch(rows: Sequence[Row[Any]], name: str, value: str) -> dict[Place, dict[str, Any]]:
    """Return batch -> column `name` -> column `value`."""
    by_batch: dict[Place, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        by_batch[_place(row)][row._mapping[name]] = row._mapping[value]
    return by_batch


def _place(row: Row[Any]) -> Place:
    return stream_in(row), row.seq


def _status_query(streams: Sequence[Stream]) -> Select[Any]:
    """Return a query with one row per stream: the head, its commit and attempt, and the plan after it."""
    heads, commits, attempts, plans = schema.heads, schema.commits, schema.attempts, schema.plans
    is_head_commit = and_(same_stream(heads, commits), commits.c.seq == heads.c.seq)
    is_committed_attempt = and_(
        same_stream(heads, attempts), attempts.c.seq == heads.c.seq, attempts.c.name == commits.c.attempt
    )
    is_open = and_(same_stream(heads, plans), plans.c.seq == heads.c.seq + 1)
    # Outer joins: a stream can have no commit, no attempt or no open plan, and still has a status.
    tables = (
        heads.outerjoin(commits, is_head_commit)
        .outerjoin(attempts, is_committed_attempt)
        .outerjoin(plans, is_open)
    )
    columns = (
        commits.c.committed_at,
        attempts.c.times,
        plans.c.seq.label("open_seq"),
        plans.c.planned_at,
    )
    keys = tuple_(heads.c.pipeline, heads.c.generation)
    is_listed = keys.in_([(stream.pipeline, stream.generation) for stream in streams])
    return select(heads, *columns).select_from(tables).where(is_listed)


def _status(row: Row[Any], holder: str | None) -> StreamStatus:
    times = [at for stage in (row.times or {}).values() for at in stage.values() if at >= 0]
    return StreamStatus(
        head=record_in(Head, row),
        holder=holder,
        committed_at=row.committed_at,
        newest_ms=max(times, default=None),
        open_seq=row.open_seq,
        planned_at=row.planned_at,
    )


def state_manifests(connection: Connection, stream: Stream, until: int) -> list[ManifestRef]:
    """Return the manifests whose files are the state after batch `until`: see `LedgerReader`."""
    commits = schema.commits
    require_kept(stream, _given_up_after(connection, stream, until), until)
    base = _newest_snapshot(connection, stream, schema.snapshots.c.seq <= until)
    after = base.seq if base is not None else 0
    changelogs = rows_of(commits, stream, commits.c.seq > after, commits.c.seq <= until)
    rows = connection.execute(changelogs.order_by(commits.c.seq))
    manifests = [manifest_in(row, "attempt") for row in rows]
    return [base.manifest, *manifests] if base is not None else manifests


def newest_snapshots(connection: Connection, stream: Stream, after: int) -> list[Snapshot]:
    """Return the newest snapshot, and before it the oldest readable state after batch `after`, if another."""
    newest = _newest_snapshot(connection, stream)
    given_up = _given_up_after(connection, stream, after)
    older = [snapshot for snapshot in given_up if snapshot != newest]
    return [*older, newest] if newest is not None else older


def known_names(connection: Connection, stream: Stream) -> KnownNames:
    """Return the names of all valid attempts, snapshots and resolutions."""
    commits, attempts = schema.commits, schema.attempts
    row = connection.execute(rows_of(schema.heads, stream)).first()
    head, epoch = (row.seq, row.epoch) if row else (0, 0)
    decided = connection.execute(rows_of(commits, stream))
    waiting = select(attempts.c.name).where(in_stream(attempts, stream), attempts.c.seq > head)
    snapshots = connection.execute(snapshots_of(stream))
    resolutions = connection.execute(resolutions_of(stream))
    return KnownNames(
        head,
        epoch,
        {commit.seq: manifest_in(commit, "attempt") for commit in decided},
        frozenset(connection.execute(waiting).scalars()),
        tuple(record_in(Snapshot, snapshot) for snapshot in snapshots),
        {resolution.name: record_in(Resolution, resolution) for resolution in resolutions},
        {kind: expired_in(row, kind) for kind in EXPIRING},
    )


def expired_in(head: Row[Any] | None, kind: Expiring) -> Expired:
    """Return the limit of quarantine or outboxes that a row of `heads` stores."""
    seq = getattr(head, f"{kind}_expired_seq", None)
    return Expired(seq, getattr(head, f"{kind}_expired_at")) if seq else Expired()


def snapshots_of(stream: Stream) -> Select[Any]:
    """Return the query for the snapshots of a stream, oldest first."""
    return rows_of(schema.snapshots, stream).order_by(schema.snapshots.c.seq)


def resolutions_of(stream: Stream) -> Select[Any]:
    """Return the query for the decisions about records in quarantine, oldest first."""
    return rows_of(schema.resolutions, stream).order_by(schema.resolutions.c.number)


def _newest_snapshot(connection: Connection, stream: Stream, *conditions: Any) -> Snapshot | None:
    query = rows_of(schema.snapshots, stream, *conditions).order_by(schema.snapshots.c.seq.desc()).limit(1)
    row = connection.execute(query).first()
    return record_in(Snapshot, row) if row else None


def _given_up_after(connection: Connection, stream: Stream, until: int) -> list[Snapshot]:
    """Return the newest snapshot after batch `until` before which nothing can be read, if there is one."""
    snapshots = schema.snapshots
    is_given_up = snapshots.c.given_up_at.is_not(None)
    given_up = _newest_snapshot(connection, stream, snapshots.c.seq > until, is_given_up)
    return [] if given_up is None else [given_up]


def oldest_readable(snapshots: Iterable[Snapshot]) -> int:
    """Return the oldest batch after which state can be read; 0 if state was never given up.

    State is given up before the newest such snapshot, which itself stays readable.
    """
    return max((snapshot.seq for snapshot in snapshots if snapshot.given_up_at is not None), default=0)


def require_kept(stream: Stream, snapshots: Sequence[Snapshot], up_to: int) -> None:
    """Raise StateGivenUp if the state after a batch is no longer kept.

    Args:
        snapshots: snapshots of the stream, at least the newest one before which nothing can be read.
        up_to: the batch; batch 0 has no state.
    """
    oldest = oldest_readable(snapshots)
    if 0 < up_to < oldest:
        raise StateGivenUp(
            f"The state of {stream} after batch {up_to} is no longer kept",
            f"The oldest state that is kept is that after batch {oldest}. TIDEGATE_TIME_TRAVEL sets for how "
            "many days states are kept.",
        )
