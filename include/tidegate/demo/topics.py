"""The demo's side of Kafka: make topics, send the events, read back what a consumer sees."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tidegate.broker.publisher import read_until
from tidegate.demo.events import PARTITIONS, Event
from tidegate.demo.expected import History

STOCK, AVAILABILITY, VISITS = "stock", "availability", "visits"


def create_topics(servers: str) -> set[str]:
    """The input and the output topics, unless they are there. Returns those that are new."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        missing = {STOCK, AVAILABILITY, VISITS} - set(admin.list_topics())
        if missing:
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in sorted(missing)])
        return missing
    finally:
        admin.close()


def send(servers: str, topic: str, events: Iterable[Event]) -> int:
    """Send events to a topic, in order; returns how many."""
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
    """Key -> values in order, as a `read_committed` consumer sees the topic up to its end."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False, group_id=None
    )
    published: History = {}
    try:
        for partition in sorted(consumer.partitions_for_topic(topic) or ()):
            at = TopicPartition(topic, partition)
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            for record in read_until(consumer, at, consumer.end_offsets([at])[at]):
                value = None if record.value is None else json.loads(record.value)
                published.setdefault(record.key.decode(), []).append(value)
    finally:
        consumer.close()
    return published
