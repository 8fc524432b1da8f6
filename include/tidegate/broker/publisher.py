"""Publication to Kafka, exactly once: each chunk and the record of progress are one transaction.

The order of steps is what makes it safe:

1. `init_transactions` under the shard's stable id: whatever an earlier instance left open is aborted or
   completed, and that instance can never write again;
2. only then read the progress record, with `read_committed`;
3. send what comes after it, chunk by chunk, each with its new progress record in the same transaction.

A crash anywhere leaves a transaction that step 1 of the next try settles, and progress says how. A shard's
first record (`begin`) comes before all that it sends, so a record that is not there is one that was lost.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar
from zlib import crc32

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, KafkaTimeoutError, ProducerFencedError

from tidegate.broker.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.broker.log import KafkaLog, broker_errors
from tidegate.broker.progress_topic import newest_record
from tidegate.broker.refusals import answer_in, refusal
from tidegate.errors import SINK_IS_AHEAD, Fenced, OutcomeUnknown, ProgressLost
from tidegate.failpoints import failpoint

CHUNK_RECORDS = 10_000
CHUNK_BYTES = 8 * 1024 * 1024
"""A transaction has to be through within a minute, and is held in memory: it takes at most so much."""
_TRANSACTION_TIMEOUT_MS = 60_000
_ANSWER_SECONDS = 45.0
SETTLED_SECONDS = _TRANSACTION_TIMEOUT_MS / 1000 + 30.0
"""Any transaction that is open now is over after this: its timeout, and the broker's time to notice."""
_FENCED = (ProducerFencedError, InvalidProducerEpochError)


@dataclass(frozen=True)
class Message:
    """One record to send. `timestamp_ms` is epoch ms; a null value is a deletion."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return (
            len(self.key) + len(self.value or b"") + sum(len(name) + len(told) for name, told in self.headers)
        )


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


Sized = TypeVar("Sized", bound=_Sized)


@dataclass(frozen=True)
class Progress:
    """How far a shard is: `sent` records of batch `seq`, and whether that was all of them.

    `attempt` is the name of the computation that they are of; "" if nothing was sent yet.
    """

    seq: int
    sent: int
    done: bool
    attempt: str = ""

    def lacks(self, seq: int) -> bool:
        """Whether something of batch `seq` is not sent yet."""
        return self.seq < seq or (self.seq == seq and not self.done)


class KafkaPublisher:
    """Publishes a stream's batches, or a part of each, to one topic under one transactional id.

    It can be pickled: it has a connection only while it works.
    """

    def __init__(
        self, config: KafkaConfig, shard: str, topic: str, chunk_records: int = CHUNK_RECORDS
    ) -> None:
        self._config = config
        self._shard = shard
        self._topic = topic
        self._chunk_records = chunk_records

    def begin(self, seq: int) -> None:
        """Write a shard's first progress record, unless it has one: batch `seq` will be its first.

        Only for a shard that the ledger does not know yet, hence one that has sent nothing; the ledger is
        told afterwards. Raises Fenced where the shard has sent what this ledger knows nothing of,
        OutcomeUnknown, BrokerUnavailable.
        """
        first = Progress(seq - 1, 0, done=True)
        with self._instance() as producer:
            progress = self._read_progress()
            if progress is None:
                self._send(producer, [], first)
            elif progress != first:
                raise self._ahead(seq, progress)

    def publish(
        self, seq: int, attempt: str, messages: Callable[[int], Iterator[Message]], last_published: int
    ) -> int:
        """Send a batch as an attempt computed it, or what is left of it. Returns how many records that was.

        `messages(n)` gives the batch's messages from the n-th on, always in the same order.
        `last_published` is the newest batch that the ledger says this shard has sent some of, 0 if none.
        Raises ProgressLost; Fenced also where the shard is further than this ledger, or has sent another
        attempt of the batch; OutcomeUnknown, BrokerUnavailable.
        """
        with self._instance() as producer:
            return self._publish(producer, Progress(seq, 0, False, attempt), messages, last_published)

    def rewrite_progress(self, find: Callable[[Progress | None], Progress]) -> Progress:
        """Put what `find` tells, who is given the record that is there, in the place of a lost one.

        It is asked when nobody else can write any more. Raises Fenced, OutcomeUnknown, BrokerUnavailable.
        """
        with self._instance() as producer:
            there = self._read_progress()
            progress = find(there)
            if progress != there:
                self._send(producer, [], progress)
        return progress

    @contextmanager
    def _instance(self) -> Iterator[Any]:
        """A producer under the shard's id: what an earlier one left open is settled, and it is shut out."""
        with broker_errors(self._config):
            with failpoint("publish.connect"):
                producer = self._producer()
            try:
                with failpoint("publish.init"):
                    producer.init_transactions()
                yield producer
            except KafkaError as error:
                if (refused := refusal(error, self._config, self._shard, self._topic)) is not None:
                    raise refused from error
                if not _is_fenced(error):
                    raise
                raise Fenced(
                    f"A newer publisher of {self._shard} has taken over", "Nothing more was sent by this one."
                ) from error
            finally:
                producer.close(timeout=2)

    def _publish(
        self,
        producer: Any,
        none: Progress,
        messages: Callable[[int], Iterator[Message]],
        last_published: int,
    ) -> int:
        """`none` is the progress of the batch before anything of it is sent."""
        progress = self._read_progress()
        if progress is None or last_published < none.seq:
            progress = self.check(progress, last_published)
        if progress.seq > none.seq or (
            progress.seq == none.seq and progress.attempt not in ("", none.attempt)
        ):
            raise self._ahead(none.seq, progress)
        if not progress.lacks(none.seq):
            return 0
        already = progress.sent if progress.seq == none.seq else 0
        sent = already
        for chunk, is_last in chunks(messages(already), self._chunk_records):
            sent += len(chunk)
            self._send(producer, chunk, replace(none, sent=sent, done=is_last))
        return sent - already

    def check_known(self, progress: Progress, head: int) -> None:
        """Raises Fenced where a shard has sent batches that come after the ledger's head."""
        if progress.seq > head:
            raise self._ahead(head, progress)

    def _ahead(self, seq: int, progress: Progress) -> Fenced:
        return Fenced(
            f"{self._shard} is at batch {seq}, but topic {PROGRESS_TOPIC} says that it has sent "
            f"{progress.sent} records of attempt {progress.attempt or '(none)'} of batch {progress.seq}",
            f"{SINK_IS_AHEAD}.",
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

    def _send(self, producer: Any, chunk: Sequence[Message], progress: Progress) -> None:
        with failpoint("publish.begin"):
            producer.begin_transaction()
        with failpoint("publish.send"):
            futures = [self._send_one(producer, message) for message in chunk]
        with failpoint("publish.send_progress"):
            futures.append(self._send_progress(producer, progress))
        with failpoint("publish.flush"):
            producer.flush(timeout=_ANSWER_SECONDS)
        with failpoint("publish.acknowledge"):
            _acknowledged(futures)
        with failpoint("publish.commit"):
            _answered(producer.commit_transaction)

    def _send_one(self, producer: Any, message: Message) -> Any:
        return producer.send(
            self._topic,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            timestamp_ms=message.timestamp_ms,
        )

    def _send_progress(self, producer: Any, progress: Progress) -> Any:
        at = self._place(producer.partitions_for(PROGRESS_TOPIC))
        body = json.dumps(asdict(progress)).encode()
        return producer.send(at.topic, value=body, key=self._shard.encode(), partition=at.partition)

    def _place(self, partitions: Collection[int]) -> TopicPartition:
        """Where the shard's progress records are, in a partition that it shares with others by chance only.

        A transaction that another shard left open hides all that comes after it in a partition, for as long
        as a minute. Raises KafkaError where the topic has no partitions yet.
        """
        if not partitions:
            raise KafkaError(f"{PROGRESS_TOPIC} has no partitions yet")
        return TopicPartition(PROGRESS_TOPIC, crc32(self._shard.encode()) % len(partitions))

    def _read_progress(self) -> Progress | None:
        with failpoint("publish.read_progress"):
            return self.progress()

    def progress(self) -> Progress | None:
        """The shard's last committed progress record, or None when there is none."""
        read = partial(read_until, seconds=SETTLED_SECONDS)
        with committed_reader(self._config) as consumer:
            at = self._place(consumer.partitions_for_topic(PROGRESS_TOPIC))
            consumer.assign([at])
            record = newest_record(consumer, at, self._shard.encode(), self._end(at), read)
        return Progress(**json.loads(record.value)) if record is not None else None

    def _end(self, at: TopicPartition) -> int:
        """Where a partition of progress records ends: the high watermark.

        Not the consumer's own end, which under `read_committed` is the last stable offset: a transaction that
        another shard has open holds that back, below records of this shard that are committed. What was
        published would then be unknown, and published again.
        """
        with KafkaLog(self._config) as log:
            return log.end(at.topic, at.partition)

    def _producer(self) -> Any:
        return KafkaProducer(
            **self._config.for_python(),
            transactional_id=self._shard,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            acks="all",
            linger_ms=20,
            batch_size=256 * 1024,
            compression_type="lz4",
            allow_auto_create_topics=False,
            max_block_ms=30_000,
            bootstrap_timeout_ms=15_000,
        )


@contextmanager
def committed_reader(config: KafkaConfig) -> Iterator[Any]:
    """A consumer of no group that sees what is committed, and leaves no trace."""
    consumer = KafkaConsumer(
        **config.for_python(),
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


def chunks(
    messages: Iterable[Sized], records: int = CHUNK_RECORDS, size: int = CHUNK_BYTES
) -> Iterator[tuple[list[Sized], bool]]:
    """Chunks of at most so many records and bytes, each with whether it is the last; one at least."""
    chunk: list[Sized] = []
    full = 0
    for message in messages:
        full += message.size
        if chunk and (len(chunk) == records or full > size):
            yield chunk, False
            chunk, full = [], message.size
        chunk.append(message)
    yield chunk, True


def _acknowledged(futures: Sequence[Any]) -> None:
    """Wait for the answers to what was sent. Of several errors, one that no retry can help is raised: what
    the client has not sent for it fails, too, and does not tell why.
    """
    errors: list[KafkaError] = []
    for future in futures:
        try:
            future.get(timeout=_ANSWER_SECONDS)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            errors.append(error)
    if errors:
        raise next((error for error in errors if answer_in(error) is not None), errors[0])


def _is_fenced(error: KafkaError) -> bool:
    """Whether a newer instance has taken over; what the client raises later only names that first error."""
    return isinstance(error, _FENCED) or any(kind.__name__ in str(error) for kind in _FENCED)


def _answered(call: Callable[[], None]) -> None:
    """Run a call that may wait forever for the broker's answer, but not longer than _ANSWER_SECONDS."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if thread.is_alive():
        raise OutcomeUnknown(
            f"Kafka did not say within {_ANSWER_SECONDS:.0f} s whether a transaction is committed",
            "Run again: it reads the progress record and goes on from what is true.",
        )
    if failure:
        raise failure[0]
