"""How far a shard is: the record of it in the topic of progress records, and how that is read."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from zlib import crc32

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from tidegate.broker.config import PROGRESS_TOPIC, TRANSACTION_TIMEOUT_MS, KafkaConfig
from tidegate.broker.log import KafkaLog
from tidegate.broker.progress_topic import newest_record
from tidegate.errors import ProgressUnreadable

FORMAT = 1
"""Of a progress record; raised whenever what is written changes its meaning."""


def settled_seconds(config: KafkaConfig) -> float:
    """Return after how long any transaction that is open now is over: its timeout, the longest of this
    process and of those with the default, and the broker's time to notice.
    """
    return max(config.transactions.timeout_ms, TRANSACTION_TIMEOUT_MS) / 1000 + 30.0


@dataclass(frozen=True)
class Progress:
    """How far a shard is: `sent` records of batch `seq`, and whether that was all of them.

    `attempt` is the name of the computation that they are of; "" if nothing was sent yet.
    """

    seq: int
    sent: int
    done: bool
    attempt: str = ""

    @classmethod
    def parse(cls, body: bytes, shard: str) -> Progress:
        """From the value of a shard's progress record. Raises ProgressUnreadable."""
        where = f"The progress record of {shard} in topic {PROGRESS_TOPIC}"
        begin_anew = "Raise `generation`: it has a record of its own, and fills the topic from the start."
        try:
            document = json.loads(body)
            found = document.pop("format", None)
            if found == FORMAT:
                return cls(**document)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProgressUnreadable(
                f"{where} cannot be read: {type(error).__name__}: {error}", begin_anew
            ) from error
        raise ProgressUnreadable.of_format(where, found, FORMAT, begin_anew)

    @property
    def body(self) -> bytes:
        """The value of its progress record."""
        return json.dumps({"format": FORMAT} | asdict(self)).encode()

    @property
    def next_seq(self) -> int:
        """The batch that the next record to be sent is of."""
        return self.seq + 1 if self.done else self.seq

    def __str__(self) -> str:
        """Such as `batches up to 3`."""
        partly = "" if self.done else f", of which {self.sent} records of the last"
        return f"batches up to {self.seq}{partly}"

    def lacks(self, seq: int) -> bool:
        """Whether something of batch `seq` is not sent yet."""
        return self.seq < seq or (self.seq == seq and not self.done)


@dataclass(frozen=True)
class ProgressRecord:
    """Where a shard's progress records are, and the newest committed one; null when there is none."""

    place: TopicPartition
    progress: Progress | None


def read_progress(log: KafkaLog, shard: str) -> ProgressRecord:
    """The shard's last committed progress record. Raises ProgressUnreadable, KafkaError, BrokerUnavailable.

    One without a value was deleted: it is gone, whether or not compaction has come by.
    """
    read = partial(read_until, seconds=settled_seconds(log.config))
    with committed_reader(log.config) as consumer:
        place = place_of(shard, consumer.partitions_for_topic(PROGRESS_TOPIC))
        consumer.assign([place])
        record = newest_record(consumer, place, shard.encode(), end_of(log, place), read)
    if record is None or record.value is None:
        return ProgressRecord(place, None)
    return ProgressRecord(place, Progress.parse(record.value, shard))


def place_of(shard: str, partitions: Collection[int] | None) -> TopicPartition:
    """Where a shard's progress records are, in a partition that it shares with others by chance only.

    A transaction that another shard left open hides all that comes after it in a partition, for as long as a
    minute. Raises KafkaError where the topic has no partitions yet.
    """
    if not partitions:
        raise KafkaError(f"{PROGRESS_TOPIC} has no partitions yet")
    return TopicPartition(PROGRESS_TOPIC, crc32(shard.encode()) % len(partitions))


def end_of(log: KafkaLog, place: TopicPartition) -> int:
    """Where a partition of progress records ends: the high watermark.

    Not the consumer's own end, which under `read_committed` is the last stable offset: a transaction that
    another shard has open holds that back, below records of this shard that are committed. What was published
    would then be unknown, and published again.
    """
    with log:
        return log.end(place.topic, place.partition)


@contextmanager
def committed_reader(config: KafkaConfig) -> Iterator[Any]:
    """A consumer of no group that sees what is committed, and leaves no trace."""
    consumer = KafkaConsumer(
        **config.for_python(),
        allow_auto_create_topics=False,
        auto_offset_reset="none",  # records that go while they are read are an error, and not passed over
        isolation_level="read_committed",
        enable_auto_commit=False,
        group_id=None,
        bootstrap_timeout_ms=15_000,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_until(consumer: Any, at: TopicPartition, end: int, seconds: float = 30.0) -> Iterator[Any]:
    """The records of an assigned partition up to offset `end`; KafkaError after `seconds` of silence."""
    deadline = time.monotonic() + seconds
    while (position := consumer.position(at)) is None or position < end:
        records = consumer.poll(timeout_ms=500).get(at, [])
        if records:
            deadline = time.monotonic() + seconds
        elif time.monotonic() > deadline:
            raise KafkaError(f"{at.topic}[{at.partition}] gives no records before offset {end}")
        yield from (record for record in records if record.offset < end)
