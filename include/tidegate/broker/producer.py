"""librdkafka's producer, as publication needs it: one transaction after the other, and each wait bounded.

No callback is set, so no Python runs per record that was delivered: once a record of a transaction fails, the
client fails the whole transaction, and its commit says why and does nothing. It is never closed, since
`close` waits for the broker without a bound: what is dropped is destroyed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.broker.config import KafkaConfig, Transactions
from tidegate.broker.messages import message_columns
from tidegate.broker.refusals import is_fenced
from tidegate.errors import OutcomeUnknown

BATCH_BYTES = 256 * 1024
_INIT_SECONDS = 45.0
_ANSWER_SECONDS = 45.0
_MORE_SECONDS = 5.0
"""The client notices that a message was not delivered in time a moment later."""
_LOOK_SECONDS = 1.0
_ABORT_SECONDS = 5.0
_BY_KEY = -1
_NO_MORE = {KafkaError._STATE, KafkaError._FATAL}
"""What `produce` answers when the transaction, or the producer, has failed already."""
_TIMEOUTS = {
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._INCONSISTENT,  # a commit's word for messages that failed without a reason of the broker's
}


class DeliveryTimedOut(Exception):
    """The messages of a transaction were not delivered in time; nothing of it is committed."""


def error_of(exception: KafkaException) -> KafkaError:
    """What the client says of an error."""
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
    "message.max.bytes": 1_000_000_000,  # how large a record may be is the topic's business
    "queue.buffering.max.messages": 0,  # no bound: a chunk at a time is in it
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # as Java's clients have it: a key's partition is the same with any
    "delivery.report.only.error": True,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


def _timeouts(options: Mapping[str, Any], transactions: Transactions) -> dict[str, int]:
    """The client refuses to work with one that is longer than a transaction may take."""
    socket_ms = int(options.get("socket.timeout.ms", transactions.timeout_ms))
    return {
        "transaction.timeout.ms": transactions.timeout_ms,
        "message.timeout.ms": transactions.delivery_ms,
        "socket.timeout.ms": min(socket_ms, transactions.timeout_ms // 2),
    }


class TransactionalProducer:
    """A producer under a stable id, for `topic` first of all. As a context manager it aborts what an error
    leaves open.

    Its methods raise KafkaException, of an error after which nothing of the open transaction is committed;
    `commit` also OutcomeUnknown.
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
            with suppress(KafkaException):  # whoever comes next settles it, or the broker after a minute
                self._client.abort_transaction(_ABORT_SECONDS)
        del self._client

    def init(self) -> None:
        """Settle what an earlier producer of this id left open, and shut it out."""
        # The client looks only every half second for a broker that it can ask for the coordinator, and it
        # leaves the address that it was given as soon as it knows the broker's name.
        with suppress(KafkaException):  # what fails here, initialising tells in its own words
            for _ in ("from the address that was given", "from a broker by its name"):
                self._client.list_topics(self._topic, _LOOK_SECONDS)
        self._client.init_transactions(_INIT_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        self._client.begin_transaction()

    def send(self, topic: str, batch: pa.RecordBatch) -> None:
        """Queue a batch of messages, each for the partition of its key."""
        produce = self._client.produce
        try:
            for key, value, timestamp_ms, headers in message_columns(batch):
                # By position, which takes two thirds of the time. To the client, the timestamp 0 is
                # "now": the first millisecond of 1970 goes out as the second.
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
        """Why the client takes no more records."""
        if error_of(error).code() in _NO_MORE:
            try:
                self._client.commit_transaction(_ABORT_SECONDS)
            except KafkaException as cause:
                return cause
        return error

    def flush(self) -> None:
        """Wait until all that is queued is delivered. The first record that fails ends it: those behind it
        would wait until they time out. Raises DeliveryTimedOut.
        """
        deadline = time.monotonic() + self._delivery_seconds + _MORE_SECONDS
        while self._client.flush(_LOOK_SECONDS):
            self._require_intact()
            if time.monotonic() > deadline:
                raise DeliveryTimedOut

    def _require_intact(self) -> None:
        """Raises what the open transaction has failed of."""
        try:
            self._client.begin_transaction()
        except KafkaException as refusal:  # always: one is open
            _require_delivered(refusal)
            if error_of(refusal).txn_requires_abort():
                raise

    def commit(self) -> None:
        """Commit the transaction. Raises OutcomeUnknown where the client cannot tell whether it is, and
        DeliveryTimedOut.
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
                "Run again: it reads the progress record and goes on from what is true.",
            ) from exception
