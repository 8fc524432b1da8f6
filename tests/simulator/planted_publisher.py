"""Planted bugs in the publication to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafka import TopicPartition

from tests.simulator.app import here
from tests.simulator.clients import SimConsumer, SimProducer
from tests.simulator.planted import planted
from tidegate.broker import progress_topic
from tidegate.broker import publisher as kafka
from tidegate.broker.publisher import KafkaPublisher, Progress
from tidegate.errors import Fenced, OutcomeUnknown

_publish = KafkaPublisher.publish
_send = KafkaPublisher._send
_producer = KafkaPublisher._producer
_init_consumer = SimConsumer.__init__


def _published(
    self: Any, producer: Any, found: Progress | None, none: Progress, messages: Any, already: int, skip: int
) -> int:
    """The rest of `_publish`, from the progress on."""
    if found is not None and not found.lacks(none.seq):
        return 0
    sent = already
    for chunk, is_last in kafka.chunks(messages(skip), self._chunk_records):
        sent += len(chunk)
        self._send(producer, chunk, replace(none, sent=sent, done=is_last))
    return sent - already


def _sent(found: Progress | None, seq: int) -> int:
    return found.sent if found is not None and found.seq == seq else 0


@planted((KafkaPublisher, "_publish"))
def progress_is_read_before_init_transactions(
    self: Any, producer: Any, none: Progress, messages: Any, last: int
) -> int:
    found = self.progress()
    producer.init_transactions()
    return _published(self, producer, found, none, messages, _sent(found, none.seq), _sent(found, none.seq))


@planted((KafkaPublisher, "_publish"))
def progress_forgets_how_much_was_sent(
    self: Any, producer: Any, none: Progress, messages: Any, last: int
) -> int:
    """An interrupted batch begins again with its first chunk."""
    producer.init_transactions()
    return _published(self, producer, self.progress(), none, messages, 0, 0)


@planted((KafkaPublisher, "_publish"))
def a_retry_skips_nothing(self: Any, producer: Any, none: Progress, messages: Any, last: int) -> int:
    """It counts from where it was, but sends from the first message on."""
    producer.init_transactions()
    found = self.progress()
    return _published(self, producer, found, none, messages, _sent(found, none.seq), 0)


@planted((KafkaPublisher, "_publish"))
def a_later_batch_in_the_progress_is_overlooked(
    self: Any, producer: Any, none: Progress, messages: Any, last: int
) -> int:
    producer.init_transactions()
    found = self.progress()
    known = found if found is not None and found.seq == none.seq else None
    return _published(self, producer, known, none, messages, _sent(found, none.seq), _sent(found, none.seq))


@planted((KafkaPublisher, "_publish"))
def only_the_ledger_says_what_was_published(
    self: Any, producer: Any, none: Progress, messages: Any, last: int
) -> int:
    producer.init_transactions()
    return 0 if last >= none.seq else _published(self, producer, None, none, messages, 0, 0)


@planted((KafkaPublisher, "_send"))
def progress_is_a_transaction_of_its_own(self: Any, producer: Any, chunk: Any, progress: Progress) -> None:
    if chunk:
        producer.begin_transaction()
        _complete(producer, [self._send_one(producer, message) for message in chunk])
    producer.begin_transaction()
    _complete(producer, [self._send_progress(producer, progress)])


@planted((KafkaPublisher, "_send"))
def progress_is_committed_before_the_records(
    self: Any, producer: Any, chunk: Any, progress: Progress
) -> None:
    producer.begin_transaction()
    _complete(producer, [self._send_progress(producer, progress)])
    if chunk:
        producer.begin_transaction()
        _complete(producer, [self._send_one(producer, message) for message in chunk])


def _complete(producer: Any, futures: list[Any]) -> None:
    producer.flush(timeout=1)
    for future in futures:
        future.get(timeout=1)
    producer.commit_transaction()


@planted((KafkaPublisher, "_send"))
def every_chunk_says_that_it_is_the_last(self: Any, producer: Any, chunk: Any, progress: Progress) -> None:
    _send(self, producer, chunk, replace(progress, done=True))


@planted((KafkaPublisher, "_send"))
def a_commit_without_answer_is_sent_again(self: Any, producer: Any, chunk: Any, progress: Progress) -> None:
    """In another transaction, instead of finding out what became of the first."""
    try:
        _send(self, producer, chunk, progress)
    except OutcomeUnknown:
        producer.init_transactions()
        _send(self, producer, chunk, progress)


@planted((KafkaPublisher, "_send"))
def a_commit_without_answer_is_taken_for_done(
    self: Any, producer: Any, chunk: Any, progress: Progress
) -> None:
    try:
        _send(self, producer, chunk, progress)
    except OutcomeUnknown:
        return


@planted((SimProducer, "flush"))
def messages_are_not_waited_for(self: Any, timeout: float) -> None:
    """Nobody looks whether they arrived before the transaction is committed."""
    waiting, self._waiting = self._waiting, {}
    for at, (records, _) in waiting.items():
        try:
            self._append(at, records)
        except kafka.KafkaError:
            continue


@planted((KafkaPublisher, "publish"))
def being_fenced_is_taken_for_done(
    self: Any, seq: int, attempt: str, messages: Callable[..., Any], last: int
) -> int:
    try:
        return _publish(self, seq, attempt, messages, last)
    except Fenced:
        return 0


@planted((KafkaPublisher, "_producer"))
def each_try_has_a_transactional_id_of_its_own(self: Any) -> Any:
    producer = _producer(self)
    producer._name += f"-{len(here().world.trace)}"
    return producer


@planted((SimConsumer, "__init__"))
def progress_is_read_uncommitted(self: Any, world: Any, broker: Any, **settings: Any) -> None:
    _init_consumer(self, world, broker, **{**settings, "isolation_level": "read_uncommitted"})


@planted((KafkaPublisher, "_end"))
def progress_ends_at_the_last_stable_offset(self: Any, at: TopicPartition) -> int:
    """Which a transaction of any other pipeline holds back."""
    return here().broker.log((at.topic, at.partition)).stable_end


@planted((kafka, "newest_record"))
def progress_is_looked_for_in_the_newest_window_only(
    consumer: Any, at: TopicPartition, key: bytes, end: int, read_until: Any
) -> Any:
    """What lies behind the records of others is not there."""
    consumer.seek(at, max(0, end - progress_topic.FIRST_WINDOW))
    return max(
        (record for record in read_until(consumer, at, end) if record.key == key),
        key=lambda record: record.offset,
        default=None,
    )


@planted((kafka, "newest_record"))
def the_oldest_progress_of_a_window_is_taken(
    consumer: Any, at: TopicPartition, key: bytes, end: int, read_until: Any
) -> Any:
    consumer.seek(at, 0)
    return next((record for record in read_until(consumer, at, end) if record.key == key), None)
