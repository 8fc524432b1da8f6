"""One shard of a publication: a transactional id, with a progress record of its own.

The order of steps makes sending exact:

1. `init_transactions` under the stable id: the broker aborts or completes the transaction of an earlier
   instance, and that instance can never write again;
2. only then read the progress record, with `read_committed`;
3. send the messages after it, chunk by chunk, each with the new progress record in the same transaction.

After a crash at any point, step 1 of the next try aborts or completes the open transaction, and the progress
record shows which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from confluent_kafka import KafkaException

from kafka import TopicPartition
from tidegate.errors import BrokerUnavailable, Fenced, ProgressLost, RecordTooLarge
from tidegate.failpoints import failpoint
from tidegate.kafka.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.log import KafkaLog, broker_errors
from tidegate.kafka.messages import CHUNK_RECORDS, LEAST_CHUNK_BYTES, chunks
from tidegate.kafka.producer import (
    BATCH_BYTES,
    DeliveryTimedOut,
    Pace,
    TransactionalProducer,
    error_of,
    publication_error,
)
from tidegate.kafka.progress import Progress, ProgressRecord, read_progress
from tidegate.kafka.properties import DELIVERY_TIMEOUT, TRANSACTION_TIMEOUT

_OVERHEAD_BYTES = 1_000
"""An upper limit for the header of a batch of records."""
Messages = Callable[[int], Iterator[pa.RecordBatch]]
"""A function that returns messages from the n-th on, in a fixed order: see `kafka.messages`."""


class Shard:
    """Sends messages to one topic under the transactional id `name`.

    `log` answers questions to Kafka; each use opens its own producer.

    Example:
        def send_rest(producer):
            return shard.send_rest(producer, shard.read(), Progress(3, 0, False, attempt), messages)

        shard.persist(send_rest)
    """

    def __init__(self, log: KafkaLog, name: str, topic: str, chunk_records: int = CHUNK_RECORDS) -> None:
        self.name = name
        self._log = log
        self._topic = topic
        self._chunk_records = chunk_records
        transactions = log.config.transactions
        self._pace = Pace(transactions.most_bytes, transactions.delivery_ms / 1000)

    @contextmanager
    def opened(self, batch_bytes: int = BATCH_BYTES) -> Iterator[TransactionalProducer]:
        """Yield a producer under the shard's id, after it has fenced an earlier one and settled its
        transaction. Raises what `publication_error` makes of an error of the client.
        """
        try:
            with broker_errors(self._log.config):
                with failpoint("publish.connect"):
                    opened = TransactionalProducer(self._log.config, self.name, self._topic, batch_bytes)
                with opened as producer:
                    with failpoint("publish.init"):
                        producer.init()
                    yield producer
        except KafkaException as error:
            raise publication_error(error_of(error), self._log, self.name, self._topic) from error

    def persist(self, send: Callable[[TransactionalProducer], int]) -> int:
        """Call `send` with an opened producer until a size of its batches and transactions fits the broker.

        Returns what `send` returns. Raises RecordTooLarge, BrokerUnavailable, and what `send` raises.
        """
        batch_bytes = BATCH_BYTES
        while True:
            try:
                with self.opened(batch_bytes) as producer:
                    return send(producer)
            except RecordTooLarge:  # perhaps only the client's batch of records is too large
                if batch_bytes != BATCH_BYTES:
                    raise
                batch_bytes = self._fitting_bytes()
            except DeliveryTimedOut as error:
                if not self._pace.timed_out():
                    raise self._too_slow() from error

    def read(self) -> ProgressRecord:
        """Return the shard's last committed progress record. Raises ProgressUnreadable, BrokerUnavailable."""
        with failpoint("publish.read_progress"):
            return read_progress(self._log, self.name)

    def progress(self) -> Progress | None:
        """Return the shard's progress; None if it has none, or the topic does not exist.

        Raises ProgressUnreadable, BrokerUnavailable.
        """
        with self._log:
            if not self._log.has_topic(PROGRESS_TOPIC):
                return None
            with broker_errors(self._log.config):
                return read_progress(self._log, self.name).progress

    def write(self, producer: TransactionalProducer, progress: Progress, place: TopicPartition) -> None:
        """Write the progress, without a message."""
        self._send(producer, [], progress, place)

    def send_rest(
        self,
        producer: TransactionalProducer,
        record: ProgressRecord,
        unsent: Progress,
        messages: Messages,
    ) -> int:
        """Send what the record does not have yet, and return how many messages that are.

        Args:
            unsent: The progress before any message is sent.
        """
        progress = record.progress
        # A part may be out: the messages have a fixed order, so the rest begins behind it.
        already = progress.sent if progress is not None and progress.seq == unsent.seq else 0
        sent = already
        for chunk, is_last in chunks(messages(already), self._chunk_records, lambda: self._pace.bytes):
            sent += sum(batch.num_rows for batch in chunk)
            began = time.monotonic()
            self._send(producer, chunk, replace(unsent, sent=sent, done=is_last), record.place)
            self._pace.delivered(time.monotonic() - began)
        return sent - already

    def begin(self, unsent: Progress) -> None:
        """Write the record before the first message. Raises Fenced if a later round has begun."""
        with self.opened() as producer:
            record = self.read()
            if record.progress is not None and record.progress.round >= unsent.round:
                raise self._overtaken(unsent, record.progress)
            self.write(producer, unsent, record.place)

    def send_part(self, unsent: Progress, messages: Messages) -> int:
        """Send the rest of the shard's part of a batch, and return how many messages the topic has of it.

        Raises ProgressLost if the record that `begin` wrote is not there, Fenced if a later round has begun.
        """
        total = 0

        def send(producer: TransactionalProducer) -> int:
            nonlocal total
            record = self.read()
            progress = record.progress
            if progress is None or progress.round < unsent.round:
                raise self.lost(unsent)
            if progress.round > unsent.round:
                raise self._overtaken(unsent, progress)
            sent = 0 if progress.done else self.send_rest(producer, record, unsent, messages)
            total = progress.sent + sent
            return sent

        self.persist(send)
        return total

    def stop(self) -> Progress | None:
        """Fence whoever still sends, and let nobody send more in this round. Return what was sent."""
        with self.opened() as producer:
            record = self.read()
            if record.progress is not None and not record.progress.done:
                self.write(producer, replace(record.progress, done=True), record.place)
        return record.progress

    def replace(self, progress: Progress) -> None:
        """Write another progress, whatever the record is now."""
        with self.opened() as producer:
            self.write(producer, progress, self.read().place)

    def lost(self, unsent: Progress) -> ProgressLost:
        """Return the error for a record that is missing after `begin` wrote it."""
        return ProgressLost(
            f"The progress record of {self.name} in topic {PROGRESS_TOPIC} is missing, or older than the "
            f"publication of batch {unsent.seq}",
            "Reconcile it with the output topic.",
        )

    def _overtaken(self, unsent: Progress, progress: Progress) -> Fenced:
        return Fenced(
            f"{self.name} is at batch {unsent.seq}, round {unsent.round}, but topic {PROGRESS_TOPIC} says "
            f"batch {progress.seq}, round {progress.round}",
            "A newer publisher went ahead; nothing was sent by this one.",
        )

    def _too_slow(self) -> BrokerUnavailable:
        config = self._log.config
        return BrokerUnavailable(
            f"Kafka at {config.servers} did not take a transaction of {LEAST_CHUNK_BYTES // 1024} KiB of "
            f"{self.name} within {config.transactions.delivery_ms / 1000:.0f} s",
            f"Check that the broker and all replicas that min.insync.replicas needs are up, and the produce "
            f"quota; or allow more time in {config.variable}: {DELIVERY_TIMEOUT} and {TRANSACTION_TIMEOUT}. "
            "Then run again, nothing is lost.",
        )

    def _fitting_bytes(self) -> int:
        """Return the size of a batch of records that the topic certainly accepts; 1 means one record at a
        time.
        """
        with self._log as log:
            limit = log.largest_bytes(self._topic)
        return max(1, min(BATCH_BYTES, (limit or 0) - _OVERHEAD_BYTES))

    def _send(
        self,
        producer: TransactionalProducer,
        chunk: Sequence[pa.RecordBatch],
        progress: Progress,
        place: TopicPartition,
    ) -> None:
        """Send one transaction: a chunk, and the progress after it."""
        with failpoint("publish.begin"):
            producer.begin()
        with failpoint("publish.send"):
            for batch in chunk:
                producer.send(self._topic, batch)
        with failpoint("publish.send_progress"):
            producer.send_to(place.topic, place.partition, self.name.encode(), progress.body)
        with failpoint("publish.flush"):
            producer.flush()
        with failpoint("publish.commit"):
            producer.commit()


@dataclass(frozen=True)
class ShardTask:
    """The work of one shard, for this process or a Spark task: call `send`.

    Args:
        name: The shard's transactional id.
        unsent: The progress before any message is sent.
        messages: Returns the messages of the shard from the n-th on.
    """

    config: KafkaConfig
    name: str
    topic: str
    unsent: Progress
    messages: Messages
    chunk_records: int = CHUNK_RECORDS

    def send(self) -> int:
        """Send what is not sent yet, and return how many messages the topic has of the shard."""
        with KafkaLog(self.config) as log:
            return Shard(log, self.name, self.topic, self.chunk_records).send_part(self.unsent, self.messages)


class SendTask(Protocol):
    """The work of one shard of any sink. It can be pickled."""

    def send(self) -> int:
        """Send the shard's emissions. Return what the publisher counts: the messages that a topic has of the
        shard, or the rows of its table.

        Spark may call this again after a failure, and in two processes at once.
        """


SendShards = Callable[[Sequence[SendTask]], Sequence[int]]
"""A function that calls `send` of each task, and returns the results in order."""


def send_here(tasks: Sequence[SendTask]) -> list[int]:
    """Send shards from this process, one after the other."""
    return [task.send() for task in tasks]
