"""The progress of a shard: its record in the topic of progress records, and how to read it."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

from kafka.errors import KafkaError

from kafka import KafkaConsumer, TopicPartition
from tidegate.errors import ProgressUnreadable
from tidegate.kafka.config import PROGRESS_TOPIC, TRANSACTION_TIMEOUT_MS, KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.topic_facts import newest_record

FORMAT = 1
"""The format of a progress record. It is raised when the meaning of a field changes."""


def settled_seconds(config: KafkaConfig) -> float:
    """Return the number of seconds after which every transaction that is open now is over.

    That is the longest transaction timeout, of this process or of processes with the default, plus the time
    that the broker takes to notice.
    """
    return max(config.transactions.timeout_ms, TRANSACTION_TIMEOUT_MS) / 1000 + 30.0


@dataclass(frozen=True)
class Progress:
    """The progress of a shard.

    Args:
        seq: the batch.
        sent: the number of its records that are sent.
        done: whether these were all of them.
        attempt: the name of the attempt that computed them; "" if nothing was sent yet.
        round: how often the sink has begun to send a batch in shards; see `kafka.publisher`.
        shards: the number of shards in which the batch is sent; 0: it is sent as a whole.
    """

    seq: int
    sent: int
    done: bool
    attempt: str = ""
    round: int = 0
    shards: int = 0

    @classmethod
    def parse(cls, body: bytes, shard: str) -> Progress:
        """Return the progress that a shard's progress record has.

        Raises ProgressUnreadable if the record is damaged or has another format.
        """
        where = f"The progress record of {shard} in topic {PROGRESS_TOPIC}"
        begin_anew = "Raise `generation`: it has a record of its own, and fills the topic from the start."
        try:
            document = json.loads(body)
            stored_format = document.pop("format", None)
            if stored_format == FORMAT:
                return cls(**document)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProgressUnreadable(
                f"{where} cannot be read: {type(error).__name__}: {error}", begin_anew
            ) from error
        raise ProgressUnreadable.of_format(where, stored_format, FORMAT, begin_anew)

    @property
    def body(self) -> bytes:
        """The value of the progress record."""
        return json.dumps({"format": FORMAT} | vars(self)).encode()

    @property
    def next_seq(self) -> int:
        """The batch of the next record to be sent."""
        return self.seq + 1 if self.done else self.seq

    def __str__(self) -> str:
        """Return the progress as text, such as `batches up to 3`."""
        partly = "" if self.done else f", of which {self.sent} records of the last"
        return f"batches up to {self.seq}{partly}"

    def lacks(self, seq: int) -> bool:
        """Return whether some record of batch `seq` is not sent yet.

        Example: `Progress(3, 10, False).lacks(3)` is True, and `Progress(3, 10, True).lacks(3)` is False.
        """
        return self.seq < seq or (self.seq == seq and not self.done)


@dataclass(frozen=True)
class ProgressRecord:
    """The partition of a shard's progress records, and the newest committed one; None if there is none."""

    place: TopicPartition
    progress: Progress | None


def read_progress(log: KafkaLog, shard: str) -> ProgressRecord:
    """Return the shard's last committed progress record.

    A record without a value was deleted and counts as missing, also before compaction removes it. Raises
    ProgressUnreadable, KafkaError, BrokerUnavailable.
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
    """Return the partition that has a shard's progress records.

    Shards are spread over partitions, because a transaction that another shard leaves open hides everything
    after it in its partition, for up to a minute. Raises KafkaError if the topic has no partitions yet.
    """
    if not partitions:
        raise KafkaError(f"{PROGRESS_TOPIC} has no partitions yet")
    return TopicPartition(PROGRESS_TOPIC, crc32(shard.encode()) % len(partitions))


def end_of(log: KafkaLog, place: TopicPartition) -> int:
    """Return the high watermark of a partition of progress records.

    The consumer's own end does not do: under `read_committed` it is the last stable offset, which a
    transaction that another shard has open holds back below committed records of this shard. Their batches
    would be published again.
    """
    with log:
        return log.end(place.topic, place.partition)


@contextmanager
def committed_reader(config: KafkaConfig) -> Iterator[Any]:
    """Yield a consumer without a group that reads committed records, and commits no offsets."""
    consumer = KafkaConsumer(
        **config.for_python(),
        allow_auto_create_topics=False,
        auto_offset_reset="none",  # records that are deleted while they are read are an error, not a gap
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
    """Yield the records of an assigned partition up to offset `end`. Raises KafkaError after `seconds`
    without any.
    """
    deadline = time.monotonic() + seconds
    while (position := consumer.position(at)) is None or position < end:
        records = consumer.poll(timeout_ms=500).get(at, [])
        if records:
            deadline = time.monotonic() + seconds
        # Only silence counts: a long partition may take longer than `seconds`.
        elif time.monotonic() > deadline:
            raise KafkaError(f"{at.topic}[{at.partition}] gives no records before offset {end}")
        yield from (record for record in records if record.offset < end)
