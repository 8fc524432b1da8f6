"""What a broker answers when it will not have a record, however often it is sent: as errors that say why."""

from __future__ import annotations

from kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
)

from tidegate.broker.config import KafkaConfig
from tidegate.broker.limits import AFTER, BEFORE
from tidegate.broker.log import KafkaLog
from tidegate.errors import Permanent, RecordTooLarge, SinkRefused, TimestampRefused

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_REFUSALS = (InvalidTimestampError, InvalidRecordError, PolicyViolationError, *_TOO_LARGE)
_RUN_AGAIN = "then run again: what is decided is sent, once"


def refusal(error: KafkaError, config: KafkaConfig, shard: str, topic: str) -> Permanent | None:
    """What a refused record of a shard comes to, with the topic's limit; None for any other error.

    Asks the broker for the limit. Raises BrokerUnavailable, TopicMissing.
    """
    answer = answer_in(error)
    if answer is None:
        return None
    if isinstance(answer, InvalidTimestampError):
        return _of_timestamp(config, shard, topic)
    if isinstance(answer, _TOO_LARGE):
        return _of_size(config, shard, topic)
    return SinkRefused(
        f"The topic {topic} refuses an emission of {shard}: {answer}",
        f"Correct the topic's rules (its policies, compaction, or the broker's plug-ins), {_RUN_AGAIN}.",
    )


def answer_in(error: KafkaError) -> KafkaError | None:
    """The broker's answer that it refuses a record, if that is what an error comes from.

    Once a record of a transaction was refused, the client fails all that follows, with that answer among the
    arguments of its error.
    """
    return next((part for part in (error, *error.args) if isinstance(part, _REFUSALS)), None)


def _of_timestamp(config: KafkaConfig, shard: str, topic: str) -> Permanent:
    with KafkaLog(config) as log:
        limits = log.timestamp_limits(topic)
    has = {BEFORE: limits.before_ms, AFTER: limits.after_ms}
    limited = ", ".join(f"{name}={limit}" for name, limit in has.items() if limit is not None)
    return TimestampRefused(
        f"The topic {topic} refuses the timestamp of an emission of {shard}: by the broker's clock it is too "
        f"far ahead or behind ({limited or 'the limits are not shown to this user'})",
        f"Raise the limit with kafka-configs.sh --alter --topic {topic}, or, if "
        f"the emission is ahead, wait until its time has come; {_RUN_AGAIN}.",
    )


def _of_size(config: KafkaConfig, shard: str, topic: str) -> Permanent:
    with KafkaLog(config) as log:
        limit = log.largest_bytes(topic)
    return RecordTooLarge(
        f"The topic {topic} refuses an emission of {shard} as too large (max.message.bytes="
        f"{'not shown to this user' if limit is None else limit})",
        f"Let it take more: kafka-configs.sh --alter --topic {topic} --add-config "
        f"max.message.bytes=1048588; {_RUN_AGAIN}.",
    )
