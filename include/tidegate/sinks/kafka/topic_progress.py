"""Derive a topic's progress from its messages, when its progress record no longer exists.

What the topic shows is only a guess unless it is unambiguous; otherwise a user states the progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from tidegate.errors import ProgressLost
from tidegate.kafka.evidence import Mark, Unclear, check_unsent, look_for, mark_of, sent_of
from tidegate.kafka.messages import messages_of
from tidegate.kafka.progress import Progress

if TYPE_CHECKING:
    from tidegate.sinks.kafka.topic import PublishedTopic


def find_progress(sink: PublishedTopic[Any]) -> Progress:
    """The progress that the topic shows. Raises ProgressLost when it does not tell.

    Batches are looked for from the newest on, until one is there as a whole: then all before it are, too.
    """
    try:
        return _shown_by_topic(sink)
    except Unclear as reason:
        stream, topic = sink.context.stream, sink.declared.topic
        last = sink.context.ledger.last_published(stream, sink.name)
        raise ProgressLost(
            f"The topic {topic} does not tell what was sent to it: {reason}. By the ledger it has "
            f"all up to batch {last}",
            f"`tidegate emissions {stream.pipeline} --batch {last}` shows what that batch sent. Say which is "
            "the newest batch that the topic has as a whole; later ones are sent again: "
            f"{stream.recover_command('restore-progress')} --progress {sink.name}={last}",
        ) from None


def _shown_by_topic(sink: PublishedTopic[Any]) -> Progress:
    ledger, stream, topic = sink.context.ledger, sink.context.stream, sink.declared.topic
    log = sink.context.log(sink.declared.connection)
    # Messages of another stream could be taken for this one's, and batches would be left out.
    if sink.has_rivals:
        _check_rivals(sink)
    last = ledger.last_published(stream, sink.name)
    with log:
        compacted = log.is_compacted(topic)
    batches: list[tuple[int, list[Mark]]] = []
    sent = 0
    for seq in range(ledger.head(stream).seq, 0, -1):
        batch_marks = _marks(sink, seq)
        if batch_marks is None:
            continue
        # Oldest first: messages are compared in the order in which they were sent.
        batches.insert(0, (seq, batch_marks))
        if seq > last > 0:
            continue  # it may not be in the topic at all; only a published batch shows what is missing
        marks = [mark for _, of_batch in batches for mark in of_batch]
        traces = look_for(log, topic, marks, compacted)
        sent = sent_of(marks, traces)
        if sent < len(marks):
            check_unsent(_next_missing(batches, sent), traces)
        # The oldest batch so far is there as a whole, so all before it are, too: batches go out in order.
        if sent >= len(batches[0][1]):
            break
    progress = _progress(batches, sent)
    # The record names the attempt (decision 12), so that another ledger does not go on from it.
    attempt = ledger.attempt(stream, progress.seq)
    return replace(progress, attempt=attempt.name) if attempt else progress


def _marks(sink: PublishedTopic[Any], seq: int) -> list[Mark] | None:
    """Return a mark of each message that the sink has of a batch; None if it has none."""
    published = sink.published(seq)
    if published is None:
        return None
    planned, outbox = published
    batches = cast("PublishedTopic[Any]", planned).messages(outbox)
    return [mark_of(message) for batch in batches for message in messages_of(batch)]


def _next_missing(batches: list[tuple[int, list[Mark]]], sent: int) -> list[Mark]:
    """Return the messages that are missing in the first incomplete batch, which would have been sent next."""
    for _, marks in batches:
        if sent < len(marks):
            return marks[sent:]
        sent -= len(marks)
    return []


def _progress(batches: list[tuple[int, list[Mark]]], sent: int) -> Progress:
    """Return the progress record of the first `sent` messages of these batches."""
    progress = Progress(0, 0, done=True)
    for seq, marks in batches:
        if sent <= 0:
            break
        progress = Progress(seq, min(sent, len(marks)), done=sent >= len(marks))
        sent -= len(marks)
    return progress


def _check_rivals(sink: PublishedTopic[Any]) -> None:
    """Check that no other stream has sent the same messages from the same source to the same topic.

    A dropped stream counts, and so does one that has another sink now: its messages still exist. Raises
    Unclear.
    """
    ledger, stream = sink.context.ledger, sink.context.stream
    source, topic = ledger.head(stream).topic_ids, ledger.sink_identity(stream, sink.name)
    for rival, rival_sink in ledger.publishers(topic or ""):
        is_same_kind = _kind(rival_sink) == _kind(sink.name)
        if rival != stream and is_same_kind and _share_a_topic(source, ledger.head(rival).topic_ids):
            verb = "has sent" if ledger.is_dropped(rival) else "sends"
            raise Unclear(f"{rival} {verb} there too, and its messages look the same")


def _kind(sink: str) -> str:
    """Return the kind of a sink, with which its name begins."""
    return sink.partition(":")[0]


def _share_a_topic(source: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return any(other.get(topic) == topic_id for topic, topic_id in source.items())
