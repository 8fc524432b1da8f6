"""The demo's Kafka client: create topics, send the events, read back what a consumer sees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kafka.admin import NewTopic

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.progress import committed_reader, read_until
from tidegate_dev.demo.events import PARTITIONS, Event
from tidegate_dev.demo.expected import History

STOCK, AVAILABILITY, VISITS = "stock", "availability", "visits"


def create_topics(servers: str) -> set[str]:
    """Create the input and output topics that do not exist yet. Returns the names of the new topics."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        missing = {STOCK, AVAILABILITY, VISITS} - set(admin.list_topics())
        if missing:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in sorted(missing)])
        return missing
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
        value = None if record.value is None else json.loads(record.value)
        published.setdefault(record.key.decode(), []).append(value)
    return published


def committed_records(servers: str, topic: str) -> Iterator[Any]:
    """Yield a topic's records up to its end, by partition, as a `read_committed` consumer sees them.

    The end is the last stable offset: a `read_committed` consumer never waits for open transactions here.
    """
    with committed_reader(KafkaConfig.parse(servers)) as consumer:
        for partition in sorted(consumer.partitions_for_topic(topic) or ()):
            topic_partition = TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            consumer.seek_to_beginning(topic_partition)
            end = consumer.end_offsets([topic_partition])[topic_partition]
            yield from read_until(consumer, topic_partition, end)
