"""librdkafka's producer for publication: one transaction after the other, each wait with a limit.

No delivery callback is set, so no Python code runs per record. If a record of a transaction fails, the client
fails the whole transaction; its commit then has no effect and gives the reason. The producer is never closed,
because `close` waits for the broker without a limit: dropping the last reference destroys it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.errors import OutcomeUnknown
from tidegate.kafka.config import KafkaConfig, Transactions
from tidegate.kafka.messages import message_columns
from tidegate.kafka.refusals import is_fenced

BATCH_BYTES = 256 * 1024
_INIT_SECONDS = 45.0
_ANSWER_SECONDS = 45.0
_MORE_SECONDS = 5.0
"""The client notices a timeout of delivery a moment later."""
_LOOK_SECONDS = 1.0
_ABORT_SECONDS = 5.0
_BY_KEY = -1
_NO_MORE = {KafkaError._STATE, KafkaError._FATAL}
"""Errors of `produce` if the transaction, or the producer, has failed before."""
_TIMEOUTS = {
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._INCONSISTENT,  # the commit's error for messages that failed without an answer of the broker
}


class DeliveryTimedOut(Exception):
    """The messages of a transaction were not delivered in time; none of it is committed."""


def error_of(exception: KafkaException) -> KafkaError:
    """Return the client's error that an exception carries."""
    error: KafkaError = exception.args[0]
    return error


def _require_delivered(exception: KafkaException) -> None:
    error = error_of(exception)
    if error.txn_requires_abort() and error.code() in _TIMEOUTS:
        raise DeliveryTimedOut from exception


_OPTIONS = {
    "acks": "all",
    "linger.ms": 5,
    "batch.num.messages": 100_000,
    "message.max.bytes": 1_000_000_000,  # the topic limits the size of records
    "queue.buffering.max.messages": 0,  # no limit: the queue has one chunk at a time
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # the same partition for a key as with Java's clients
    "delivery.report.only.error": True,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


def _timeouts(options: Mapping[str, Any], transactions: Transactions) -> dict[str, int]:
    """Return the timeouts of the client, which rejects one that is longer than the transaction's."""
    socket_ms = int(options.get("socket.timeout.ms", transactions.timeout_ms))
    return {
        "transaction.timeout.ms": transactions.timeout_ms,
        "message.timeout.ms": transactions.delivery_ms,
        "socket.timeout.ms": min(socket_ms, transactions.timeout_ms // 2),
    }


class TransactionalProducer:
    """A producer under a stable transactional id, which publishes to `topic`.

    As a context manager it aborts a transaction that an error leaves open. Its methods raise KafkaException
    for an error after which nothing of the open transaction is committed; `commit` also raises
    OutcomeUnknown.

    Example:
        with TransactionalProducer(config, "tidegate-orders-1-0", "changes") as producer:
            producer.init()
            producer.begin()
            producer.send("changes", batch)
            producer.commit()
    """

    def __init__(
        self, config: KafkaConfig, transactional_id: str, topic: str, batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._topic = topic
        named = {"transactional.id": transactional_id, "batch.size": batch_bytes}
        options = config.for_librdkafka()
        self._delivery_seconds = config.transactions.delivery_ms / 1000
        self._client = Producer(options | _OPTIONS | _timeouts(options, config.transactions) | named)

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            with suppress(KafkaException):  # the next producer aborts it, or the broker after its timeout
                self._client.abort_transaction(_ABORT_SECONDS)
        del self._client

    def init(self) -> None:
        """Complete or abort the transaction of an earlier producer with this id, and fence that producer."""
        # The client looks for a broker to ask for the coordinator only every half second, and it drops the
        # address that it was given as soon as it has the broker's name. Listing topics connects it before.
        with suppress(KafkaException):  # `init_transactions` reports the same failure with its reason
            for _ in ("from the address that was given", "from a broker by its name"):
                self._client.list_topics(self._topic, _LOOK_SECONDS)
        self._client.init_transactions(_INIT_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        self._client.begin_transaction()

    def send(self, topic: str, batch: pa.RecordBatch) -> None:
        """Queue a batch of messages (see `broker.messages`); the key of each message decides its
        partition.
        """
        produce = self._client.produce
        try:
            for key, value, timestamp_ms, headers in message_columns(batch):
                # Positional arguments take two thirds of the time of keywords. To the client, timestamp 0
                # means "now", so the first millisecond of 1970 is sent as the second.
                produce(topic, value, key, _BY_KEY, None, None, timestamp_ms or 1, headers)
        except KafkaException as error:
            raise self._cause(error) from error

    def send_to(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Queue one record for a partition."""
        try:
            self._client.produce(topic, value, key, partition)
        except KafkaException as error:
            raise self._cause(error) from error

    def _cause(self, error: KafkaException) -> KafkaException:
        """Return the error because of which the client accepts no more records."""
        # `produce` only says that something has failed before; the commit says what it was.
        if error_of(error).code() in _NO_MORE:
            try:
                self._client.commit_transaction(_ABORT_SECONDS)
            except KafkaException as cause:
                return cause
        return error

    def flush(self) -> None:
        """Wait until all queued messages are delivered.

        The wait ends at the first record that fails: the records behind it would wait until they time out.
        Raises DeliveryTimedOut.
        """
        deadline = time.monotonic() + self._delivery_seconds + _MORE_SECONDS
        while self._client.flush(_LOOK_SECONDS):
            self._require_intact()
            if time.monotonic() > deadline:
                raise DeliveryTimedOut

    def _require_intact(self) -> None:
        """Raise the error that the open transaction failed with, if it failed.

        librdkafka has no call that returns the state of a transaction, but beginning a second one is refused
        with it.
        """
        try:
            self._client.begin_transaction()
        except KafkaException as refusal:  # always: one is open
            _require_delivered(refusal)
            if error_of(refusal).txn_requires_abort():
                raise

    def commit(self) -> None:
        """Commit the transaction.

        Raises OutcomeUnknown if the client cannot tell whether it is committed, DeliveryTimedOut if the
        messages were not delivered in time.
        """
        try:
            self._client.commit_transaction(_ANSWER_SECONDS)
        except KafkaException as exception:
            _require_delivered(exception)
            error = error_of(exception)
            if error.txn_requires_abort() or is_fenced(error):
                raise
            raise OutcomeUnknown(
                f"Kafka did not say whether a transaction is committed ({error.name()})",
                "Run again: the next try reads the progress record and continues from there.",
            ) from exception
