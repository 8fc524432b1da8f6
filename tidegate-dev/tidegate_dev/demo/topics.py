"""The demo's Kafka client: create topics, send the events, read back what a consumer sees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from kafka import KafkaAdminClient, KafkaProducer
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.records import Slice, offset_of, read_records
from tidegate_dev.demo.events import PARTITIONS, Event
from tidegate_dev.demo.expected import History


class CommittedRecord(NamedTuple):
    """A record of a topic, with its timestamp in epoch ms."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


STOCK, AVAILABILITY, VISITS = "stock", "availability", "visits"


def create_topics(servers: str) -> set[str]:
    """Create the input and output topics that do not exist yet. Returns the names of the new topics."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        missing = {STOCK, AVAILABILITY, VISITS} - set(admin.list_topics())
        if missing:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in sorted(missing)])
        return missing
    except TopicAlreadyExistsError:
        return set()  # another `up` has created them at the same time, and sends the events
    finally:
        admin.close()


def send(servers: str, topic: str, events: Iterable[Event]) -> int:
    """Send events to a topic, in order. Returns their number after the broker has acknowledged all.

    Args:
        servers: Kafka's bootstrap servers.
        topic: The topic, which must exist.
        events: The events; each one names its partition.
    """
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20, compression_type="lz4")
    count = 0
    try:
        for event in events:
            producer.send(
                topic, event.value, event.key, partition=event.partition, timestamp_ms=event.timestamp_ms
            )
            count += 1
        producer.flush()
    finally:
        producer.close()
    return count


def read_published(servers: str, topic: str = AVAILABILITY) -> History:
    """Return the values of each key, in order, as a `read_committed` consumer sees the topic up to its end.

    Example: `{'{"storeId":"store-1","id":7}': [{"storeId": "store-1", "id": 7, "isAvailable": True}, None]}`
    """
    published: History = {}
    for record in committed_records(servers, topic):
        assert record.key is not None
        value = None if record.value is None else json.loads(record.value)
        published.setdefault(record.key.decode(), []).append(value)
    return published


def committed_records(servers: str, topic: str) -> Iterator[CommittedRecord]:
    """Yield a topic's records up to its end, by partition, as a `read_committed` consumer sees them.

    The end is the last stable offset: a `read_committed` consumer never waits for open transactions here.
    """
    config = KafkaConfig.parse(servers)
    with KafkaLog(config) as log:
        view = log.view(topic)
    for partition, end in sorted(view.stable_ends.items()):
        for record in read_records(config, Slice(topic, partition, view.starts[partition], end)):
            headers: Any = record.headers() or []
            offset, timestamp_ms = offset_of(record), record.timestamp()[1]
            yield CommittedRecord(partition, offset, timestamp_ms, record.key(), record.value(), headers)
