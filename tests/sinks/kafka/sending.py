"""A stream with a Kafka sink on a real broker, without Spark: what it sends, and what a consumer sees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tests.batch.committed import Committed
from tidegate.cli import cli
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.publisher import KafkaPublisher, RequireCommitted
from tidegate_dev.demo.topics import committed_records

PARTITIONS = 2
SEVERAL = [("1", 1), ("2", 1), ("3", 1), ("4", None)]


class Sending:
    """A stream with a Kafka sink on a real broker; a chunk is two messages."""

    def __init__(self, folder: Path, servers: str, monkeypatch: pytest.MonkeyPatch, **config: str) -> None:
        self.servers, self.topic = servers, f"out-{uuid4().hex[:8]}"
        self._admin("create_topics", [NewTopic(self.topic, PARTITIONS, 1, topic_configs=config)])
        self.batches = Committed(folder, f"  - {{kind: kafka, topic: {self.topic}}}", kafka=servers)

        def in_small_chunks(
            log: KafkaLog, shard: str, topic: str, require_committed: RequireCommitted
        ) -> KafkaPublisher:
            return KafkaPublisher(log, f"{shard}-{self.topic}", topic, require_committed, chunk_records=2)

        monkeypatch.setattr("tidegate.sinks.kafka.sink.KafkaPublisher", in_small_chunks)

    def _admin(self, call: str, *arguments: object) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            return getattr(admin, call)(*arguments)
        finally:
            admin.close()

    def topics(self) -> set[str]:
        """Return the broker's topics, without its own."""
        return {name for name in self._admin("list_topics") if not name.startswith("__")}

    def batch(self, seq: int, *values: tuple[str, int | None]) -> None:
        self.batches.commit(seq, {"first": [], "second": values})

    def publish(self, seq: int, *values: tuple[str, int | None]) -> None:
        self.batch(seq, *values)
        self.batches.publish(seq)

    def lose_progress(self) -> None:
        self._admin("delete_topics", [PROGRESS_TOPIC])

    def recreate(self) -> None:
        self._admin("delete_topics", [self.topic])
        self._admin("create_topics", [NewTopic(self.topic, PARTITIONS, 1)])

    def delete_records(self) -> None:
        ends = {TopicPartition(self.topic, partition): -1 for partition in range(PARTITIONS)}
        self._admin("delete_records", ends)

    def send_foreign(self, *keys: str) -> None:
        """Send messages of another producer to the same topic, with a source of its own."""
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for key in keys:
            producer.send(self.topic, b'{"m": 1}', key.encode(), headers=[("tidegate-source", b"other/0/1")])
        producer.flush()
        producer.close()

    def doctor(self, *options: str) -> Result:
        self.batches.app.ledger.acquire(self.batches.stream, "test").release()
        arguments = ["doctor", "visitors", *options]
        return CliRunner().invoke(cli, arguments, env=self.batches.environment)

    def recover(self, *options: str, choose: str = "restore-progress") -> Result:
        """Restore the progress of the sinks, or do what is chosen."""
        self.batches.app.ledger.acquire(self.batches.stream, "test").release()
        arguments = ["recover", "visitors", "--choose", choose, "--yes", *options]
        return CliRunner().invoke(cli, arguments, env=self.batches.environment)

    def configure(self, config: dict[str, str]) -> None:
        self._admin("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, self.topic, config)])

    def timestamps(self) -> set[int]:
        """Return the timestamps of the topic's messages."""
        return {record.timestamp for record in committed_records(self.servers, self.topic)}

    def sent(self) -> Counter[tuple[str, str]]:
        """(key, value) of what a read_committed consumer sees, without what others sent."""
        counts: Counter[tuple[str, str]] = Counter()
        for record in committed_records(self.servers, self.topic):
            if not record.headers[0][1].startswith(b"other"):
                assert record.key is not None
                counts[record.key.decode(), (record.value or b"-").decode()] += 1
        return counts


def once(*values: tuple[str, int | None]) -> Counter[tuple[str, str]]:
    return Counter((key, "-" if value is None else f'{{"m": {value}}}') for key, value in values)
