"""A small world for a test: its own topics, pipeline file, ledger and lake, on real Kafka and real Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

import yaml
from kafka import KafkaAdminClient, KafkaProducer
from tidegate import inspect
from tidegate.app import App, OpenSession, stream_of
from tidegate.batch import Outcome, Trigger, run_batch
from tidegate.ledger import Stream
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import load_pipeline
from tidegate_dev.demo.topics import read_published

if TYPE_CHECKING:
    pass

NOW_MS = 1_700_000_000_000
"""The tests' now. It lies in the past: a broker takes no records that are more than an hour ahead."""

PIPELINE = """\
pipeline: availability
generation: {generation}
source:
  topics: [{source}]
  format: json
  columns: "storeId string, id bigint, quantity int"
  key: [storeId, id]
{source_extra}
stages:
  - name: availability
    select: {{isAvailable: "quantity > 0"}}
    reduce: latest
    emit: {{on: change, equal: exact}}
sinks:
  - {{kind: kafka, topic: {sink}, with_key: true}}
{extra}
"""


@dataclass
class World:
    """Topics are named after the test's world, so that tests do not meet on the shared broker."""

    servers: str
    folder: Path
    open_session: OpenSession
    name: str = field(default_factory=lambda: uuid4().hex[:8])
    runs: int = 0

    def __post_init__(self) -> None:
        self.source, self.sink = f"stock-{self.name}", f"availability-{self.name}"
        self.create(self.source, self.sink)
        self.write_pipeline()
        self.app = App.from_environment(self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a process in this world."""
        return {
            "TIDEGATE_HOME": str(self.folder),
            "TIDEGATE_KAFKA": self.servers,
            "TIDEGATE_PIPELINES": str(self.folder / "pipelines"),
            "TIDEGATE_SPARK_MASTER": "local[2]",
        }

    def create(self, *topics: str, partitions: int = 2) -> None:
        self._admin(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]))

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))
        self._admin(lambda admin: admin.alter_configs([changed]))

    def delete(self, topic: str) -> None:
        self._admin(lambda admin: admin.delete_topics([topic]))

    def _admin(self, call: Callable[[Any], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            return call(admin)
        finally:
            admin.close()

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let retention take all records before these offsets."""
        from kafka import TopicPartition

        before = {TopicPartition(*at): offset for at, offset in offsets.items()}
        self._admin(lambda admin: admin.delete_records(before))

    def write_pipeline(
        self, generation: int = 1, source_extra: str = "", extra: str = "", **replace: str
    ) -> Path:
        """Write the pipeline file; `replace` maps a piece of text to its replacement."""
        text = PIPELINE.format(
            generation=generation,
            source=self.source,
            sink=self.sink,
            source_extra=source_extra and f"  {source_extra}",
            extra=extra,
        )
        for old, new in replace.items():
            text = text.replace(old, new)
        path = self.folder / "pipelines" / "availability.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def write(self, source: Mapping[str, Any], *stages: Mapping[str, Any], **fields: Any) -> None:
        """Write a pipeline file that reads the world's topic, JSON unless `source` says otherwise, and
        publishes to the world's sink. `fields` are further parts of the file, or replace these.
        """
        document = {
            "pipeline": "availability",
            "source": {"topics": [self.source], "format": "json", **source},
            "stages": list(stages),
            "sinks": [{"kind": "kafka", "topic": self.sink}],
            **fields,
        }
        path = self.folder / "pipelines" / f"{document['pipeline']}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline(self.folder / "pipelines" / "availability.yaml")

    @property
    def stream(self) -> Stream:
        return stream_of(self.pipeline)

    def send(self, *records: dict[str, Any]) -> None:
        """Records as `send`'s keyword arguments; `value` may be a dict (JSON), bytes or None."""
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        try:
            for record in records:
                value = record["value"]
                body = json.dumps(value).encode() if isinstance(value, dict) else value
                defaults = {"topic": self.source, "partition": 0, "timestamp_ms": NOW_MS - 1000}
                producer.send(**(defaults | record | {"value": body}))
            producer.flush()
        finally:
            producer.close()

    def stock(self, *quantities: int, store: str = "s1", product: int = 1, **more: Any) -> None:
        """Stock events of one product, in order."""
        self.send(*(stock_event(quantity, store, product, **more) for quantity in quantities))

    def run(self, run_id: str | None = None, **trigger: Any) -> Outcome:
        """One batch, all five steps, in this process."""
        self.runs += 1
        requested = Trigger(run_id or f"run-{self.runs}", **({"clock_ms": NOW_MS} | trigger))
        return run_batch(self.app, self.pipeline, requested, self.open_session)

    def published(self) -> dict[str, list[Any]]:
        """Key -> isAvailable in order, null for a deletion, as a read_committed consumer sees it."""
        return {
            key: [None if value is None else value["isAvailable"] for value in values]
            for key, values in read_published(self.servers, self.sink).items()
        }

    def counts(self, seq: int) -> Mapping[str, float]:
        """Return how many records of a batch had each fate; 0 for what was not counted."""
        report = inspect.batch_report(self.app.ledger, self.stream, seq)
        assert report is not None
        return Counter(report.counts)


def stock_event(quantity: int, store: str = "s1", product: int = 1, **more: Any) -> dict[str, Any]:
    """One event, as keyword arguments of `send`."""
    return {
        "value": {"storeId": store, "id": product, "quantity": quantity},
        "key": key_of(store, product).encode(),
        **more,
    }


def key_of(store: str = "s1", product: int = 1) -> str:
    """The canonical key of a product."""
    return f'{{"storeId":"{store}","id":{product}}}'
