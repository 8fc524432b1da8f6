"""Derive a topic's progress from its messages, when its progress record no longer exists.

What the topic shows is only a guess unless it is unambiguous; otherwise a user states the progress.

Find out from an output topic how much a shard has sent, if its progress record is missing.

A shard sends one sequence of messages, in transactions that follow each other and are atomic. So the topic
has a beginning of that sequence, perhaps between records of other producers. This module searches the topic
for the messages of the newest batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import confluent_kafka as ck

from tidegate.errors import ProgressLost
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import CHUNK_RECORDS, LEAST_CHUNK_BYTES, Message, messages_of
from tidegate.kafka.progress import Progress, settled_seconds
from tidegate.kafka.publisher import ShownProgress
from tidegate.kafka.records import Slice, read_records

if TYPE_CHECKING:
    from tidegate.sinks.kafka.sink import PublishedTopic
    from tidegate.sinks.outbox import Outbox


class Mark(NamedTuple):
    """The identity of a message: a hash of key, value and headers, with its key.

    The timestamp is not part of it, because a topic with LogAppendTime replaces it.
    """

    identity: bytes
    key: bytes
    is_deletion: bool
    size: int = 0


Marks: TypeAlias = "Sequence[Sequence[Mark]]"
"""The marks of the messages of each shard of a batch, in the order in which they are sent."""


@dataclass
class Traces:
    """The messages that a search found in a topic.

    Args:
        compacted: whether the topic is compacted.
        times: the number of occurrences of each identity.
        cut: the partitions without any of the messages from which records were deleted.
        later_keys: the keys of all other records after the last of the messages in their partition; it is
            only filled for a compacted topic.
    """

    compacted: bool
    times: Counter[bytes] = field(default_factory=Counter)
    cut: list[int] = field(default_factory=list)
    later_keys: set[bytes] = field(default_factory=set)


class Unclear(Exception):
    """The topic does not show how much a shard has sent; the text says why."""


def mark_of(message: Message) -> Mark:
    """Return the identity of a message."""
    return _mark(message.key or b"", message.value, message.headers, message.size)


def look_for(log: KafkaLog, topic: str, marks: Iterable[Mark], compacted: bool) -> Traces:
    """Read a topic completely, up to the high watermark, and return what it has of the messages.

    The last stable offset would not do: an open transaction of any producer hides what is committed after it.
    The reader waits until such transactions are over. Raises BrokerUnavailable, also if one stays open.
    """
    traces = Traces(compacted)
    identities = {mark.identity for mark in marks}
    with log:
        view = log.view(topic)
    for partition, end in sorted(view.ends.items()):
        start = view.starts[partition]
        records = read_records(log.config, Slice(topic, partition, start, end), settled_seconds(log.config))
        seen = _look_among(records, identities, traces)
        # Where none is left, the deleted records may have been the messages.
        if start > 0 and not seen:
            traces.cut.append(partition)
    return traces


def _look_among(records: Iterable[ck.Message], identities: set[bytes], traces: Traces) -> bool:
    """Add the messages among the records of a partition to `traces`. Return whether there was one."""
    seen = False
    later_keys: set[bytes] = set()
    for record in records:
        headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
        mark = _mark(record.key() or b"", record.value(), headers)
        if mark.identity in identities:
            traces.times[mark.identity] += 1
            seen, later_keys = True, set()
        elif traces.compacted:
            later_keys.add(mark.key)
    traces.later_keys |= later_keys
    return seen


def sent_of(batches: Sequence[Marks], traces: Traces) -> list[list[int]]:
    """Return how many messages of each shard the topic has, for each batch up to the first incomplete one.

    They are counted from the first message of a shard without a gap. Raises Unclear if the topic also has
    messages after a gap, or has one twice.

    Example: of the batches `[[a, b]]` and `[[c], [d, e]]`, the first in one shard, a topic with all but `e`
    has `[[2], [1, 1]]`.
    """
    left = Counter(traces.times)
    sent: list[list[int]] = []
    for shards in batches:
        sent.append([_first_of(marks, left) for marks in shards])
        if not is_complete(shards, sent[-1]):
            break
    if left.total():
        of_all = sum(len(marks) for shards in batches for marks in shards)
        raise Unclear(
            f"beyond the first {sum(map(sum, sent))} of {of_all} messages of its newest batches it holds "
            f"{left.total()} that are of later ones, or are there twice"
        )
    return sent


def is_complete(shards: Marks, sent: Sequence[int]) -> bool:
    """Return whether all messages of all shards are sent."""
    return all(number == len(marks) for marks, number in zip(shards, sent, strict=True))


def _first_of(marks: Sequence[Mark], left: Counter[bytes]) -> int:
    """Return the number of marks before the first that is missing, and take them out of `left`."""
    for number, mark in enumerate(marks):
        if not left[mark.identity]:
            return number
        left[mark.identity] -= 1
    return len(marks)


def check_unsent(marks: Sequence[Mark], traces: Traces) -> None:
    """Raise Unclear unless messages that are missing in the topic were certainly never sent.

    Compaction keeps the newest record of a key. So if the newest message of a key is missing, and no later
    record has its key, its whole transaction is missing.
    """
    if traces.cut:
        raise Unclear(f"records were deleted from its partitions {', '.join(map(str, traces.cut))}")
    if traces.compacted and not any(
        not mark.is_deletion and mark.key not in traces.later_keys
        for mark in _newest(_next_transaction(marks))
    ):
        raise Unclear("it is compacted, and may have lost them because newer records have their keys")


def _next_transaction(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Return the messages that are certainly in the next transaction, even if a slow broker has made it
    small.
    """
    sizes = accumulate(mark.size for mark in marks)
    fitting = sum(1 for size in takewhile(lambda size: size <= LEAST_CHUNK_BYTES, sizes))
    return marks[: min(max(fitting, 1), CHUNK_RECORDS)]


def _newest(marks: Sequence[Mark]) -> Iterator[Mark]:
    yield from {mark.key: mark for mark in marks}.values()


def _mark(
    key: bytes, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], size: int = 0
) -> Mark:
    digest = blake2b(digest_size=16)
    named = (part for name, content in headers for part in (name.encode(), content))
    # Each length goes before its part, so that no two messages have the same bytes in a row.
    for part in (key, value, *named):
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return Mark(digest.digest(), key, value is None, size)


def find_progress(sink: PublishedTopic[Any], record: Progress | None = None) -> ShownProgress:
    """Return the progress that the topic shows. Raises ProgressLost if it does not tell.

    Batches are looked for from the newest on, until one is there as a whole: then all before it are, too.

    Args:
        record: The sink's own progress record, if only that of a shard is lost.
    """
    try:
        return _shown_by_topic(sink, record)
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


def _shown_by_topic(sink: PublishedTopic[Any], record: Progress | None) -> ShownProgress:
    ledger, stream, topic = sink.context.ledger, sink.context.stream, sink.declared.topic
    log = sink.context.log(sink.declared.connection)
    # Messages of another stream could be taken for this one's, and batches would be left out.
    if sink.has_rivals:
        _check_rivals(sink)
    last = ledger.last_published(stream, sink.name)
    with log:
        compacted = log.is_compacted(topic)
    batches: dict[int, Marks] = {}
    sent: list[list[int]] = []
    for seq in range(ledger.head(stream).seq, 0, -1):
        shards = _marks(sink, seq, record)
        if shards is None:
            continue
        # Oldest first: messages are compared in the order in which they were sent.
        batches = {seq: shards, **batches}
        if seq > last > 0:
            continue  # it may not be in the topic at all; only a published batch shows what is missing
        in_order = list(batches.values())
        traces = look_for(
            log, topic, [mark for part in in_order for marks in part for mark in marks], compacted
        )
        sent = sent_of(in_order, traces)
        for shard, number in zip(in_order[len(sent) - 1], sent[-1], strict=True):
            if number < len(shard):
                check_unsent(shard[number:], traces)
        # The oldest batch so far is there as a whole, so all before it are, too: batches go out in order.
        if is_complete(in_order[0], sent[0]):
            break
    return _progress(sink, batches, sent)


def _marks(sink: PublishedTopic[Any], seq: int, record: Progress | None) -> Marks | None:
    """Return a mark of each message that the sink has of a batch, by shard; None if it has none."""
    published = sink.published(seq)
    if published is None:
        return None
    planned, outbox = cast("tuple[PublishedTopic[Any], Outbox]", published)
    # A batch that has begun goes on as it began.
    number = record.shards if record is not None and record.seq == seq else outbox.shards
    return [
        [mark_of(message) for batch in planned.messages(part)(0) for message in messages_of(batch)]
        for part in outbox.cut(max(number, 1))
    ]


def _progress(
    sink: PublishedTopic[Any], batches: Mapping[int, Marks], sent: Sequence[Sequence[int]]
) -> ShownProgress:
    """Return the progress of a sink that has sent so many messages of each shard of the first batches."""
    shown = ShownProgress(Progress(0, 0, done=True))
    for (seq, shards), numbers in zip(batches.items(), sent, strict=False):
        if not any(numbers):
            break
        # The record names the attempt (decision 12), so that another ledger does not go on from it.
        attempt = sink.context.ledger.attempt(sink.context.stream, seq)
        whole = Progress(seq, sum(numbers), True, attempt.name if attempt else "")
        if is_complete(shards, numbers):
            shown = ShownProgress(whole)
        elif len(shards) == 1:
            shown = ShownProgress(replace(whole, done=False))
        else:
            counted = zip(shards, numbers, strict=True)
            parts = [replace(whole, sent=number, done=number == len(marks)) for marks, number in counted]
            shown = ShownProgress(replace(whole, done=False, shards=len(shards)), tuple(parts))
    return shown


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
