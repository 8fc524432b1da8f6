"""Facts about topics beside their offsets: the timestamps that a topic accepts, leader epochs, open
transactions, and the topic of progress records.

Leader epochs: under which leader of a partition a record was written, and where each leader's records end.

Offset and epoch identify a record: two logs that both have it are equal up to it. So the epoch of the last
record that was read shows whether the log was truncated below it, even if the log has grown again since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import kafka.errors
from kafka.errors import KafkaError
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from kafka import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
TYPE = "message.timestamp.type"
DIFFERENCE = "message.timestamp.difference.max.ms"
"""Until Kafka 3.x, one setting for both limits."""

RETENTION = "retention.ms"
CLEANUP = "cleanup.policy"
TIMESTAMP_SETTINGS = (BEFORE, AFTER, TYPE, DIFFERENCE, RETENTION, CLEANUP)
_UNLIMITED = 10**15
"""More than 30,000 years. Kafka's default, the largest `long`, means no limit."""


@dataclass(frozen=True)
class TimestampLimits:
    """The limits of a topic on timestamps, in milliseconds; None: no limit.

    Args:
        before_ms: how much a timestamp may be behind the broker's clock when the record arrives.
        after_ms: how much it may be ahead.
        kept_ms: how long the topic keeps a record after its timestamp.
    """

    before_ms: int | None = None
    after_ms: int | None = None
    kept_ms: int | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> TimestampLimits:
        """Return the limits that a topic's settings define, as far as the broker shows them.

        With LogAppendTime there is no limit, since the broker replaces the timestamps.

        Example: `TimestampLimits.parse({"message.timestamp.after.max.ms": "3600000"}).after_ms` is `3600000`.
        """
        if settings.get(TYPE) == "LogAppendTime":
            return cls()
        before, after = (_smallest(settings, name, DIFFERENCE) for name in (BEFORE, AFTER))
        deletes = "delete" in settings.get(CLEANUP, "")
        return cls(before, after, _smallest(settings, RETENTION) if deletes else None)

    @property
    def deletes_first(self) -> bool:
        """Return whether the topic deletes records that it would still accept."""
        return self.kept_ms is not None and (self.before_ms is None or self.kept_ms < self.before_ms)

    def earliest_ms(self, now_ms: int) -> int | None:
        """Return the earliest timestamp (epoch ms) that the topic accepts at an instant and does not delete
        at once.

        Example: `TimestampLimits(before_ms=1_000).earliest_ms(5_000)` is 4,000.
        """
        behind_ms = self.kept_ms if self.deletes_first else self.before_ms
        return None if behind_ms is None else now_ms - behind_ms

    def latest_ms(self, now_ms: int) -> int | None:
        """Return the latest timestamp (epoch ms) that the topic accepts at an instant. It stays acceptable
        later.
        """
        return None if self.after_ms is None else now_ms + self.after_ms


def hidden_settings(topic: str) -> str:
    """Return a message about a topic whose settings this user may not read."""
    return (
        f"The settings of the topic {topic} are not shown to this user, so what it refuses is found only "
        "when it is sent. Allow it to see them: kafka-acls.sh --add --allow-principal User:NAME --operation "
        f"DescribeConfigs --topic {topic}"
    )


def _smallest(settings: Mapping[str, str], *names: str) -> int | None:
    # Kafka writes "no limit" as -1, or as the largest number.
    given = [int(settings[name]) for name in names if name in settings]
    return min((limit for limit in given if 0 <= limit < _UNLIMITED), default=None)


Partition = tuple[str, int]
_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Partition = _Topic.OffsetForLeaderPartition


class EpochEnd(NamedTuple):
    """The newest leader epoch with records, up to the epoch of the request, and the offset after its last
    record.

    If the log has no such epoch, `epoch` is that of the request, and `end` the offset where its records would
    have ended. Both are -1 if the epoch of the request is newer than all that the log has.
    """

    epoch: int
    end: int


EpochEnds = Callable[[Mapping[Partition, int]], Mapping[Partition, EpochEnd]]
"""A function that asks the leaders of partitions where an epoch of each partition ends."""


def epoch_ends(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
    """Return where an epoch of each partition ends, as its leader says, with one request per leader.

    kafka-python's admin client has no call for this request (KIP-320), but it can find the leaders. Raises
    KafkaError.
    """
    ends: dict[Partition, EpochEnd] = admin._manager.run(_epoch_ends, admin, epochs)
    return ends


async def _epoch_ends(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
    leaders = await admin._async_get_leader_for_partitions({TopicPartition(*at) for at in epochs})
    ends: dict[Partition, EpochEnd] = {}
    for leader, partitions in leaders.items():
        request = _request({at: epochs[at] for at in partitions})
        ends |= _ends(await admin._manager.send(request, node_id=leader))
    return ends


def _request(epochs: Mapping[Partition, int]) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), epoch in epochs.items():
        topics.setdefault(topic, []).append(
            # -1: the leader does not compare its own epoch with one that this client has.
            _Partition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,  # a consumer
        topics=[_Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _ends(response: Any) -> dict[Partition, EpochEnd]:
    ends = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = kafka.errors.for_code(partition.error_code)
            if error is not kafka.errors.NoError:
                raise error(f"{topic.topic}[{partition.partition}] does not say where its epochs end")
            ends[topic.topic, partition.partition] = EpochEnd(partition.leader_epoch, partition.end_offset)
    return ends


def epochs_before(
    ask: EpochEnds, offsets: Mapping[Partition, int], newest: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Return the leader epoch of the record before each offset, for partitions whose log still has that
    record.

    Most partitions have the epoch of their present leader, which one request shows; a partition that is far
    behind needs one more request for each leader that has written since.

    Args:
        ask: asks the leaders where an epoch of each partition ends.
        offsets: (topic, partition) -> the offset.
        newest: the epochs of the partitions' present leaders.
    """
    # Under its first leader a log has no other epoch, so nobody has to be asked.
    epochs = {at: 0 for at, epoch in newest.items() if epoch == 0}
    begins: dict[Partition, int] = {}
    candidates = {at: epoch for at, epoch in newest.items() if epoch > 0}
    # Invariant: the record before the offset is of the candidate's epoch, or of an older one.
    while candidates:
        before = ask({at: epoch - 1 for at, epoch in candidates.items()})
        older = {}
        for at, (epoch, end) in before.items():
            if end < offsets[at]:
                epochs[at] = candidates[at]
            elif epoch == 0:
                epochs[at] = 0
            elif epoch > 0 and end != begins.get(at):  # the same end again: the log has no older epoch
                older[at], begins[at] = epoch, end
        candidates = older
    return epochs


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest open transaction of a partition, which begins at `offset`.

    `producer_id` is None if the broker does not report it. `transactional_id` and `started_ms` (epoch ms, by
    the broker's clock) are None if no coordinator has the transaction; then nobody will ever end it.
    """

    topic: str
    partition: int
    offset: int
    producer_id: int | None = None
    transactional_id: str | None = None
    started_ms: int | None = None


def open_transactions(admin: Any, topic: str, starts: Mapping[int, int]) -> list[OpenTransaction]:
    """Return the open transactions that begin at `starts` (partition -> offset), with what the broker
    reports.
    """
    try:
        producers = _producers(admin, topic, starts)
    except KafkaError:  # an older broker, or the user may not ask: the offsets alone still help
        producers = {}
    return [_described(admin, topic, at, offset, producers.get(at)) for at, offset in starts.items()]


def _producers(admin: Any, topic: str, starts: Mapping[int, int]) -> dict[int, int]:
    """Return partition -> id of the producer whose transaction begins there."""
    states = admin.describe_producers([TopicPartition(topic, partition) for partition in starts])
    return {
        at.partition: producer.producer_id
        for at, state in states.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset == starts[at.partition]
    }


def _described(admin: Any, topic: str, partition: int, offset: int, producer: int | None) -> OpenTransaction:
    if producer is None:
        return OpenTransaction(topic, partition, offset)
    try:
        listed = admin.list_transactions(producer_id_filters=[producer])
        names = [row.transactional_id for rows in listed.values() for row in rows]
        described = admin.describe_transactions(names[:1]) if names else {}
    except KafkaError:  # as above
        described = {}
    for name, state in described.items():
        if TopicPartition(topic, partition) in state.topic_partitions:
            return OpenTransaction(topic, partition, offset, producer, name, state.transaction_start_time_ms)
    return OpenTransaction(topic, partition, offset, producer)


_HOUR_MS = 3_600_000
_LATEST_MS = 24 * _HOUR_MS

SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # The broker never compacts the active segment. It closes a segment when it appends to it and the segment
    # is full, or its first record is an hour old.
    "segment.bytes": str(1024 * 1024),
    "segment.ms": str(_HOUR_MS),
    "max.compaction.lag.ms": str(_HOUR_MS),
    "min.cleanable.dirty.ratio": "0.1",
}
"""The settings of the topic. With them its log has one record per shard, and those of the last hours."""

FIRST_WINDOW = 64
WIDENING = 8
"""The number of offsets that are read first, and the factor for more if the record is not among them."""

Read = Callable[[int, int], "Iterable[Message]"]
"""A function that returns the committed records of a partition between two offsets."""


def newest_record(read: Read, start: int, end: int, key: bytes) -> Message | None:
    """Return the last committed record with this key of those from offset `start` to before `end`; None if
    there is none.

    The search reads windows from the end backwards, each larger than the one before. So its cost depends on
    what other shards have written since the record, and not on the age of the topic. The windows have no gap
    between them, and each is read to its end, so the first one with a record has the newest. A window can
    begin inside of a transaction: with each fetch the broker lists the aborted transactions in it, no matter
    where they began.
    """
    upper, window = end, FIRST_WINDOW
    while upper > start:
        lower = max(start, end - window)
        records = [record for record in read(lower, upper) if record.key() == key]
        if records:
            return records[-1]
        upper, window = lower, window * WIDENING
    return None


def shortcomings(settings: Mapping[str, str], topic: str) -> Iterator[str]:
    """Yield a message for each setting with which the topic could lose records, or would grow long."""
    policy = settings["cleanup.policy"]
    if policy != SETTINGS["cleanup.policy"]:
        yield (
            f"{topic} has cleanup.policy {policy}: the broker may delete a sink's progress, which halts it. "
            f"{_alter(topic, 'cleanup.policy')}"
        )
    closes_ms = min(int(settings["segment.ms"]), int(settings["max.compaction.lag.ms"]))
    if closes_ms > _LATEST_MS:
        yield (
            f"{topic} is compacted only after {closes_ms // _HOUR_MS} hours: to find the progress of a sink "
            "that was silent meanwhile, tidegate reads everything that other sinks have written. "
            f"{_alter(topic, 'segment.ms', 'max.compaction.lag.ms')}"
        )


def _alter(topic: str, *names: str) -> str:
    settings = ",".join(f"{name}={SETTINGS[name]}" for name in names)
    return f"Set it: kafka-configs.sh --alter --topic {topic} --add-config {settings}"
