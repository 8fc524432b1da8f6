"""Compute how far streams are behind Kafka, with one request for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.errors import TidegateError
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Head, Offsets, Stream
from tidegate.ledger.report import lag
from tidegate.settings import Settings

TIMEOUT_MS = 2_000
"""How long a page waits for a broker that does not answer."""


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
    settings: Settings, heads: Sequence[tuple[Head, str | None]], timeout_ms: int = TIMEOUT_MS
) -> Lags:
    """Return the ends of the topics of these heads, each given with the connection of its Kafka cluster.

    Raises nothing: see `Lags.error`.
    """
    ends: dict[Stream, Offsets] = {}
    error: TidegateError | None = None
    # One connection per cluster, however many streams read it.
    by_cluster: dict[str | None, list[Head]] = defaultdict(list)
    for head, connection in heads:
        if head.topic_ids:
            by_cluster[connection].append(head)
    for connection, members in by_cluster.items():
        try:
            with KafkaLog(settings.kafka(connection), timeout_ms) as log:
                stable_ends = log.stable_ends({topic for head in members for topic in head.topic_ids})
        # one cluster that is down must not hide the lag of streams on other clusters
        except TidegateError as unknown:
            error = error or unknown
            continue
        for head in members:
            ends[head.stream] = {at: end for at, end in stable_ends.items() if at[0] in head.topic_ids}
    return Lags(ends, error)
