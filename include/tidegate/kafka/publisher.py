"""Publication to Kafka, exactly once: each chunk and its progress record are in one transaction.

The order of steps makes it safe:

1. `init_transactions` under the shard's stable id: the broker aborts or completes the transaction of an
   earlier instance, and that instance can never write again;
2. only then read the progress record, with `read_committed`;
3. send the messages after it, chunk by chunk, each with the new progress record in the same transaction.

After a crash at any point, step 1 of the next try aborts or completes the open transaction, and the progress
record shows which. A shard writes its first progress record before it sends a message, so a missing record
was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaException

from kafka import TopicPartition
from tidegate.errors import BrokerUnavailable, Fenced, ProgressLost, RecordTooLarge, SinkAhead
from tidegate.failpoints import failpoint
from tidegate.kafka.config import PROGRESS_TOPIC
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
"""A function that returns a batch's messages from the n-th on, in a fixed order: see `kafka.messages`."""
RequireCommitted = Callable[[int, Callable[[str], bool]], None]
"""A function that raises LedgerMismatch unless the predicate is true of the name of the batch's attempt."""


class KafkaPublisher:
    """A publisher of a stream's batches to one topic, under the transactional id of one shard.

    `log` answers questions to Kafka; each publication opens its own producer. `require_committed` checks that
    the ledger has committed the batch of the progress record.

    Example:
        publisher = KafkaPublisher(log, shard, "changes", require_committed)
        sent = publisher.publish(seq, attempt, outbox.messages, last_published)
    """

    def __init__(
        self,
        log: KafkaLog,
        shard: str,
        topic: str,
        require_committed: RequireCommitted,
        chunk_records: int = CHUNK_RECORDS,
    ) -> None:
        self._require_committed = require_committed
        self._log = log
        self._shard = shard
        self._topic = topic
        self._chunk_records = chunk_records
        transactions = log.config.transactions
        self._pace = Pace(transactions.most_bytes, transactions.delivery_ms / 1000)

    def publish(
        self,
        seq: int,
        attempt: str,
        messages: Messages,
        last_published: int,
        begun: Callable[[], object] | None = None,
    ) -> int:
        """Send a batch as an attempt computed it, or the rest of it. Returns the number of records that it
        sent.

        Args:
            seq: the batch.
            attempt: the name of the attempt that computed it.
            messages: returns the batch's messages from the n-th on.
            last_published: the newest batch of which, by the ledger, this shard has sent a record; 0 if none.
            begun: for a shard that the ledger does not have yet, and that has sent nothing. It is called when
                the shard has its first progress record, to record that in the ledger.

        Raises ProgressLost, ProgressUnreadable; LedgerMismatch if the shard has sent a batch that this ledger
        has not committed; Fenced if a newer publisher is ahead; OutcomeUnknown, BrokerUnavailable;
        TimestampRefused, RecordTooLarge, SinkRefused if the topic refuses a record.
        """
        unsent = Progress(seq, 0, False, attempt)
        batch_bytes = BATCH_BYTES
        while True:
            try:
                with self._instance(batch_bytes) as producer:
                    record = self._read_progress()
                    if begun is not None:
                        record = self._begin(producer, seq, record)
                        begun()
                        # The record exists now: if the loop tries again, the shard has begun.
                        begun = None
                    return self._publish(producer, record, unsent, messages, last_published)
            except RecordTooLarge:  # perhaps only the client's batch of records is too large
                if batch_bytes != BATCH_BYTES:
                    raise
                batch_bytes = self._fitting_bytes()
            except DeliveryTimedOut as error:
                if not self._pace.timed_out():
                    raise self._too_slow() from error

    def _begin(self, producer: TransactionalProducer, seq: int, record: ProgressRecord) -> ProgressRecord:
        """Write the first progress record unless it exists: batch `seq` will be the shard's first.

        A restored ledger can have lost that a shard began. The batches that the shard has sent since must
        then be committed in this ledger.
        """
        first = Progress(seq - 1, 0, done=True)
        if record.progress is None:
            self._send(producer, [], first, record.place)
            return replace(record, progress=first)
        self.check_committed(record.progress)
        if record.progress != first and not record.progress.attempt:
            raise self._ahead(seq, record.progress)
        return record

    def check_admission(self) -> None:
        """Raise the error that would stop any publication, without sending anything.

        Like `publish`, it aborts or completes the transaction of an earlier instance. Raises SettingsInvalid
        for a missing right or a transaction timeout that the broker does not allow, BrokerUnavailable.
        """
        with self._instance():
            pass

    def _too_slow(self) -> BrokerUnavailable:
        config = self._log.config
        return BrokerUnavailable(
            f"Kafka at {config.servers} did not take a transaction of {LEAST_CHUNK_BYTES // 1024} KiB of "
            f"{self._shard} within {config.transactions.delivery_ms / 1000:.0f} s",
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

    def rewrite_progress(self, find: Callable[[Progress | None], Progress]) -> Progress:
        """Put what `find` tells, who is given the record that is there, in the place of a lost one.

        It is asked when nobody else can write any more. Raises ProgressUnreadable, Fenced, OutcomeUnknown,
        BrokerUnavailable.
        """
        with self._instance() as producer:
            record = self._read_progress()
            progress = find(record.progress)
            if progress != record.progress:
                self._send(producer, [], progress, record.place)
        return progress

    @contextmanager
    def _instance(self, batch_bytes: int = BATCH_BYTES) -> Iterator[TransactionalProducer]:
        """Yield a producer under the shard's id, after it has fenced an earlier one and settled its
        transaction.
        """
        try:
            with broker_errors(self._log.config):
                with failpoint("publish.connect"):
                    opened = TransactionalProducer(self._log.config, self._shard, self._topic, batch_bytes)
                with opened as producer:
                    with failpoint("publish.init"):
                        producer.init()
                    yield producer
        except KafkaException as error:
            raise publication_error(error_of(error), self._log, self._shard, self._topic) from error

    def _publish(
        self,
        producer: TransactionalProducer,
        record: ProgressRecord,
        unsent: Progress,
        messages: Messages,
        last_published: int,
    ) -> int:
        """Send the rest of a batch. `unsent` is the progress before anything of the batch is sent."""
        progress = record.progress
        if progress is None or last_published < unsent.seq:
            progress = self.check(progress, last_published)
        self.check_committed(progress)
        if progress.seq > unsent.seq:
            raise self._ahead(unsent.seq, progress, SinkAhead)
        if not progress.lacks(unsent.seq):
            return 0
        # A part of the batch is out: the messages have a fixed order, so the rest begins behind it.
        already = progress.sent if progress.seq == unsent.seq else 0
        sent = already
        for chunk, is_last in chunks(messages(already), self._chunk_records, lambda: self._pace.bytes):
            sent += sum(batch.num_rows for batch in chunk)
            began = time.monotonic()
            self._send(producer, chunk, replace(unsent, sent=sent, done=is_last), record.place)
            self._pace.delivered(time.monotonic() - began)
        return sent - already

    def check_committed(self, progress: Progress) -> None:
        """Raise LedgerMismatch if a shard has sent a batch that the ledger has not committed."""
        # Without an attempt nothing was sent yet, or a person has stated the progress.
        self._require_committed(progress.seq, lambda name: progress.attempt in ("", name))

    def _ahead(self, seq: int, progress: Progress, error: type[Fenced] = Fenced) -> Fenced:
        return error(
            f"{self._shard} is at batch {seq}, but topic {PROGRESS_TOPIC} says that it has sent "
            f"{progress.sent} records of attempt {progress.attempt or '(none)'} of batch {progress.seq}",
            "A newer publisher went ahead; nothing was sent by this one.",
        )

    def check(self, progress: Progress | None, last_published: int) -> Progress:
        """Return the progress. Raises ProgressLost if it is missing, or older than the ledger says."""
        if progress is not None and not progress.lacks(last_published):
            return progress
        says = "is missing" if progress is None else f"is old: it says batch {progress.seq}"
        raise ProgressLost(
            f"The progress record of {self._shard} in topic {PROGRESS_TOPIC} {says}; "
            + (f"batch {last_published} was published" if last_published else "its first batch was begun"),
            "Reconcile it with the output topic.",
        )

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
            producer.send_to(place.topic, place.partition, self._shard.encode(), progress.body)
        with failpoint("publish.flush"):
            producer.flush()
        with failpoint("publish.commit"):
            producer.commit()

    def _read_progress(self) -> ProgressRecord:
        with failpoint("publish.read_progress"):
            return read_progress(self._log, self._shard)

    def progress(self) -> Progress | None:
        """Return the shard's last committed progress record; None if it has none, or the topic does not
        exist.

        Raises ProgressUnreadable, BrokerUnavailable.
        """
        with self._log:
            if not self._log.has_topic(PROGRESS_TOPIC):
                return None
            with broker_errors(self._log.config):
                return read_progress(self._log, self._shard).progress
