"""Queries over many batches or many streams. A page takes a few queries, not one per row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, or_, select, tuple_

from tidegate.ledger import schema
from tidegate.ledger.records import Attempt, BatchFacts, Failure, Plan, Stream, StreamStatus
from tidegate.ledger.rows import attempt_in, failure_in, head_in, in_stream, partitions_in, plan_in


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
    committed = _committed(connection, stream, before, limit)
    plans = _plans(connection, stream, before, limit)
    # Either can be missing: an open batch has no commit, and an old one has lost its plan.
    seqs = sorted({*committed, *plans}, reverse=True)[:limit]
    if not seqs:
        return []
    span = (seqs[-1], seqs[0])
    attempts = _attempts(connection, stream, span, committed)
    is_whole_batch = schema.metrics.c.stage == ""
    metrics = _by_batch(_rows(connection, schema.metrics, stream, span, is_whole_batch), "name", "value")
    publications = _by_batch(_rows(connection, schema.publications, stream, span), "sink", "records")
    failures = {row.seq: failure_in(stream, row) for row in _rows(connection, schema.failures, stream, span)}
    runs = {row.seq: str(row.run_id) for row in _rows(connection, schema.runs, stream, span)}
    facts = []
    for seq in seqs:
        plan, planned_at = plans.get(seq, (None, None))
        facts.append(
            BatchFacts(
                stream=stream,
                seq=seq,
                run_id=plan.run_id if plan is not None else runs.get(seq),
                plan=plan,
                planned_at=planned_at,
                attempt=attempts.get(seq),
                committed_at=committed[seq].committed_at if seq in committed else None,
                metrics=metrics[seq],
                publications=publications[seq],
                failure=failures.get(seq),
            )
        )
    return facts


def stream_statuses(
    connection: Connection, streams: Sequence[Stream], holder_in: Callable[[Row[Any]], str | None]
) -> list[StreamStatus]:
    """Return the status of each stream, in the given order, without streams that were never planned.

    Args:
        connection: an open transaction.
        streams: the streams to read.
        holder_in: takes a row of `heads` and returns who holds a lease that is still valid, or None.
    """
    rows = {_stream(row): row for row in connection.execute(_status_query(streams))}
    return [_status(rows[stream], holder_in(rows[stream])) for stream in streams if stream in rows]


def failing_streams(connection: Connection) -> dict[Stream, list[Failure]]:
    """Return the recorded failures of each stream's head and of the batch after it. A later try may have
    succeeded.
    """
    heads, failures = schema.heads, schema.failures
    joined = heads.join(failures, _same_stream(heads, failures))
    query = select(failures).select_from(joined)
    is_current = or_(failures.c.seq == heads.c.seq, failures.c.seq == heads.c.seq + 1)
    failures_by_stream: dict[Stream, list[Failure]] = defaultdict(list)
    for row in connection.execute(query.where(is_current).order_by(failures.c.seq)):
        failures_by_stream[_stream(row)].append(failure_in(_stream(row), row))
    return failures_by_stream


def plans_with_pipelines() -> Select[Any]:
    """Return a query for plans, each with text and compiled form of its pipeline; null if the ledger lost the
    pipeline.
    """
    plans, pipelines = schema.plans, schema.pipelines
    same = and_(
        pipelines.c.pipeline == plans.c.pipeline,
        pipelines.c.generation == plans.c.generation,
        pipelines.c.hash == plans.c.spec_hash,
    )
    texts = pipelines.c.text.label("spec_text"), pipelines.c.compiled.label("spec_compiled")
    return select(plans, *texts).select_from(plans.outerjoin(pipelines, same))


def _committed(connection: Connection, stream: Stream, before: int | None, limit: int) -> dict[int, Row[Any]]:
    table = schema.commits
    return {row.seq: row for row in connection.execute(_newest(select(table), table, stream, before, limit))}


def _plans(
    connection: Connection, stream: Stream, before: int | None, limit: int
) -> dict[int, tuple[Plan, float]]:
    """Return each plan with the instant (epoch seconds) at which it was written."""
    rows = connection.execute(_newest(plans_with_pipelines(), schema.plans, stream, before, limit))
    return {row.seq: (plan_in(stream, row), row.planned_at) for row in rows}


def _newest(query: Select[Any], table: Table, stream: Stream, before: int | None, limit: int) -> Select[Any]:
    query = query.where(in_stream(table, stream)).order_by(table.c.seq.desc()).limit(limit)
    return query if before is None else query.where(table.c.seq < before)


def _attempts(
    connection: Connection, stream: Stream, span: tuple[int, int], committed: dict[int, Row[Any]]
) -> dict[int, Attempt]:
    """Return the committed attempt of each batch; for a batch without a commit, the newest attempt."""
    attempts: dict[int, Attempt] = {}
    rows = _rows(connection, schema.attempts, stream, span)
    # By epoch, so that the last assignment is the newest try.
    for row in sorted(rows, key=lambda row: int(row.epoch)):
        if row.seq not in committed or committed[row.seq].attempt == row.name:
            attempts[row.seq] = attempt_in(stream, row)
    return attempts


def _rows(
    connection: Connection, table: Table, stream: Stream, span: tuple[int, int], *conditions: Any
) -> Sequence[Row[Any]]:
    query = select(table).where(in_stream(table, stream), table.c.seq.between(*span), *conditions)
    return connection.execute(query).all()


def _by_batch(rows: Sequence[Row[Any]], name: str, value: str) -> dict[int, dict[str, Any]]:
    """Return batch -> column `name` -> column `value`."""
    by_batch: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        by_batch[row.seq][row._mapping[name]] = row._mapping[value]
    return by_batch


def _status_query(streams: Sequence[Stream]) -> Select[Any]:
    """Return a query with one row per stream: the head, its commit and attempt, and the plan after it."""
    heads, commits, attempts, plans = schema.heads, schema.commits, schema.attempts, schema.plans
    is_head_commit = and_(_same_stream(heads, commits), commits.c.seq == heads.c.seq)
    is_committed_attempt = and_(
        _same_stream(heads, attempts), attempts.c.seq == heads.c.seq, attempts.c.name == commits.c.attempt
    )
    is_open = and_(_same_stream(heads, plans), plans.c.seq == heads.c.seq + 1)
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
    times = [at for stage in (row.times or {}).values() for at in partitions_in(stage).values() if at >= 0]
    return StreamStatus(
        head=head_in(_stream(row), row),
        holder=holder,
        committed_at=row.committed_at,
        newest_ms=max(times, default=None),
        open_seq=row.open_seq,
        planned_at=row.planned_at,
    )


def _stream(row: Row[Any]) -> Stream:
    return Stream(row.pipeline, row.generation)


def _same_stream(left: Table, right: Table) -> Any:
    return and_(left.c.pipeline == right.c.pipeline, left.c.generation == right.c.generation)
