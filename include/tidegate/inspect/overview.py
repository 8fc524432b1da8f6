"""The overview and the details of a stream, for pages and people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidegate.app.root import App
from tidegate.errors import TidegateError
from tidegate.inspect.lags import KAFKA_WAIT, Lags, current_lags
from tidegate.inspect.streams import conditions_of, with_files
from tidegate.ledger import Head, Stream, StreamStatus
from tidegate.ledger.report import HistoryEntry, batch_history, history_entry
from tidegate.ledger.stream_condition import StreamCondition, StreamFacts, read_facts
from tidegate.model.compiled import source_connection

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


def overviews(
    app: App, streams: Sequence[Stream], wait: timedelta = KAFKA_WAIT
) -> tuple[list[StreamOverview], Lags]:
    """Return streams at a glance, in the same order, and their lags. Kafka is asked once, and has `wait` to
    answer.

    A broker that is down is no error: see `Lags.error`. Raises LedgerUnavailable.
    """
    facts = read_facts(app.ledger, streams)
    # Files matter to conditions alone, and are read once for all streams.
    with_file = with_files(app, facts.values())
    lags = current_lags(app.settings, [*filter(None, map(_read_head, facts.values()))], wait)
    offsets = {
        stream: lags.lag_of(recorded.status.head)
        for stream, recorded in facts.items()
        if recorded.status is not None
    }
    conditions = conditions_of(with_file, offsets)
    shown = [
        StreamOverview(
            stream, facts[stream].status, _last(facts[stream]), offsets.get(stream), conditions[stream]
        )
        for stream in streams
    ]
    return shown, lags


def _read_head(facts: StreamFacts) -> tuple[Head, str | None] | None:
    """Return the head with the connection of the Kafka cluster that its batch has read from."""
    if facts.status is None:
        return None
    plan = facts.decided.plan if facts.decided is not None else None
    try:
        # Only the name is read: decoding the whole pipeline for each stream of a page costs more.
        cluster = source_connection(plan.spec_compiled, str(plan.stream)) if plan is not None else None
    except TidegateError:
        cluster = None  # the stream's condition shows the error
    return facts.status.head, cluster


def _last(facts: StreamFacts) -> HistoryEntry | None:
    """Return the newest committed batch."""
    try:
        return history_entry(facts.decided) if facts.decided is not None else None
    except TidegateError:
        return None  # the stream's condition shows the error


def details(app: App, stream: Stream, before: int | None = None, limit: int = 25) -> StreamDetails:
    """Return a stream in detail, with at most `limit` batches before batch `before` (None: the newest). Kafka
    has the time that a page has for it.

    Raises LedgerUnavailable, PlanUnreadable, Halted.
    """
    (overview,), lags = overviews(app, [stream], app.settings.page_wait)
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
    (overview,), _ = overviews(app, [stream])
    metrics = condition_metric(overview.condition)
    if overview.status is None:
        return metrics
    metrics |= {
        (stage, name): value
        for (stage, name), value in app.ledger.metrics(stream, overview.status.head.seq).items()
        if name in _HELD_BACK
    }
    if overview.status.newest_ms is not None:
        metrics["", "age_seconds"] = (now_ms - overview.status.newest_ms) / 1000
    return metrics if overview.lag is None else metrics | {("", "lag"): float(overview.lag)}


def condition_metric(condition: StreamCondition) -> dict[tuple[str, str], float]:
    """Return the metric `condition` of a stream, as `standing_metrics` returns metrics."""
    return {("", "condition"): float(condition.condition.urgency)}
