"""Read the ledger. A reader needs no lease: it sees one committed state of the database per call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, and_, func, or_, select

from tidegate.ledger import schema
from tidegate.ledger.batches import (
    current_batches,
    expired_in,
    failing_streams,
    known_names,
    newest_batches,
    newest_snapshots,
    resolutions_of,
    snapshots_of,
    state_manifests,
    stream_statuses,
)
from tidegate.ledger.database import LedgerDatabase
from tidegate.ledger.erasure import count_rewrites
from tidegate.ledger.facts import (
    BatchFacts,
    CurrentBatches,
    Erasure,
    Expired,
    Expiring,
    Failure,
    GivenUp,
    KnownNames,
    QualityResult,
    Recovery,
    Resolution,
    SinkProgress,
    StreamStatus,
)
from tidegate.ledger.history import count_removable, first_needed, newest_publication
from tidegate.ledger.promotions import Charge
from tidegate.ledger.records import (
    Attempt,
    Commit,
    CommittedBatch,
    Head,
    LastPlanned,
    ManifestRef,
    Plan,
    PlannedSpec,
    PlannedVersion,
    Run,
    Snapshot,
    Stream,
    Times,
)
from tidegate.ledger.rows import (
    charge_in,
    greatest,
    in_stream,
    manifest_in,
    plan_in,
    plans_with_pipelines,
    promotions_of,
    record_in,
    rows_of,
    same_stream,
    stream_in,
)
from tidegate.ledger.series import MetricGroup, Names, metric_groups, metric_values

NO_LEASE_SECONDS = 3600.0
"""A lease that ends later than this was written by a wrong clock, so nobody has to wait for it."""


class LedgerReader(LedgerDatabase):
    """A reader of the ledger. Each method is one transaction.

    Raises LedgerUnavailable if the database does not answer.
    """

    def _head_row(self, name: str, stream: Stream) -> Row[Any] | None:
        return self._row(name, rows_of(schema.heads, stream))

    def streams(self) -> list[Stream]:
        """Return every stream that was ever planned and is not dropped, ordered by name and generation."""
        heads = schema.heads
        query = select(*heads.primary_key).where(heads.c.dropped_at.is_(None)).order_by(*heads.primary_key)
        return [stream_in(row) for row in self._rows("streams", query)]

    def dropped_streams(self, pipeline: str) -> list[Stream]:
        """Return the dropped generations of a pipeline."""
        heads = schema.heads
        query = select(*heads.primary_key).where(
            heads.c.pipeline == pipeline, heads.c.dropped_at.is_not(None)
        )
        return [stream_in(row) for row in self._rows("dropped_streams", query.order_by(heads.c.generation))]

    def is_dropped(self, stream: Stream) -> bool:
        """Return whether a generation was dropped. Its number is never used again."""
        row = self._head_row("is_dropped", stream)
        return row is not None and row.dropped_at is not None

    def origin(self, stream: Stream) -> tuple[Stream, int] | None:
        """Return the stream whose state a generation began with, and the batch after which; None if it began
        empty.
        """
        row = self._head_row("origin", stream)
        if row is None or row.origin_generation is None:
            return None
        return Stream(stream.pipeline, row.origin_generation), row.origin_seq

    def charge(self, pipeline: str) -> Charge:
        """Return which generation of a pipeline is in charge, and which ones were.

        Read the head first, then the charge. Only a promotion changes whether a committed batch is published,
        and this order sees every promotion that happened before the head's commit. For the same reason, read
        `streams` first: a generation that was opened is in the list only after its pipeline has a charge.
        """
        return charge_in(self._rows("charge", promotions_of(pipeline)))

    def charges(self, pipelines: Collection[str]) -> dict[str, Charge]:
        """Return the charge of each pipeline: see `charge`."""
        table = schema.promotions
        query = select(table).where(table.c.pipeline.in_(pipelines)).order_by(table.c.number)
        rows: dict[str, list[Row[Any]]] = {pipeline: [] for pipeline in pipelines}
        for row in self._rows("charges", query):
            rows[row.pipeline].append(row)
        return {pipeline: charge_in(of_pipeline) for pipeline, of_pipeline in rows.items()}

    def head(self, stream: Stream) -> Head:
        """Return the last committed batch; an empty head (`seq` 0) if the stream is new."""
        row = self._head_row("head", stream)
        return Head(stream) if row is None else record_in(Head, row)

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
        row = self._head_row("lease_holder", stream)
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

    def current_batches(self, streams: Sequence[Stream]) -> list[tuple[StreamStatus, CurrentBatches]]:
        """Return the status of each stream with its current batches, in the given order, without streams that
        were never planned. The number of queries does not depend on the number of streams.
        """
        with self._transaction("current_batches") as connection:
            statuses = stream_statuses(connection, streams, self._holder_in)
            batches = current_batches(connection, statuses)
        return [(status, batches[status.stream]) for status in statuses]

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
        plans = schema.plans
        row = self._row("plan", plans_with_pipelines().where(in_stream(plans, stream), plans.c.seq == seq))
        return plan_in(row) if row else None

    def open_plan(self, stream: Stream) -> Plan | None:
        """Return the plan that is not committed yet, if there is one.

        Raises Halted if the ledger lacks the pipeline that the batch was planned with.
        """
        # A plan is the next batch of its head, so at most one is undecided.
        return self.plan(stream, self.head(stream).seq + 1)

    def run(self, stream: Stream, run_id: str) -> Run | None:
        """Return the result of a trigger; None if the run has recorded none."""
        row = self._row("run", rows_of(schema.runs, stream, schema.runs.c.run_id == run_id))
        return record_in(Run, row) if row else None

    def attempt(self, stream: Stream, seq: int) -> Attempt | None:
        """Return the committed attempt of a batch; before the commit, the newest computed one."""
        attempts, commits = schema.attempts, schema.commits
        query = rows_of(attempts, stream, attempts.c.seq == seq).order_by(attempts.c.epoch.desc())
        decided = select(commits.c.attempt).where(in_stream(commits, stream), commits.c.seq == seq)
        with self._transaction("attempt") as connection:
            name = connection.execute(decided).scalar()
            row = connection.execute(query.where(attempts.c.name == name) if name else query).first()
        return record_in(Attempt, row) if row else None

    def times(self, stream: Stream) -> Times:
        """Return the time of each stage in each partition at the head; empty before the first batch."""
        head = self.head(stream)
        attempt = self.attempt(stream, head.seq) if head.seq else None
        return attempt.times if attempt is not None else {}

    def committed(self, stream: Stream, after: int = 0) -> list[tuple[int, ManifestRef]]:
        """Return (seq, manifest) of committed batches, oldest first.

        Args:
            after: only batches after this one.
        """
        seq = schema.commits.c.seq
        rows = self._rows("committed", rows_of(schema.commits, stream, seq > after).order_by(seq))
        return [(row.seq, manifest_in(row, "attempt")) for row in rows]

    def newest_commits(self, stream: Stream, before: int | None, limit: int) -> list[Commit]:
        """Return commits, newest first.

        Args:
            before: only batches before this one; None: from the newest on.
            limit: the most commits.
        """
        commits = schema.commits
        earlier = [commits.c.seq < before] if before is not None else []
        query = rows_of(commits, stream, *earlier).order_by(commits.c.seq.desc()).limit(limit)
        rows = self._rows("newest_commits", query)
        return [Commit(row.seq, round(row.committed_at * 1000), manifest_in(row, "attempt")) for row in rows]

    def resolutions(self, stream: Stream) -> list[Resolution]:
        """Return the decisions about records in quarantine, oldest first, also those of a batch that is only
        planned.
        """
        rows = self._rows("resolutions", resolutions_of(stream))
        return [record_in(Resolution, row) for row in rows]

    def recoveries(self, stream: Stream) -> list[Recovery]:
        """Return each use of `tidegate recover` for the stream, oldest first."""
        table = schema.recoveries
        rows = self._rows("recoveries", rows_of(table, stream).order_by(table.c.number))
        return [record_in(Recovery, row) for row in rows]

    def erasures(self, stream: Stream) -> list[Erasure]:
        """Return the erasures of the stream, finished or not, oldest first."""
        table = schema.erasures
        rows = self._rows("erasures", rows_of(table, stream).order_by(table.c.number))
        return [record_in(Erasure, row) for row in rows]

    def rewrites(self, stream: Stream) -> int:
        """Return how often an erasure has rewritten files of the stream."""
        with self._transaction("rewrites") as connection:
            return count_rewrites(connection, stream)

    def expired(self, stream: Stream, kind: Expiring) -> Expired:
        """Return up to which batch quarantine, or outboxes, are not read any more."""
        return expired_in(self._head_row("expired", stream), kind)

    def first_needed(self, stream: Stream, before: int) -> int:
        """Return the first batch that may still be computed from, read as of, or published; at most
        `before`.
        """
        with self._transaction("first_needed") as connection:
            return first_needed(connection, stream, before)

    def state_manifests(self, stream: Stream, up_to: int | None = None) -> list[ManifestRef]:
        """Return the manifests whose files are the state after batch `up_to` (default the head), oldest
        first.

        They are the newest snapshot up to that batch, and the attempts committed after it. If several files
        have a row of an entry, the newest row is valid.

        Raises StateGivenUp if that state is older than the oldest one that is kept.
        """
        # One transaction: a compaction in between could replace the snapshot, and the attempts after it
        # would then belong to another one.
        with self._transaction("state_manifests") as connection:
            return state_manifests(connection, stream, 2**62 if up_to is None else up_to)

    def snapshots(self, stream: Stream) -> list[Snapshot]:
        """Return the snapshots of a stream's state, oldest first."""
        return [record_in(Snapshot, row) for row in self._rows("snapshots", snapshots_of(stream))]

    def newest_snapshots(self, stream: Stream, after: int) -> list[Snapshot]:
        """Return the newest snapshot, and before it the oldest readable state, if another.

        The cost does not depend on the number of snapshots.

        Args:
            after: the oldest readable state counts only if it is after this batch.
        """
        with self._transaction("snapshots") as connection:
            return newest_snapshots(connection, stream, after)

    def head_at(self, stream: Stream, instant: float) -> int:
        """Return the batch that was the head at an instant (epoch seconds); 0 before the first commit."""
        commits = schema.commits
        # Instants of commits never go back (`LeasedLedger._instant`), so the greatest seq is the last.
        with self._transaction("head_at") as connection:
            return greatest(connection, commits.c.seq, stream, commits.c.committed_at <= instant)

    def open_lookups(self) -> list[Mapping[str, Any]]:
        """Return `Plan.lookups` of every plan of any stream that is not committed yet."""
        plans, heads = schema.plans, schema.heads
        is_open = and_(same_stream(plans, heads), plans.c.seq == heads.c.seq + 1)
        query = select(plans.c.lookups).select_from(heads.join(plans, is_open)).order_by(*heads.primary_key)
        return [row.lookups for row in self._rows("open_lookups", query)]

    def planned_specs(self, stream: Stream) -> list[PlannedSpec]:
        """Return each version of the pipeline that batches were planned with, the newest last."""
        plans, pipelines = schema.plans, schema.pipelines
        newest = select(plans.c.spec_hash, func.max(plans.c.seq).label("seq")).where(in_stream(plans, stream))
        used = newest.group_by(plans.c.spec_hash).subquery()
        query = rows_of(pipelines, stream).join(used, pipelines.c.hash == used.c.spec_hash)
        rows = self._rows("planned_specs", query.order_by(used.c.seq))
        return [record_in(PlannedSpec, row) for row in rows]

    def is_edited(self, stream: Stream) -> bool:
        """Return whether the batches of a stream were planned with several versions of the pipeline."""
        versions = rows_of(schema.pipelines, stream).with_only_columns(schema.pipelines.c.hash).limit(2)
        return len(self._rows("is_edited", versions)) > 1

    def planned_versions(self, stream: Stream, limit: int) -> list[PlannedVersion]:
        """Return at most `limit` versions of the pipeline, the newest first, each with its first batch.

        A version that was replaced, and came back later, is there twice.
        """
        plans, pipelines = schema.plans, schema.pipelines
        before = func.lag(plans.c.spec_hash).over(order_by=plans.c.seq).label("before")
        batches = select(plans.c.seq, plans.c.planned_at, plans.c.spec_hash, before)
        numbered = batches.where(in_stream(plans, stream)).subquery()
        is_first = or_(numbered.c.before.is_(None), numbered.c.before != numbered.c.spec_hash)
        query = rows_of(pipelines, stream).add_columns(numbered.c.seq, numbered.c.planned_at)
        query = query.join(numbered, pipelines.c.hash == numbered.c.spec_hash).where(is_first)
        rows = self._rows("planned_versions", query.order_by(numbered.c.seq.desc()).limit(limit))
        return [record_in(PlannedVersion, row) for row in rows]

    def last_planned(self, stream: Stream) -> LastPlanned | None:
        """Return the newest planned batch, committed or not, and its pipeline file; None before the first
        batch.
        """
        plans = schema.plans
        query = plans_with_pipelines().where(in_stream(plans, stream)).order_by(plans.c.seq.desc()).limit(1)
        row = self._row("plan", query)
        return LastPlanned(row.seq, row.run_id, row.planned_at, row.spec_text or "") if row else None

    def known_names(self, stream: Stream) -> KnownNames:
        """Return the names of all valid attempts, snapshots and resolutions, read in one transaction."""
        with self._transaction("known_names") as connection:
            return known_names(connection, stream)

    def failure(self, stream: Stream, seq: int) -> Failure | None:
        """Return the last recorded failure of a batch; a later try may have succeeded."""
        row = self._row("failure", rows_of(schema.failures, stream, schema.failures.c.seq == seq))
        return record_in(Failure, row) if row else None

    def publications(self, stream: Stream, seq: int) -> dict[str, int]:
        """Return sink -> records, for the sinks that have the whole batch."""
        table = schema.publications
        rows = self._rows("publications", rows_of(table, stream, table.c.seq == seq))
        return {row.sink: row.records for row in rows}

    def sinks_of(self, stream: Stream, seqs: Collection[int]) -> dict[int, list[str]]:
        """Return batch -> the sinks that have it, for batches that any sink has."""
        table = schema.publications
        query = rows_of(table, stream, table.c.seq.in_(seqs)).order_by(table.c.sink)
        sinks: dict[int, list[str]] = {}
        for row in self._rows("sinks_of", query):
            sinks.setdefault(row.seq, []).append(row.sink)
        return sinks

    def given_up(self, stream: Stream) -> list[GivenUp]:
        """Return the parts of the stream's batches that sinks never get, oldest first."""
        table = schema.given_up
        rows = self._rows("given_up", rows_of(table, stream).order_by(table.c.seq, table.c.sink))
        return [record_in(GivenUp, row) for row in rows]

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
        return [row.seq for row in self._rows("published_after", query)]

    def last_published(self, stream: Stream, sink: str) -> int:
        """Return the newest batch of which a sink, or a part of one, got something; 0 if none."""
        table = schema.sink_heads
        row = self._row("last_published", rows_of(table, stream, table.c.sink == sink))
        return row.seq if row else 0

    def sink_progress(self, stream: Stream, sink: str) -> SinkProgress | None:
        """Return what a sink without transactions of its own has acknowledged; None if nothing was sent."""
        table = schema.sink_progress
        row = self._row("sink_progress", rows_of(table, stream, table.c.sink == sink))
        return record_in(SinkProgress, row) if row else None

    def removable_batches(self, stream: Stream, before: int) -> int:
        """Return how many batches before `before` could leave the ledger, but for their commits and runs."""
        with self._transaction("removable_batches") as connection:
            return count_removable(connection, stream, before)

    def sink_identity(self, stream: Stream, sink: str) -> str | None:
        """Return the identity of the sink, or of the part of one, that was first published to."""
        row = self._row("sink_identity", rows_of(schema.sinks, stream, schema.sinks.c.sink == sink))
        return row.identity if row else None

    def publishers(self, identity: str) -> list[tuple[Stream, str]]:
        """Return every stream, also a dropped one, that has published to the sink of an identity, with its
        name of that sink.
        """
        table = schema.sinks
        query = select(table).where(table.c.identity == identity).order_by(*table.primary_key)
        return [(stream_in(row), row.sink) for row in self._rows("publishers", query)]

    def quality(self, stream: Stream, seq: int) -> list[QualityResult]:
        """Return the results of quality suites for a batch, ordered by try, check and expectation."""
        table = schema.quality
        rows = self._rows("quality", rows_of(table, stream, table.c.seq == seq).order_by(*table.primary_key))
        return [record_in(QualityResult, row) for row in rows]

    def metrics(self, stream: Stream, seq: int) -> dict[tuple[str, str], float]:
        """Return (stage, name) -> value; the stage of the whole batch's metrics is ""."""
        rows = self._rows("metrics", rows_of(schema.metrics, stream, schema.metrics.c.seq == seq))
        return {(row.stage, row.name): row.value for row in rows}

    def metric_groups(self, stream: Stream, since: float, names: Names, most: int) -> list[MetricGroup]:
        """Return the metrics of committed batches, the oldest first, in groups of consecutive batches.

        Args:
            since: only batches that were committed after it, epoch seconds.
            names: the names of the metrics, see `series.Names`.
            most: the largest number of groups.
        """
        with self._transaction("metric_groups") as connection:
            return metric_groups(connection, stream, since, names, most)

    def metric_values(self, stream: Stream, span: tuple[int, int], name: str) -> dict[int, float]:
        """Return batch -> value of a metric of the whole batch.

        Args:
            span: the first and the last batch.
            name: the name of the metric.
        """
        with self._transaction("metric_values") as connection:
            return metric_values(connection, stream, span, name)
