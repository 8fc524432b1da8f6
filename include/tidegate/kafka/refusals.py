"""Translate errors of the publishing client into errors that say why, and whether a retry can help."""

from __future__ import annotations

from confluent_kafka import KafkaError

from tidegate.errors import (
    BrokerUnavailable,
    Fenced,
    Permanent,
    RecordTooLarge,
    SettingsInvalid,
    SinkRefused,
    TidegateError,
    TimestampRefused,
)
from tidegate.kafka.config import PROGRESS_TOPIC, KafkaConfig
from tidegate.kafka.limits import AFTER, BEFORE
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.properties import TRANSACTION_TIMEOUT
from tidegate.kafka.unreachable import login_refused, right_missing, topic_right_missing

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
