"""Planted bugs in the publication of a large batch in shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulator.planted import planted
from tidegate.kafka.progress import Progress, ProgressRecord
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate.kafka.shard import Shard

_begin_shards = KafkaPublisher._begin_shards
_publish_in_shards = KafkaPublisher._publish_in_shards


@planted((Shard, "begin"))
def a_round_begins_over_a_later_one(self: Any, unsent: Progress) -> None:
    """A process that wakes up writes over what its successor has sent."""
    with self.opened() as producer:
        self.write(producer, unsent, self.read().place)


@planted((KafkaPublisher, "_publish_in_shards"))
def each_try_begins_the_shards_again(
    self: Any, producer: Any, record: ProgressRecord, batch: DecidedBatch, number: int
) -> int:
    progress = _begin_shards(self, producer, record, batch, number)
    again = ProgressRecord(record.place, progress)
    return _publish_in_shards(self, producer, again, batch, number)


@planted((KafkaPublisher, "_publish_in_shards"))
def the_batch_is_done_before_its_shards_are(
    self: Any, producer: Any, record: ProgressRecord, batch: DecidedBatch, number: int
) -> int:
    progress = record.progress
    assert progress is not None
    assert batch.cut is not None
    begun = _begin_shards(self, producer, record, batch, number)
    self._own.write(producer, replace(begun, done=True), record.place)
    return _publish_in_shards(self, producer, ProgressRecord(record.place, begun), batch, number)
