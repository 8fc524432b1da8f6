"""Planted bugs in the publication to Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka.errors import KafkaError

from kafka import TopicPartition
from tests.simulator.app import here
from tests.simulator.clients import SimConsumer, SimProducer
from tests.simulator.planted import planted
from tidegate.batch import publish
from tidegate.errors import Fenced, OutcomeUnknown
from tidegate.kafka import progress, shard, topic_facts
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.progress import Progress, ProgressRecord
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate.kafka.shard import Shard

_publish = KafkaPublisher.publish
_publish_to = publish.publish_to
_send = Shard._send
_init_consumer = SimConsumer.__init__
_init_producer = SimProducer.init_transactions


def _published(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, already: int, skip: int
) -> int:
    """The rest of `_publish`, from the progress on."""
    own, sent = self._own, already
    if stored.progress is not None and not stored.progress.lacks(batch.seq):
        return 0
    unsent = Progress(batch.seq, 0, False, batch.attempt)
    messages = batch.messages(skip)
    for chunk, is_last in shard.chunks(messages, self._chunk_records, lambda: shard.LEAST_CHUNK_BYTES):
        sent += sum(rows.num_rows for rows in chunk)
        own._send(producer, chunk, replace(unsent, sent=sent, done=is_last), stored.place)
    return sent - already


def _sent(stored: ProgressRecord, seq: int) -> int:
    return stored.progress.sent if stored.progress is not None and stored.progress.seq == seq else 0


@planted((KafkaPublisher, "_publish"))
def progress_is_read_before_init_transactions(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, last: int
) -> int:
    producer.init()
    already = _sent(stored, batch.seq)
    return _published(self, producer, stored, batch, already, already)


@planted((KafkaPublisher, "_publish"))
def progress_forgets_how_much_was_sent(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, last: int
) -> int:
    """An interrupted batch begins again with its first chunk."""
    return _published(self, producer, stored, batch, 0, 0)


@planted((KafkaPublisher, "_publish"))
def a_retry_skips_nothing(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, last: int
) -> int:
    """It counts from where it was, but sends from the first message on."""
    return _published(self, producer, stored, batch, _sent(stored, batch.seq), 0)


@planted((KafkaPublisher, "_publish"))
def a_later_batch_in_the_progress_is_overlooked(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, last: int
) -> int:
    if stored.progress is not None and stored.progress.seq != batch.seq:
        stored = replace(stored, progress=None)
    already = _sent(stored, batch.seq)
    return _published(self, producer, stored, batch, already, already)


@planted((KafkaPublisher, "_publish"))
def only_the_ledger_says_what_was_published(
    self: Any, producer: Any, stored: ProgressRecord, batch: DecidedBatch, last: int
) -> int:
    if last >= batch.seq:
        return 0
    return _published(self, producer, replace(stored, progress=None), batch, 0, 0)


@planted((Shard, "_send"))
def progress_is_a_transaction_of_its_own(
    self: Any, producer: Any, chunk: Any, new: Progress, place: TopicPartition
) -> None:
    if chunk:
        _send_records(self, producer, chunk)
    _send(self, producer, [], new, place)


@planted((Shard, "_send"))
def progress_is_committed_before_the_records(
    self: Any, producer: Any, chunk: Any, new: Progress, place: TopicPartition
) -> None:
    _send(self, producer, [], new, place)
    if chunk:
        _send_records(self, producer, chunk)


def _send_records(self: Any, producer: Any, chunk: Any) -> None:
    producer.begin()
    for batch in chunk:
        producer.send(self._topic, batch)
    producer.flush()
    producer.commit()


@planted((Shard, "_send"))
def every_chunk_says_that_it_is_the_last(
    self: Any, producer: Any, chunk: Any, new: Progress, place: TopicPartition
) -> None:
    _send(self, producer, chunk, replace(new, done=True), place)


@planted((Shard, "_send"))
def a_commit_without_answer_is_sent_again(
    self: Any, producer: Any, chunk: Any, new: Progress, place: TopicPartition
) -> None:
    """Send in another transaction, without a look at the outcome of the first."""
    try:
        _send(self, producer, chunk, new, place)
    except OutcomeUnknown:
        producer.init()
        _send(self, producer, chunk, new, place)


@planted((Shard, "_send"))
def a_commit_without_answer_is_taken_for_done(
    self: Any, producer: Any, chunk: Any, new: Progress, place: TopicPartition
) -> None:
    try:
        _send(self, producer, chunk, new, place)
    except OutcomeUnknown:
        return


@planted((SimProducer, "flush"))
def messages_are_not_waited_for(self: Any, timeout: float) -> int:
    """Nobody looks whether they arrived before the transaction is committed."""
    waiting, self._waiting = self._waiting, {}
    for at, records in waiting.items():
        try:
            self._append(at, records)
        except KafkaError:
            continue
    return 0


@planted((KafkaPublisher, "publish"))
def being_fenced_is_taken_for_done(self: Any, batch: DecidedBatch, last: int, begun: Any = None) -> int:
    try:
        return _publish(self, batch, last, begun)
    except Fenced:
        return 0


@planted((SimProducer, "init_transactions"))
def each_try_has_a_transactional_id_of_its_own(self: Any, timeout: float) -> None:
    self._name += f"-{len(here().world.trace)}"
    _init_producer(self, timeout)


@planted((SimConsumer, "__init__"))
def progress_is_read_uncommitted(self: Any, world: Any, broker: Any, options: Any) -> None:
    _init_consumer(self, world, broker, {**options, "isolation.level": "read_uncommitted"})


@planted((KafkaLog, "bounds"))
def progress_ends_at_the_last_stable_offset(self: Any, topic: str, partition: int) -> tuple[int, int]:
    """Return the last stable offset as the end, which a transaction of any other pipeline holds back."""
    log = here().broker.log((topic, partition))
    return log.start, log.stable_end


@planted((progress, "newest_record"))
def progress_is_looked_for_in_the_newest_window_only(read: Any, start: int, end: int, key: bytes) -> Any:
    """Look in the newest window only, and miss a record behind the records of others."""
    records = read(max(start, end - topic_facts.FIRST_WINDOW), end)
    return max(
        (record for record in records if record.key() == key),
        key=lambda record: record.offset(),
        default=None,
    )


@planted((progress, "newest_record"))
def the_oldest_progress_of_a_window_is_taken(read: Any, start: int, end: int, key: bytes) -> Any:
    return next((record for record in read(start, end) if record.key() == key), None)


@planted((publish, "publish_to"))
def dead_letters_are_noted_before_they_are_sent(lease: Any, sink: Any, plan: Any, attempt: Any) -> int:
    """Whoever is killed in between has a topic that lacks them."""
    if not sink.gets_emissions:
        lease.add_publication(plan.seq, sink.name, sink.outbox(plan, attempt).emitted)
    return _publish_to(lease, sink, plan, attempt)
