"""librdkafka's producer for publication: one transaction after the other, each wait with a limit.

No delivery callback is set, so no Python code runs per record. If a record of a transaction fails, the client
fails the whole transaction; its commit then has no effect and gives the reason. The producer is never closed,
because `close` waits for the broker without a limit: dropping the last reference destroys it.

Errors of the client are translated into errors that say why, and whether a retry can help.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import repeat
from types import TracebackType
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.errors import (
    BrokerUnavailable,
    Fenced,
    OutcomeUnknown,
    Permanent,
    RecordTooLarge,
    SettingsInvalid,
    SinkRefused,
    TidegateError,
    TimestampRefused,
)
from tidegate.kafka.config import PROGRESS_TOPIC, KafkaConfig, Transactions
from tidegate.kafka.connection import login_refused, right_missing, topic_right_missing
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import LEAST_CHUNK_BYTES, message_columns
from tidegate.kafka.properties import TRANSACTION_TIMEOUT
from tidegate.kafka.topic_facts import AFTER, BEFORE

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
"""A newer instance has taken over, or the broker has aborted the transaction after its timeout."""
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_AGAINST_RULES = {
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
}
_LOGIN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_SETTINGS = {KafkaError._INVALID_ARG, KafkaError._SSL, KafkaError._UNSUPPORTED_FEATURE}
_RUN_AGAIN = "then run again: what is decided is sent, once"


def is_fenced(error: KafkaError) -> bool:
    """Return whether the producer can do nothing more, since another one has its id."""
    return error.code() in _FENCED


def publication_error(error: KafkaError, log: KafkaLog, shard: str, topic: str) -> TidegateError:
    """Return tidegate's error for a client's error in a shard's publication. It never contains a credential.

    For a refused record it asks the broker for the limit. Raises BrokerUnavailable, TopicMissing.
    """
    code = error.code()
    if code in _FENCED:
        return Fenced(f"A newer publisher of {shard} has taken over", "Nothing more was sent by this one.")
    if code == KafkaError.INVALID_TIMESTAMP:
        return _of_timestamp(log, shard, topic)
    if code in _TOO_LARGE:
        return _of_size(log, shard, topic)
    if code in _AGAINST_RULES:
        return SinkRefused(
            f"The topic {topic} refuses an emission of {shard}: {error.str()}",
            f"Correct the topic's rules (its policies, compaction, or the broker's plug-ins), {_RUN_AGAIN}.",
        )
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        options = "--transactional-id tidegate- --resource-pattern-type prefixed"
        return right_missing(log.config, "Write", f"the transactional id {shard}", options)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return topic_right_missing(log.config, "Write", topic, PROGRESS_TOPIC)
    if code in _LOGIN:
        return login_refused(log.config, error.name())
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return _of_transaction_timeout(log.config)
    if code in _NO_TOPIC:
        with log:
            log.topic_id(topic)  # raises TopicMissing if the topic does not exist
    if code in _SETTINGS:
        return SettingsInvalid(
            f"The client that publishes to Kafka cannot work with these settings: {error.name()}",
            f"Check {log.config.variable}, the files of certificates and keys among it.",
        )
    return BrokerUnavailable(
        f"Kafka at {log.config.servers} does not answer the publisher ({error.name()})",
        f"Check that the broker runs and that {log.config.variable} names it; then run again, nothing is "
        "lost.",
    )


def _of_transaction_timeout(config: KafkaConfig) -> SettingsInvalid:
    return SettingsInvalid(
        f"Kafka at {config.servers} does not allow transactions of {config.transactions.timeout_ms} ms: its "
        "transaction.max.timeout.ms is smaller",
        f'Set "{TRANSACTION_TIMEOUT}" in {config.variable} to at most what the broker allows, such as '
        '"30000"; or let the broker allow more.',
    )


def _of_timestamp(log: KafkaLog, shard: str, topic: str) -> Permanent:
    with log:
        limits = log.timestamp_limits(topic)
    has = {BEFORE: limits.before_ms, AFTER: limits.after_ms}
    limited = ", ".join(f"{name}={limit}" for name, limit in has.items() if limit is not None)
    return TimestampRefused(
        f"The topic {topic} refuses the timestamp of an emission of {shard}: by the broker's clock it is too "
        f"far ahead or behind ({limited or 'the limits are not shown to this user'})",
        f"Raise the limit with kafka-configs.sh --alter --topic {topic}, or, if "
        f"the emission is ahead, wait until its time has come; {_RUN_AGAIN}.",
    )


def _of_size(log: KafkaLog, shard: str, topic: str) -> Permanent:
    with log:
        limit = log.largest_bytes(topic)
    return RecordTooLarge(
        f"The topic {topic} refuses an emission of {shard} as too large (max.message.bytes="
        f"{'not shown to this user' if limit is None else limit})",
        f"Let it take more: kafka-configs.sh --alter --topic {topic} --add-config "
        f"max.message.bytes=1048588; {_RUN_AGAIN}.",
    )


_FIRST_BYTES = 1024 * 1024
_QUICK, _SLOW = 0.125, 0.5
"""Parts of the time in which a transaction must be delivered: faster is quick, slower is slow."""


class Pace:
    """The size of the next transaction, in bytes.

    It begins small, doubles while the broker is quick, and shrinks when it is slow. A fixed size would be too
    large for some produce quota or network.

    Args:
        most_bytes: the largest size that it ever has.
        delivery_seconds: the time in which a transaction must be delivered.
    """

    def __init__(self, most_bytes: int, delivery_seconds: float) -> None:
        self._most = most_bytes
        self._delivery_seconds = delivery_seconds
        self._bytes = min(_FIRST_BYTES, most_bytes)

    @property
    def bytes(self) -> int:
        """The largest number of bytes of the next transaction."""
        return self._bytes

    def delivered(self, seconds: float) -> None:
        """Adapt to a transaction that was delivered within `seconds`."""
        if seconds < _QUICK * self._delivery_seconds:
            self._bytes = min(2 * self._bytes, self._most)
        elif seconds > _SLOW * self._delivery_seconds:
            self._bytes = max(self._bytes // 2, LEAST_CHUNK_BYTES)

    def timed_out(self) -> bool:
        """Adapt to a transaction that was not delivered in time. Return whether a smaller size is left to
        try.
        """
        # Each try that is too large costs a whole timeout, so the size falls faster than it rises.
        before, self._bytes = self._bytes, max(self._bytes // 4, LEAST_CHUNK_BYTES)
        return self._bytes < before


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
        """Queue a batch of messages (see `kafka.messages`); the key of each message decides its
        partition. Raises KafkaException if the client accepts no more messages.
        """
        keys, values, timestamps, headers = message_columns(batch)
        # To the client, timestamp 0 means "now", so the first millisecond of 1970 is sent as the second.
        times = (time_ms or 1 for time_ms in timestamps) if 0 in timestamps else timestamps
        # A loop takes a sixth longer than `map`, and keyword arguments half as long again.
        fixed = map(repeat, (_BY_KEY, None, None))
        sent = map(self._client.produce, repeat(topic), values, keys, *fixed, times, headers)
        try:
            deque(sent, maxlen=0)
        except KafkaException as error:
            raise self._cause(error) from error

    def send_to(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Queue one record for a partition. Raises KafkaException if the client accepts no more records."""
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
