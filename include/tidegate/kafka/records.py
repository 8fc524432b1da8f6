"""Read a planned range of offsets: all of its committed records in order, or an error.

The range decides which records are read, never a consumer group, and offsets that no longer exist are an
error. Transaction markers, aborted records and the gaps of compaction are legal inside of a range, also at
its ends. librdkafka fetches ahead in its own threads, up to `_AHEAD_KB`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaError, Message, TopicPartition

from tidegate.errors import BrokerUnavailable, LogTruncated, OffsetsLost, SettingsInvalid, TopicMissing
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.connection import login_refused, topic_right_missing

MOST_RECORDS = 16_384
_BLOCK_BYTES = 8 * 1024 * 1024
_FIRST_RECORDS = 256
_AHEAD_KB = 32 * 1024
_LEAST_FETCH_BYTES, _MOST_FETCH_BYTES = 256 * 1024, 8 * 1024 * 1024
_QUEUED_RECORDS = 200_000
_WAIT_SECONDS, _SHORT_WAIT_SECONDS = 0.1, 0.01
_FETCH_WAIT_MS, _SHORT_FETCH_WAIT_MS = 50, 5
_BOUNDS_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""The time for which a range may give nothing, while the client retries its brokers."""

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""Without GROUP_AUTHORIZATION_FAILED: the client asks for a group coordinator, but reads without one."""
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


@dataclass(frozen=True)
class Slice:
    """Offsets of a topic-partition, from `start` (inclusive) to `end` (exclusive), which one task reads.

    Example: `str(Slice("events", 0, 100, 200))` is `events[0] offsets 100 to 199`.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """The number of offsets in the slice."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offsets {self.start} to {self.end - 1}"


def read_slice(
    config: KafkaConfig, slice_: Slice, silent_seconds: float = SILENT_SECONDS
) -> Iterator[list[Message]]:
    """Yield the committed records of a slice, in blocks of at most MOST_RECORDS and about `_BLOCK_BYTES`.

    Raises OffsetsLost if retention deleted its start, LogTruncated if the log ends before its end,
    TopicMissing, SettingsInvalid if the broker refuses the login, BrokerUnavailable if nothing came for
    `silent_seconds`.

    Example: `for block in read_slice(config, Slice("events", 0, 100, 200)): decode(block)`
    """
    if slice_.start >= slice_.end:
        return
    errors: list[KafkaError] = []
    consumer = _consumer(config, _ahead(slice_.end - slice_.start) | {"error_cb": errors.append})
    try:
        consumer.assign([TopicPartition(slice_.topic, slice_.partition, slice_.start)])
        yield from _blocks(config, consumer, slice_, silent_seconds, errors)
    finally:
        consumer.close()


def read_records(
    config: KafkaConfig, slice_: Slice, silent_seconds: float = SILENT_SECONDS
) -> Iterator[Message]:
    """Yield the committed records of a slice that no batch has planned, such as all of an output topic.

    Raises BrokerUnavailable also if records of the slice are deleted meanwhile, since the next try plans
    another slice; else as `read_slice`.
    """
    try:
        for block in read_slice(config, slice_, silent_seconds):
            yield from block
    except (OffsetsLost, LogTruncated, TopicMissing) as error:
        raise BrokerUnavailable(
            f"{slice_} changed while they were read: {error.what}", "Run again, nothing is lost."
        ) from error


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
    "group.id": "tidegate",  # the client requires one; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": _AHEAD_KB,
    "fetch.queue.backoff.ms": 10,  # a reader that emptied its queue would wait a second for the next fetch
    "log_level": 0,
}


def _ahead(records: int) -> dict[str, Any]:
    """Return how the client fetches a slice with so many offsets: of a short slice of a long log, it reads
    little beyond its end.
    """
    return {
        # A broker holds back its answer at the end of a log; a slice that ends there waits for it.
        "fetch.wait.max.ms": _FETCH_WAIT_MS if records > _FIRST_RECORDS else _SHORT_FETCH_WAIT_MS,
        "fetch.message.max.bytes": max(_LEAST_FETCH_BYTES, min(_MOST_FETCH_BYTES, records * 1_024)),
        "queued.min.messages": min(_QUEUED_RECORDS, records),
    }


def _blocks(
    config: KafkaConfig,
    consumer: ck.Consumer,
    slice_: Slice,
    silent_seconds: float,
    errors: Sequence[KafkaError],
) -> Iterator[list[Message]]:
    """Yield the records of a slice in blocks. `errors` gets the errors that brokers report beside the
    records.
    """
    position, records = slice_.start, _FIRST_RECORDS
    deadline = time.monotonic() + silent_seconds
    while position < slice_.end:
        # Request no more records than can come: the client waits for all of them, or for the timeout. At the
        # end of a slice, markers of transactions may be all that is left.
        rest = slice_.end - position
        wait = _WAIT_SECONDS if rest > _FIRST_RECORDS else _SHORT_WAIT_SECONDS
        answers = consumer.consume(min(records, rest), wait)
        # almost always there are only records; an error of this client cannot be compared with None
        only_records = set(map(type, map(Message.error, answers))) <= {type(None)}
        events = [] if only_records else [message for message in answers if message.error() is not None]
        for error in (*errors, *(message.error() for message in events)):
            if error is not None:
                _require_right(config, slice_, error)
        block = [message for message in answers if message.error() is None] if events else answers
        reached = max(
            [position, *(_reached(consumer, slice_, message) for message in (*events, *block[-1:]))]
        )
        if reached > position:
            position, deadline = reached, time.monotonic() + silent_seconds
        elif time.monotonic() > deadline:
            raise _silent(consumer, slice_, position, silent_seconds, errors)
        # In a log with gaps, as many records can reach beyond the slice: they belong to the next one.
        if position > slice_.end:
            block = [message for message in block if offset_of(message) < slice_.end]
        if block:
            records = _next_size(block)
            yield block


def _next_size(block: Sequence[Message]) -> int:
    """Return the number of records to request, so that a block of such records takes about `_BLOCK_BYTES`."""
    # A few small records say little of those behind them, so the number at most quadruples.
    size = sum(map(len, block)) + 1
    return max(1, min(MOST_RECORDS, _BLOCK_BYTES * len(block) // size, 4 * len(block) + _FIRST_RECORDS))


def offset_of(message: Message) -> int:
    """Return the offset of a record, or of the event that ends a partition."""
    offset = message.offset()
    assert offset is not None, "a record and the end of a partition have an offset"
    return offset


def _reached(consumer: ck.Consumer, slice_: Slice, message: Message) -> int:
    """Return the offset before which no more records will come, by a record or an event.

    Raises errors that do not pass by themselves.
    """
    error = message.error()
    if error is None:
        return offset_of(message) + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return offset_of(message)
    if error.code() in _OUT_OF_RANGE:
        raise _out_of_range(consumer, slice_)
    if error.code() in _MISSING:
        raise _missing(slice_)
    return slice_.start  # a connection error: librdkafka retries


def _require_right(config: KafkaConfig, slice_: Slice, error: KafkaError) -> None:
    """Raise SettingsInvalid if an error says that the broker refuses this user, or that the user may not read
    the topic.
    """
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise topic_right_missing(config, "Read", slice_.topic)
    if error.code() in _REFUSED:
        raise login_refused(config, error.name())


def _missing(slice_: Slice) -> TopicMissing:
    return TopicMissing(
        f"{slice_.topic}[{slice_.partition}] does not exist any more",
        "Restore the topic, or raise `generation` to read another one.",
    )


def _out_of_range(consumer: ck.Consumer, slice_: Slice) -> Exception:
    first, end = _log_bounds(consumer, slice_)
    if first > slice_.start:
        return OffsetsLost(
            f"Retention deleted {slice_.topic}[{slice_.partition}] offsets {slice_.start} to "
            f"{min(first, slice_.end) - 1} while they were to be read",
            "Restore them, or go on without: tidegate recover PIPELINE --choose accept-gap",
        )
    return LogTruncated(
        f"{slice_.topic}[{slice_.partition}] ends at offset {end}, but is planned up to {slice_.end}",
        "Restore the log, or forget the plan: tidegate recover PIPELINE --choose drop-plan",
    )


def _silent(
    consumer: ck.Consumer, slice_: Slice, position: int, seconds: float, errors: Sequence[KafkaError]
) -> Exception:
    _, end = _log_bounds(consumer, slice_)
    if end < slice_.end:
        return _out_of_range(consumer, slice_)
    return BrokerUnavailable(
        f"{slice_} gave nothing for {seconds:.0f} s at offset {position}"
        + "".join(f" ({error.name()})" for error in errors[-1:]),
        "Check that the broker runs; then run again, nothing is lost.",
    )


def _log_bounds(consumer: ck.Consumer, slice_: Slice) -> tuple[int, int]:
    """Return the first offset that the log keeps, and the end of the log."""
    try:
        at = TopicPartition(slice_.topic, slice_.partition)
        first, end = consumer.get_watermark_offsets(at, timeout=_BOUNDS_SECONDS)
    except ck.KafkaException as error:
        if error.args[0].code() in _MISSING:
            raise _missing(slice_) from error
        raise BrokerUnavailable(
            f"Kafka does not say where {slice_.topic}[{slice_.partition}] begins and ends",
            "Check that the broker runs; then run again, nothing is lost.",
        ) from error
    return first, end
