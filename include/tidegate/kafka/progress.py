"""The progress of a shard: its record in the topic of progress records, and how to read it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from zlib import crc32

from confluent_kafka import Message
from kafka.errors import KafkaError

from kafka import TopicPartition
from tidegate.errors import ProgressUnreadable
from tidegate.kafka.config import PROGRESS_TOPIC, TRANSACTION_TIMEOUT_MS, KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.records import Slice, read_records
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
    with log:
        place = place_of(shard, log.partitions(PROGRESS_TOPIC))
        # The last stable offset does not do as the end: a transaction that another shard has open holds it
        # back below committed records of this shard. Their batches would be published again.
        start, end = log.bounds(place.topic, place.partition)

    def read(lower: int, upper: int) -> Iterator[Message]:
        slice_ = Slice(place.topic, place.partition, lower, upper)
        return read_records(log.config, slice_, settled_seconds(log.config))

    record = newest_record(read, start, end, shard.encode())
    value = None if record is None else record.value()
    if value is None:
        return ProgressRecord(place, None)
    return ProgressRecord(place, Progress.parse(value, shard))


def place_of(shard: str, partitions: Collection[int]) -> TopicPartition:
    """Return the partition that has a shard's progress records.

    Shards are spread over partitions, because a transaction that another shard leaves open hides everything
    after it in its partition, for up to a minute. Raises KafkaError if the topic has no partitions yet.
    """
    if not partitions:
        raise KafkaError(f"{PROGRESS_TOPIC} has no partitions yet")
    return TopicPartition(PROGRESS_TOPIC, crc32(shard.encode()) % len(partitions))
