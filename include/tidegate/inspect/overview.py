"""The overview and the details of a stream, for pages and people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.app.root import App
from tidegate.errors import TidegateError
from tidegate.inspect.conditions import stream_condition
from tidegate.inspect.lag import Lags, current_lags
from tidegate.ledger import Head, Stream, StreamStatus
from tidegate.ledger.report import HistoryEntry, batch_history
from tidegate.ledger.stream_condition import StreamCondition
from tidegate.spec.document import source_connection

CHARTED_BATCHES = 100
_HELD_BACK = ("suppression-buffer-records", "suppression-buffer-bytes")


@dataclass(frozen=True)
class StreamOverview:
    """A stream at a glance.

    Args:
        status: None before the first plan.
        last: The newest committed batch; None before the first plan.
        lag: In offsets; None if it is unknown.
    """

    stream: Stream
    status: StreamStatus | None
    last: HistoryEntry | None
    lag: int | None
    condition: StreamCondition


@dataclass(frozen=True)
class StreamDetails:
    """A stream in detail. Batches are sorted by age, the newest first.

    Args:
        recent: The newest batches, at most CHARTED_BATCHES.
        page: The batches that were requested.
        has_more: Whether there are batches before those of the page.
        metrics: stage -> metric -> value after the newest committed batch.
    """

    overview: StreamOverview
    lags: Lags
    recent: Sequence[HistoryEntry]
    page: Sequence[HistoryEntry]
    has_more: bool
    metrics: Mapping[str, Mapping[str, float]]


def overviews(app: App, streams: Sequence[Stream]) -> tuple[list[StreamOverview], Lags]:
    """Return streams at a glance, in the same order, and their lags. Kafka is asked once.

    A broker that is down is no error: see `Lags.error`. Raises LedgerUnavailable.
    """
    statuses = {status.stream: status for status in app.ledger.stream_statuses(streams)}
    heads = [(status.head, _source_cluster(app, status.head)) for status in statuses.values()]
    lags = current_lags(app.settings, heads)
    return [_overview(app, stream, statuses.get(stream), lags) for stream in streams], lags


def _source_cluster(app: App, head: Head) -> str | None:
    """Return the connection of the Kafka cluster that the head's batch has read from."""
    try:
        plan = app.ledger.plan(head.stream, head.seq) if head.seq else None
        # Only the name is read: decoding the whole pipeline for each stream of a page costs more.
        return source_connection(plan.spec_compiled, str(head.stream)) if plan is not None else None
    except TidegateError:
        return None  # the stream's condition shows the error


def details(app: App, stream: Stream, before: int | None = None, limit: int = 25) -> StreamDetails:
    """Return a stream in detail, with at most `limit` batches before batch `before` (None: the newest).

    Raises LedgerUnavailable, PlanUnreadable, Halted.
    """
    (overview,), lags = overviews(app, [stream])
    # one more than the page needs, to know whether older batches follow
    recent = batch_history(app.ledger, stream, limit=max(CHARTED_BATCHES, limit + 1))
    page = recent if before is None else batch_history(app.ledger, stream, before, limit + 1)
    return StreamDetails(
        overview=overview,
        lags=lags,
        recent=recent[:CHARTED_BATCHES],
        page=page[:limit],
        has_more=len(page) > limit,
        metrics=stage_metrics(app, stream, overview.last.seq) if overview.last else {},
    )


def stage_metrics(app: App, stream: Stream, seq: int) -> dict[str, dict[str, float]]:
    """Return stage -> metric -> value of a batch; metrics of the whole batch have the stage ''."""
    by_stage: dict[str, dict[str, float]] = defaultdict(dict)
    for (stage, name), value in app.ledger.metrics(stream, seq).items():
        by_stage[stage][name] = value
    return dict(by_stage)


def standing_metrics(app: App, stream: Stream, now_ms: int) -> dict[tuple[str, str], float]:
    """Return (stage, metric) -> value of a stream now, independent of the batch that is running.

    These are `condition` (see `Urgency`), `lag` and `age_seconds` if they are known, and what each stage
    holds back after the head's batch.
    """
    statuses = app.ledger.stream_statuses([stream])
    if not statuses:
        return condition_metric(stream_condition(app, stream))
    (status,) = statuses
    metrics = {
        (stage, name): value
        for (stage, name), value in app.ledger.metrics(stream, status.head.seq).items()
        if name in _HELD_BACK
    }
    if status.newest_ms is not None:
        metrics["", "age_seconds"] = (now_ms - status.newest_ms) / 1000
    lag = current_lags(app.settings, [(status.head, _source_cluster(app, status.head))]).lag_of(status.head)
    metrics |= condition_metric(stream_condition(app, stream, lag))
    return metrics if lag is None else metrics | {("", "lag"): float(lag)}


def condition_metric(condition: StreamCondition) -> dict[tuple[str, str], float]:
    """Return the metric `condition` of a stream, as `standing_metrics` returns metrics."""
    return {("", "condition"): float(condition.condition.urgency)}


def _overview(app: App, stream: Stream, status: StreamStatus | None, lags: Lags) -> StreamOverview:
    if status is None:
        return StreamOverview(stream, None, None, None, stream_condition(app, stream))
    try:
        entries = batch_history(app.ledger, stream, status.head.seq + 1, limit=1) if status.head.seq else []
    except TidegateError:
        entries = []  # the stream's condition shows the error
    last = entries[0] if entries else None
    lag = lags.lag_of(status.head)
    return StreamOverview(stream, status, last, lag, stream_condition(app, stream, lag))
