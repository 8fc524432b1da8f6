"""Transactions that keep readers waiting: a `read_committed` one sees nothing after an open one's start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest open transaction of a partition, which begins at `offset`.

    Its producer is null where the broker does not tell. `transactional_id` and `started_ms` (epoch ms, by the
    broker's clock) are null where no coordinator knows of the transaction: then nobody will ever end it.
    """

    topic: str
    partition: int
    offset: int
    producer_id: int | None = None
    transactional_id: str | None = None
    started_ms: int | None = None


def open_transactions(admin: Any, topic: str, starts: Mapping[int, int]) -> list[OpenTransaction]:
    """The open transactions that begin at `starts` (partition -> offset), each with what the broker tells."""
    try:
        producers = _producers(admin, topic, starts)
    except KafkaError:  # an older broker, or one that does not let this user ask: the offsets still help
        producers = {}
    return [_described(admin, topic, at, offset, producers.get(at)) for at, offset in starts.items()]


def _producers(admin: Any, topic: str, starts: Mapping[int, int]) -> dict[int, int]:
    """Partition -> id of the producer whose transaction begins there."""
    found = admin.describe_producers([TopicPartition(topic, partition) for partition in starts])
    return {
        at.partition: producer.producer_id
        for at, state in found.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset == starts[at.partition]
    }


def _described(admin: Any, topic: str, partition: int, offset: int, producer: int | None) -> OpenTransaction:
    if producer is None:
        return OpenTransaction(topic, partition, offset)
    try:
        listed = admin.list_transactions(producer_id_filters=[producer])
        names = [each.transactional_id for of_broker in listed.values() for each in of_broker]
        described = admin.describe_transactions(names[:1]) if names else {}
    except KafkaError:  # as above
        described = {}
    for name, each in described.items():
        if TopicPartition(topic, partition) in each.topic_partitions:
            return OpenTransaction(topic, partition, offset, producer, name, each.transaction_start_time_ms)
    return OpenTransaction(topic, partition, offset, producer)
