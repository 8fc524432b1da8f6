"""Metrics of many batches, summed up in the database: groups of consecutive batches, for charts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, or_, select

from tidegate.ledger import schema
from tidegate.ledger.records import Stream
from tidegate.ledger.rows import in_stream

MOST_BATCHES = 100_000
"""The most batches of one chart, the newest ones: a month of one batch every 26 seconds."""
Names = Mapping[bool, Collection[str]]
"""Whether it is a metric of a stage, and not of the whole batch -> the names of metrics."""
Metric = tuple[str, str]
"""Stage and name; the stage of the whole batch's metrics is ""."""


@dataclass(frozen=True)
class MetricGroup:
    """The metrics of consecutive batches.

    Args:
        first: The first batch.
        last: The last batch.
        begins_ms: When the batch before the first one was committed, epoch ms; None for batch 1.
        committed_at_ms: When the last one was committed, epoch ms.
        totals: The sum over the batches.
        greatest: The largest value of a batch.
        newest: The value of the last batch.
    """

    first: int
    last: int
    begins_ms: int | None
    committed_at_ms: int
    totals: Mapping[Metric, float]
    greatest: Mapping[Metric, float]
    newest: Mapping[Metric, float]


def metric_groups(
    connection: Connection, stream: Stream, since: float, names: Names, most: int
) -> list[MetricGroup]:
    """Return the metrics of batches committed after `since`, in at most `most` groups, the oldest first.

    Args:
        connection: an open transaction.
        since: epoch seconds.
        names: The names of the metrics.
        most: the largest number of groups.
    """
    commits = _commits(connection, stream, since)
    if not commits:
        return []
    width = -(-len(commits) // most)
    ends = [commits[min(at + width, len(commits)) - 1] for at in range(0, len(commits), width)]
    first = commits[0].seq
    totals: list[dict[Metric, float]] = [{} for _ in ends]
    greatest: list[dict[Metric, float]] = [{} for _ in ends]
    newest: dict[int, dict[Metric, float]] = {end.seq: {} for end in ends}
    for row in _summed(connection, stream, (first, ends[-1].seq), names, width):
        totals[row.number][row.stage, row.name] = row.total
        greatest[row.number][row.stage, row.name] = row.greatest
    for row in _metrics_at(connection, stream, list(newest), names):
        newest[row.seq][row.stage, row.name] = row.value
    starts: list[Row[Any] | None] = [_commit_before(connection, stream, first), *ends]
    return [
        MetricGroup(
            first=first + number * width,
            last=end.seq,
            begins_ms=None if start is None else round(start.committed_at * 1000),
            committed_at_ms=round(end.committed_at * 1000),
            totals=totals[number],
            greatest=greatest[number],
            newest=newest[end.seq],
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=False))
    ]


def metric_values(
    connection: Connection, stream: Stream, span: tuple[int, int], name: str
) -> dict[int, float]:
    """Return batch -> value of a metric of the whole batch.

    Args:
        connection: an open transaction.
        span: the first and the last batch.
        name: the name of the metric.
    """
    table = schema.metrics
    is_metric = and_(in_stream(table, stream), table.c.stage == "", table.c.name == name)
    query = select(table.c.seq, table.c.value).where(is_metric, table.c.seq.between(*span))
    return {row.seq: row.value for row in connection.execute(query)}


def _commits(connection: Connection, stream: Stream, since: float) -> list[Row[Any]]:
    """Return the seq and instant of each commit after `since`, the oldest first."""
    table = schema.commits
    query: Select[Any] = select(table.c.seq, table.c.committed_at).where(in_stream(table, stream))
    newest_first = query.where(table.c.committed_at > since).order_by(table.c.seq.desc()).limit(MOST_BATCHES)
    return list(connection.execute(newest_first))[::-1]


def _commit_before(connection: Connection, stream: Stream, seq: int) -> Row[Any] | None:
    table = schema.commits
    query: Select[Any] = select(table.c.seq, table.c.committed_at)
    return connection.execute(query.where(in_stream(table, stream), table.c.seq == seq - 1)).first()


def _summed(
    connection: Connection, stream: Stream, span: tuple[int, int], names: Names, width: int
) -> Sequence[Row[Any]]:
    table = schema.metrics
    number = ((table.c.seq - span[0]) // width).label("number")
    columns = (number, table.c.stage, table.c.name)
    total, greatest = func.sum(table.c.value).label("total"), func.max(table.c.value).label("greatest")
    chosen = and_(in_stream(table, stream), table.c.seq.between(*span), _has_name(names))
    query: Select[Any] = select(*columns, total, greatest).where(chosen)
    return connection.execute(query.group_by(*columns)).all()


def _metrics_at(
    connection: Connection, stream: Stream, seqs: Sequence[int], names: Names
) -> Sequence[Row[Any]]:
    table = schema.metrics
    chosen = and_(in_stream(table, stream), table.c.seq.in_(seqs), _has_name(names))
    return connection.execute(select(table).where(chosen)).all()


def _has_name(names: Names) -> Any:
    table = schema.metrics
    return or_(
        *(
            and_(table.c.stage != "" if is_stage else table.c.stage == "", table.c.name.in_(list(listed)))
            for is_stage, listed in names.items()
        )
    )
