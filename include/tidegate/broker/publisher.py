"""Publication to Kafka, exactly once: each chunk and the record of progress are one transaction.

The order of steps is what makes it safe:

1. `init_transactions` under the shard's stable id: whatever an earlier instance left open is aborted or
   completed, and that instance can never write again;
2. only then read the progress record, with `read_committed`;
3. send what comes after it, chunk by chunk, each with its new progress record in the same transaction.

A crash anywhere leaves a transaction that step 1 of the next try settles, and progress says how. A shard's
first record comes before all that it sends, so a record that is not there is one that was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaException
from kafka import TopicPartition

from tidegate.broker.config import PROGRESS_TOPIC
from tidegate.broker.log import KafkaLog, broker_errors
from tidegate.broker.messages import CHUNK_RECORDS, LEAST_CHUNK_BYTES, chunks
from tidegate.broker.pace import Pace
from tidegate.broker.producer import BATCH_BYTES, DeliveryTimedOut, TransactionalProducer, error_of
from tidegate.broker.progress import Progress, ProgressRecord, read_progress
from tidegate.broker.properties import DELIVERY_TIMEOUT, TRANSACTION_TIMEOUT
from tidegate.broker.refusals import publication_error
from tidegate.errors import BrokerUnavailable, Fenced, ProgressLost, RecordTooLarge, SinkAhead
from tidegate.failpoints import failpoint

_OVERHEAD_BYTES = 1_000
"""What a batch of records has beside them, and more."""
Messages = Callable[[int], Iterator[pa.RecordBatch]]
"""A batch's messages from the n-th on, always in the same order, as `broker.messages` describes them."""
RequireCommitted = Callable[[int, Callable[[str], bool]], None]
"""Raises LedgerMismatch unless the ledger has committed a batch as an attempt of which this is true."""


class KafkaPublisher:
    """Publishes a stream's batches to one topic under one transactional id, a shard's.

    `log` is what it asks Kafka through, beside the producer that it opens for each publication. What the
    progress record says must be what `require_committed` takes.
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
        """Send a batch as an attempt computed it, or what is left of it. Returns how many records that was.

        `last_published` is the newest batch that the ledger says this shard has sent some of, 0 if none.
        `begun` is given for a shard that the ledger does not know yet, hence one that has sent nothing: it is
        to tell the ledger, and is called when the shard has its first progress record.
        Raises ProgressLost, ProgressUnreadable; LedgerMismatch where the shard has sent what this ledger has
        not committed; Fenced also where a newer publisher went ahead; OutcomeUnknown, BrokerUnavailable;
        TimestampRefused, RecordTooLarge, SinkRefused for a record that the topic will not have.
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
                        begun = None
                    return self._publish(producer, record, unsent, messages, last_published)
            except RecordTooLarge:  # or is it only the client's batch of records that is?
                if batch_bytes != BATCH_BYTES:
                    raise
                batch_bytes = self._fitting_bytes()
            except DeliveryTimedOut as error:
                if not self._pace.timed_out():
                    raise self._too_slow() from error

    def _begin(self, producer: TransactionalProducer, seq: int, record: ProgressRecord) -> ProgressRecord:
        """Write the first progress record, unless it is there: batch `seq` will be the shard's first.

        A ledger that was restored has forgotten that a shard began: what that has sent since must be its own.
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
        """Find what would keep any batch from being published, without sending anything. Settles what an
        earlier instance left open, as `publish` does.

        Raises SettingsInvalid for a right or a transaction timeout, BrokerUnavailable.
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
        """What of a batch of records the topic takes for sure; 1 is a record at a time."""
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
        """A producer under the shard's id: what an earlier one left open is settled, and it is shut out."""
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
        """`unsent` is the progress of the batch before anything of it is sent."""
        progress = record.progress
        if progress is None or last_published < unsent.seq:
            progress = self.check(progress, last_published)
        self.check_committed(progress)
        if progress.seq > unsent.seq:
            raise self._ahead(unsent.seq, progress, SinkAhead)
        if not progress.lacks(unsent.seq):
            return 0
        already = progress.sent if progress.seq == unsent.seq else 0
        sent = already
        for chunk, is_last in chunks(messages(already), self._chunk_records, lambda: self._pace.bytes):
            sent += sum(batch.num_rows for batch in chunk)
            began = time.monotonic()
            self._send(producer, chunk, replace(unsent, sent=sent, done=is_last), record.place)
            self._pace.delivered(time.monotonic() - began)
        return sent - already

    def check_committed(self, progress: Progress) -> None:
        """Raise LedgerMismatch where a shard has sent what the ledger has not committed."""
        # without an attempt nothing was sent yet, or somebody has stated the progress
        self._require_committed(progress.seq, lambda name: progress.attempt in ("", name))

    def _ahead(self, seq: int, progress: Progress, error: type[Fenced] = Fenced) -> Fenced:
        return error(
            f"{self._shard} is at batch {seq}, but topic {PROGRESS_TOPIC} says that it has sent "
            f"{progress.sent} records of attempt {progress.attempt or '(none)'} of batch {progress.seq}",
            "A newer publisher went ahead; nothing was sent by this one.",
        )

    def check(self, progress: Progress | None, last_published: int) -> Progress:
        """The same. Raises ProgressLost where it is gone, or does not have all that the ledger knows."""
        if progress is not None and not progress.lacks(last_published):
            return progress
        says = "is gone" if progress is None else f"is old: it says batch {progress.seq}"
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
        """One transaction: a chunk and the progress that it makes."""
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
        """Return the shard's last committed progress record; None if there is none, or no topic of them.

        Raises ProgressUnreadable, BrokerUnavailable.
        """
        with self._log:
            if not self._log.has_topic(PROGRESS_TOPIC):
                return None
            with broker_errors(self._log.config):
                return read_progress(self._log, self._shard).progress
