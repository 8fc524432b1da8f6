"""Find open transactions: a `read_committed` reader sees nothing after the start of the oldest one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.errors import KafkaError

from kafka import TopicPartition


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
