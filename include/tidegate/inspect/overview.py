"""The overview and the details of a stream, for pages and people, and how far streams are behind Kafka.

Each cluster is asked in a thread of its own, for a bounded time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from datetime import timedelta

from tidegate.app.root import App
from tidegate.errors import BrokerUnavailable, TidegateError
from tidegate.inspect.streams import conditions_of, with_files
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Head, Offsets, Stream, StreamStatus
from tidegate.ledger.report import HistoryEntry, batch_history, history_entry, lag
from tidegate.ledger.stream_condition import StreamCondition, StreamFacts, read_facts
from tidegate.model.compiled import source_connection
from tidegate.settings import Settings

KAFKA_WAIT = timedelta(seconds=2)
"""How long a command or a task waits for the ends of topics; pages have `Settings.page_wait`."""


@dataclass(frozen=True)
class Lags:
    """The ends of each stream's topics in Kafka now.

    Args:
        stable_ends: The last stable offsets; streams whose ends are unknown are missing, and their lag is
            None.
        error: Why the ends of some or all streams are unknown.
    """

    stable_ends: Mapping[Stream, Offsets] = field(default_factory=dict)
    error: TidegateError | None = None

    def ends_of(self, head: Head) -> Offsets:
        """Return the offsets up to which the topics of a stream can be read."""
        return self.stable_ends.get(head.stream, {})

    def lag_of(self, head: Head) -> int | None:
        """Return the number of offsets that a stream has not read yet.

        Return None if it is unknown: before the first batch, without a broker, and if a topic is missing.
        """
        ends = self.ends_of(head)
        # With a topic missing, the sum would be too small, and look as if the stream had caught up.
        if not head.topic_ids or {topic for topic, _ in ends} != set(head.topic_ids):
            return None
        return lag(head, ends)


def current_lags(
    settings: Settings, heads: Sequence[tuple[Head, str | None]], wait: timedelta = KAFKA_WAIT
) -> Lags:
    """Return the ends of the topics of these heads, each given with the connection of its Kafka cluster.

    It returns after `wait` at the latest, however many clusters do not answer. Raises nothing: see
    `Lags.error`.
    """
    # One connection per cluster, however many streams read it.
    by_cluster: dict[str | None, list[Head]] = defaultdict(list)
    for head, connection in heads:
        if head.topic_ids:
            by_cluster[connection].append(head)
    if not by_cluster:
        return Lags()
    # Not a `with` block, which would wait for threads that still wait for a broker. They end by themselves.
    threads = ThreadPoolExecutor(len(by_cluster), "tidegate-lag")
    asked = {
        connection: threads.submit(_stable_ends, settings, connection, members, wait)
        for connection, members in by_cluster.items()
    }
    threads.shutdown(wait=False)
    wait_for(asked.values(), wait.total_seconds())
    ends: dict[Stream, Offsets] = {}
    error: TidegateError | None = None
    for connection, answer in asked.items():
        # one cluster that is down must not hide the lag of streams on other clusters
        try:
            ends |= _answer_of(answer, settings, connection, wait)
        except TidegateError as unknown:
            error = error or unknown
    return Lags(ends, error)


def _stable_ends(
    settings: Settings, connection: str | None, heads: Sequence[Head], wait: timedelta
) -> dict[Stream, Offsets]:
    """Return the ends of the topics of streams that read one cluster."""
    with KafkaLog(settings.kafka(connection), round(wait.total_seconds() * 1000)) as log:
        ends = log.stable_ends({topic for head in heads for topic in head.topic_ids})
    return {head.stream: {at: end for at, end in ends.items() if at[0] in head.topic_ids} for head in heads}


def _answer_of(
    answer: Future[dict[Stream, Offsets]], settings: Settings, connection: str | None, wait: timedelta
) -> dict[Stream, Offsets]:
    """Return the answer of a cluster. Raises its error, or BrokerUnavailable if it has not answered yet."""
    if answer.done():
        return answer.result()
    # Without a look at its TLS and login, as for other errors: that would connect again, and take seconds.
    raise BrokerUnavailable(
        f"Kafka at {settings.kafka(connection).servers} has not answered within {wait.total_seconds():g} s",
        "Check that it runs and is reachable from here: tidegate doctor.",
    )


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
