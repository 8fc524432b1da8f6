"""Reading a planned range of offsets: committed records, in order, all that are there, or an error.

The range decides what is read, never a consumer group, and a range that is not there any more is never
passed over. What is legal inside it: markers of transactions, aborted records, and gaps that compaction left,
at its ends, too. librdkafka fetches ahead in threads of its own, within `_AHEAD_KB`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaError, Message, TopicPartition

from tidegate.broker.config import KafkaConfig
from tidegate.broker.unreachable import login_refused, topic_right_missing
from tidegate.errors import BrokerUnavailable, LogTruncated, OffsetsLost, SettingsInvalid, TopicMissing

MOST_RECORDS = 16_384
_BLOCK_BYTES = 8 * 1024 * 1024
_FIRST_RECORDS = 256
_AHEAD_KB = 32 * 1024
_LEAST_FETCH_BYTES, _MOST_FETCH_BYTES = 256 * 1024, 8 * 1024 * 1024
_QUEUED_RECORDS = 200_000
_WAIT_SECONDS = 0.1
_BOUNDS_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""So long a range may give nothing at all, while clients try brokers again and again."""

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""Not GROUP_AUTHORIZATION_FAILED: the client looks for its group's coordinator, and needs none to read."""
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


@dataclass(frozen=True)
class Slice:
    """Offsets of a topic-partition, from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """How many offsets it has."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offsets {self.start} to {self.end - 1}"


def read_slice(
    config: KafkaConfig, wanted: Slice, silent_seconds: float = SILENT_SECONDS
) -> Iterator[list[Message]]:
    """The committed records of a slice, in blocks of at most MOST_RECORDS and some `_BLOCK_BYTES`.

    Raises OffsetsLost (retention passed its start), LogTruncated (the log ends before its end), TopicMissing,
    SettingsInvalid (a login that is refused), BrokerUnavailable (nothing came for `silent_seconds`).
    """
    if wanted.start >= wanted.end:
        return
    errors: list[KafkaError] = []
    consumer = _consumer(config, _ahead(wanted.end - wanted.start) | {"error_cb": errors.append})
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        yield from _blocks(config, consumer, wanted, silent_seconds, errors)
    finally:
        consumer.close()


def _consumer(config: KafkaConfig, options: dict[str, Any]) -> ck.Consumer:
    try:
        return ck.Consumer(config.for_librdkafka() | _OPTIONS | options)
    except ck.KafkaException as error:
        raise SettingsInvalid(
            f"The client that reads Kafka cannot work with {config.variable}: "
            f"{config.redacted(error.args[0].str())}",
            "Files of certificates and keys have to be on each machine on which Spark's workers run, under "
            "the same names; or give them as texts (ssl.ca.pem, ssl.certificate.pem, ssl.key.pem).",
        ) from None


_OPTIONS = {
    "group.id": "tidegate",  # the client wants one; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": _AHEAD_KB,
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 10,  # a reader that emptied its queue would wait a second for the next fetch
    "log_level": 0,
}


def _ahead(records: int) -> dict[str, Any]:
    """How far to fetch ahead for so many records: of a short slice of a long log not much beyond its end."""
    return {
        "fetch.message.max.bytes": max(_LEAST_FETCH_BYTES, min(_MOST_FETCH_BYTES, records * 1_024)),
        "queued.min.messages": min(_QUEUED_RECORDS, records),
    }


def _blocks(
    config: KafkaConfig,
    consumer: ck.Consumer,
    wanted: Slice,
    silent_seconds: float,
    errors: Sequence[KafkaError],
) -> Iterator[list[Message]]:
    """`errors`: what brokers have said besides, so far."""
    position, records = wanted.start, _FIRST_RECORDS
    deadline = time.monotonic() + silent_seconds
    while position < wanted.end:
        # no more than can come: the client waits for all that it is asked for, or until the time is over
        answers = consumer.consume(min(records, wanted.end - position), _WAIT_SECONDS)
        events = [message for message in answers if message.error() is not None]
        for error in (*errors, *(message.error() for message in events)):
            if error is not None:
                _require_right(config, wanted, error)
        block = [message for message in answers if message.error() is None] if events else answers
        reached = max(
            [position, *(_reached(consumer, wanted, message) for message in (*events, *block[-1:]))]
        )
        if reached > position:
            position, deadline = reached, time.monotonic() + silent_seconds
        elif time.monotonic() > deadline:
            raise _silent(consumer, wanted, position, silent_seconds, errors)
        if position > wanted.end:
            block = [message for message in block if _offset(message) < wanted.end]
        if block:
            records = _next_size(block)
            yield block


def _next_size(block: Sequence[Message]) -> int:
    """How many records to ask for, so that a block of such as these takes some `_BLOCK_BYTES`."""
    size = sum(map(len, block)) + 1
    return max(1, min(MOST_RECORDS, _BLOCK_BYTES * len(block) // size, 4 * len(block) + _FIRST_RECORDS))


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a record and the end of a partition have an offset"
    return offset


def _reached(consumer: ck.Consumer, wanted: Slice, message: Message) -> int:
    """The offset before which nothing more will come, as a record or an event says.

    Raises what cannot pass by itself.
    """
    error = message.error()
    if error is None:
        return _offset(message) + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return _offset(message)
    if error.code() in _OUT_OF_RANGE:
        raise _out_of_range(consumer, wanted)
    if error.code() in _MISSING:
        raise _missing(wanted)
    return wanted.start  # brokers that come and go: librdkafka tries again


def _require_right(config: KafkaConfig, wanted: Slice, error: KafkaError) -> None:
    """Raise SettingsInvalid where an error says that this user is not taken, or may not read the topic."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise topic_right_missing(config, "Read", wanted.topic)
    if error.code() in _REFUSED:
        raise login_refused(config, error.name())


def _missing(wanted: Slice) -> TopicMissing:
    return TopicMissing(
        f"{wanted.topic}[{wanted.partition}] does not exist any more",
        "Restore the topic, or raise `generation` to read another one.",
    )


def _out_of_range(consumer: ck.Consumer, wanted: Slice) -> Exception:
    first, end = _log_bounds(consumer, wanted)
    if first > wanted.start:
        return OffsetsLost(
            f"Retention deleted {wanted.topic}[{wanted.partition}] offsets {wanted.start} to "
            f"{min(first, wanted.end) - 1} while they were to be read",
            "Restore them, or go on without: tidegate recover PIPELINE --choose accept-gap",
        )
    return LogTruncated(
        f"{wanted.topic}[{wanted.partition}] ends at offset {end}, but is planned up to {wanted.end}",
        "Restore the log, or forget the plan: tidegate recover PIPELINE --choose drop-plan",
    )


def _silent(
    consumer: ck.Consumer, wanted: Slice, position: int, seconds: float, errors: Sequence[KafkaError]
) -> Exception:
    _, end = _log_bounds(consumer, wanted)
    if end < wanted.end:
        return _out_of_range(consumer, wanted)
    return BrokerUnavailable(
        f"{wanted} gave nothing for {seconds:.0f} s at offset {position}"
        + "".join(f" ({error.name()})" for error in errors[-1:]),
        "Check that the broker runs; then run again, nothing is lost.",
    )


def _log_bounds(consumer: ck.Consumer, wanted: Slice) -> tuple[int, int]:
    """First offset that is kept, and the end of the log."""
    try:
        at = TopicPartition(wanted.topic, wanted.partition)
        first, end = consumer.get_watermark_offsets(at, timeout=_BOUNDS_SECONDS)
    except ck.KafkaException as error:
        if error.args[0].code() in _MISSING:
            raise _missing(wanted) from error
        raise BrokerUnavailable(
            f"Kafka does not say where {wanted.topic}[{wanted.partition}] begins and ends",
            "Check that the broker runs; then run again, nothing is lost.",
        ) from error
    return first, end
