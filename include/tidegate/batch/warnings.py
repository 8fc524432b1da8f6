"""Find what a person should know before a batch is planned: transactions that stay open, and records that are
too old for a sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.app.root import App, stream_of
from tidegate.batch.topics import source_topics
from tidegate.clock import current_ms
from tidegate.errors import TidegateError
from tidegate.kafka.log import KafkaLog, TopicView
from tidegate.kafka.topic_facts import OpenTransaction
from tidegate.ledger import OffsetRange, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.numerals import counted
from tidegate.sinks.port import EarliestTimestamp, OpenSink

STALLED_MS = 300_000
"""Open for longer than this is worth a warning. Producers give up after 1 to 15 minutes, as they are set."""


def stalled_transactions(app: App, pipeline: Pipeline) -> list[str]:
    """Return a sentence for each partition of the source that ends at a transaction that has been open for
    long.

    A transaction that no coordinator knows counts as such. Raises TopicMissing, BrokerUnavailable.
    """
    with app.log(pipeline.sources.connection) as log:
        topics = source_topics(log, pipeline.sources, app.ledger.head(stream_of(pipeline)))
        return stalled_in(log, [log.view(topic) for topic in topics])


def stalled_in(log: KafkaLog, views: Sequence[TopicView]) -> list[str]:
    """Return the messages for topics whose views are given. It asks Kafka only if a transaction is open."""
    # The machine's clock: a transaction stays open in real time, whatever interval the batch is of.
    now_ms = current_ms()
    return [
        _describe_transaction(txn, now_ms)
        for view in views
        for txn in log.open_transactions(view)
        if txn.started_ms is None or now_ms - txn.started_ms > STALLED_MS
    ]


def _describe_transaction(txn: OpenTransaction, now_ms: int) -> str:
    where = f"{{}} --topic {txn.topic} --partition {txn.partition}"
    what = f"{txn.topic}[{txn.partition}] can be read only up to offset {txn.offset}"
    if txn.producer_id is None:
        look = where.format("describe-producers")
        return f"{what}, where a transaction is open. To find its producer: kafka-transactions.sh {look}"
    abort = f"kafka-transactions.sh {where.format('abort')} --start-offset {txn.offset}"
    if txn.started_ms is None:
        return f"{what}: producer {txn.producer_id} left a transaction that nobody can end. End it: {abort}"
    minutes = (now_ms - txn.started_ms) / 60_000
    return (
        f"{what}: the producer {txn.transactional_id} (id {txn.producer_id}) has had a transaction open "
        f"for {minutes:.0f} minutes. Let it commit or abort; if it no longer runs: {abort}"
    )


def old_record_warnings(
    app: App, stream: Stream, pipeline: Pipeline, ranges: Sequence[OffsetRange], clock_ms: int | None
) -> list[str]:
    """Return a sentence for each sink to which emissions of these ranges may be too old.

    A broker that does not answer gives a sentence, too: it must not keep a batch from being planned.

    Args:
        app: the settings and clusters.
        stream: the stream.
        pipeline: its pipeline.
        ranges: the offsets that the batch reads.
        clock_ms: the batch's clock, epoch ms; None: not known yet.
    """
    read = [planned for planned in ranges if planned.span]
    if not read:
        return []
    try:
        return [
            warning
            for sink in app.sinks(stream, pipeline)
            for warning in _sink_warnings(app, pipeline, sink, read, clock_ms)
        ]
    except TidegateError as error:
        return [f"Whether records are too old for a sink cannot be told: {type(error).__name__}: {error}"]


def _sink_warnings(
    app: App, pipeline: Pipeline, sink: OpenSink[Any], read: Sequence[OffsetRange], clock_ms: int | None
) -> Iterator[str]:
    earliest = sink.earliest_timestamp()
    if earliest is None:
        return
    if earliest.is_of_clock:
        if clock_ms is not None and clock_ms < earliest.timestamp_ms:
            yield f"The batch's clock is older than what {sink.name} takes: {earliest.rule}"
        return
    old = _older_records(app, pipeline, read, earliest)
    if old:
        offsets = sum(older.span for older in old)
        first = old[0]
        yield (
            f"{counted(offsets, 'offset')} in {counted(len(old), 'partition')}, such as "
            f"{first.topic}[{first.partition}] {first.start} to {first.end - 1}, are older "
            f"than what {sink.name} takes: {earliest.rule}"
        )


def _older_records(
    app: App, pipeline: Pipeline, read: Sequence[OffsetRange], earliest: EarliestTimestamp
) -> list[OffsetRange]:
    """Return the part of each range before its first record that is young enough.

    Records come in any order, so there may be more of them: this is what one question per topic tells.
    """
    old = []
    with app.log(pipeline.sources.connection) as log:
        for topic in sorted({planned.topic for planned in read}):
            own = [planned for planned in read if planned.topic == topic]
            young_offsets = log.offsets_at(
                topic, [planned.partition for planned in own], earliest.timestamp_ms
            )
            for planned in own:
                first_young = (
                    young_offsets[planned.partition][0] if planned.partition in young_offsets else planned.end
                )
                old.append(planned.cut(first_young))
    return [older for older in old if older.span]
