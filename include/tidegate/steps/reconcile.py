"""After a sink or its progress record was lost: what the sink itself holds stays, the rest is sent again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from tidegate.broker.progress import Progress
from tidegate.errors import SettingsInvalid
from tidegate.ledger import LeasedLedger, Stream
from tidegate.spec import KafkaSink, SqlSink
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.sinks import (
    check_topic,
    reconcilable,
    send,
    sent_to,
    sql_database,
    sql_publisher,
    topic_publisher,
)
from tidegate.steps.topic_progress import find_progress


def reconcile(app: App, held: LeasedLedger, stated: Mapping[str, int] | None = None) -> Iterator[str]:
    """Set each sink's progress to what the sink holds, and send again what comes after it.

    `stated` is sink -> the newest batch that it has as a whole, by the user's word: for topics that do not
    tell. Yields a sentence for each sink. Raises ProgressLost where a topic does not tell, SettingsInvalid
    for a sink in `stated` that there is not, Halted when a needed outbox is gone, and what `send` raises.
    """
    head = held.head(held.stream)
    plan = held.plan(held.stream, head.seq)
    planned = planned_pipeline(plan).sinks if plan else ()
    sinks = [sink for sink in planned if isinstance(sink, (KafkaSink, SqlSink))]
    topics = [sink.name for sink in sinks if isinstance(sink, KafkaSink)]
    unknown = sorted(set(stated or {}) - set(topics))
    if unknown:
        raise SettingsInvalid(
            f"{held.stream} has no Kafka sink {', '.join(unknown)}",
            f"It has: {', '.join(topics) or 'none'}.",
        )
    if not sinks:
        yield f"{held.stream} has published nothing to a Kafka or SQL sink."
    for sink in sinks:
        if isinstance(sink, KafkaSink):
            yield _reconcile_topic(app, held, sink, head.seq, (stated or {}).get(sink.name))
        elif isinstance(sink, SqlSink):
            yield _reconcile_table(app, held, sink, head.seq)


def check_progress(app: App, stream: Stream) -> None:
    """Find out whether each sink still knows what was published to it. Sends nothing.

    Raises TopicMissing, TopicRecreated, ProgressLost, and what keeps it from asking.
    """
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    for sink in planned_pipeline(plan).sinks if plan else ():
        if isinstance(sink, KafkaSink):
            _check_topic_progress(app, stream, sink)
        elif isinstance(sink, SqlSink):
            last = app.ledger.last_published(stream, sink.name)
            published = sent_to(app, app.ledger, stream, sink.name, last)
            if published is not None:
                with sql_database(app, sink) as database:
                    sql_publisher(database, sink, published[1]).check(last, app.ledger.head(stream).seq)


def _check_topic_progress(app: App, stream: Stream, sink: KafkaSink) -> None:
    if app.ledger.sink_identity(stream, sink.name) is None:
        return
    check_topic(app, app.ledger, stream, sink)
    publisher = topic_publisher(app, stream, sink)
    with reconcilable(stream):
        progress = publisher.check(publisher.progress(), app.ledger.last_published(stream, sink.name))
        publisher.check_known(progress, app.ledger.head(stream).seq)


def _reconcile_table(app: App, held: LeasedLedger, sink: SqlSink, head: int) -> str:
    last = held.last_published(held.stream, sink.name)
    published = sent_to(app, held, held.stream, sink.name, last)
    if published is None:
        return f"{sink.name}: nothing was published yet."
    with sql_database(app, sink) as database:
        newest = sql_publisher(database, sink, published[1]).rebuild_progress()
    sent = _send_again(app, held, sink, range(newest + 1, head + 1))
    return f"{sink.name}: its table has batches up to {newest}; {sent}."


def _reconcile_topic(app: App, held: LeasedLedger, sink: KafkaSink, head: int, stated: int | None) -> str:
    """A record that is lost is replaced by what the topic has; then goes what it lacks."""
    if held.sink_identity(held.stream, sink.name) is None:
        return f"{sink.name}: nothing was published yet."
    check_topic(app, held, held.stream, sink)
    publisher = topic_publisher(app, held.stream, sink)
    last = held.last_published(held.stream, sink.name)
    if not _is_lost(publisher.progress(), last):
        return f"{sink.name}: its progress record is there, and was left as it is."
    progress = publisher.rewrite_progress(partial(_lost_progress, app, held, sink, last, stated, head))
    partly = "" if progress.done else f", of which {progress.sent} messages of the last"
    first = progress.seq + 1 if progress.done else progress.seq
    sent = _send_again(app, held, sink, range(first, head + 1))
    return f"{sink.name}: the topic has batches up to {progress.seq}{partly}; {sent}."


def _is_lost(record: Progress | None, last: int) -> bool:
    return record is None or record.lacks(last)


def _lost_progress(
    app: App,
    held: LeasedLedger,
    sink: KafkaSink,
    last: int,
    stated: int | None,
    head: int,
    record: Progress | None,
) -> Progress:
    """What belongs in the place of a lost record: what somebody else has put there meanwhile stays."""
    if record is not None and not _is_lost(record, last):
        return record
    if stated is None:
        return find_progress(app, held, held.stream, sink)
    _check_stated(sink, stated, record, head)
    return Progress(stated, 0, done=True)


def _check_stated(sink: KafkaSink, stated: int, record: Progress | None, head: int) -> None:
    least = record.seq if record is not None else 0
    if not least <= stated <= head:
        raise SettingsInvalid(
            f"--progress {sink.name}={stated} cannot be: the batches in question are {least} to {head}",
            "A batch that the progress record has is in the topic, and one after the head was never sent.",
        )


def _send_again(app: App, held: LeasedLedger, sink: KafkaSink | SqlSink, seqs: range) -> str:
    """Send those of the batches that had something for a sink; says which."""
    again, known = [], seqs.start - 1
    for seq in seqs:
        missing = sent_to(app, held, held.stream, sink.name, seq)
        if missing is not None:
            send(app, held, *missing, known)
            held.add_publication(seq, sink.name, missing[1].emitted)
            again.append(seq)
            known = seq
    return f"sent again: {', '.join(map(str, again))}" if again else "nothing was missing"
