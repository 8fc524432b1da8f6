"""How far streams are behind Kafka now: each cluster is asked in a thread of its own, for a bounded time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from datetime import timedelta

from tidegate.errors import BrokerUnavailable, TidegateError
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Head, Offsets, Stream
from tidegate.ledger.report import lag
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
