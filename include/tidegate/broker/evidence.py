"""What an output topic itself tells of how far a shard has sent, when its progress record is gone.

All that a shard ever sends is one sequence of messages, and what is in the topic is the beginning of it, for
transactions come one after the other and each is there as a whole or not at all. So the messages of the
newest batches are looked for among the topic's records, whoever else writes to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from kafka import TopicPartition

from tidegate.broker.log import KafkaLog
from tidegate.broker.messages import CHUNK_RECORDS, LEAST_CHUNK_BYTES, Message
from tidegate.broker.progress import committed_reader, read_until, settled_seconds


class Mark(NamedTuple):
    """What is kept of a message to know it again: a hash of key, value and headers.

    The timestamp is not in it: a topic may put the broker's own there.
    """

    identity: bytes
    key: bytes
    is_deletion: bool
    size: int = 0


@dataclass
class Traces:
    """What a topic holds of the messages that were looked for.

    `times`: how often each is there. `cut`: the partitions without any of them from which records were
    deleted. `others`: the keys of all other records that come after the last of them in their partition.
    """

    compacted: bool
    times: Counter[bytes] = field(default_factory=Counter)
    cut: list[int] = field(default_factory=list)
    others: set[bytes] = field(default_factory=set)


class Unclear(Exception):
    """The topic does not tell how far a shard has sent; the text says why."""


def mark_of(message: Message) -> Mark:
    """How a message is known again."""
    return _mark(message.key or b"", message.value, message.headers, message.size)


def look_for(log: KafkaLog, topic: str, marks: Iterable[Mark], compacted: bool) -> Traces:
    """Read a topic whole, up to the high watermark: an open transaction, of anybody, hides what is committed
    after it, until it is over.

    Raises KafkaError, also where one stays open.
    """
    traces = Traces(compacted)
    wanted = {mark.identity for mark in marks}
    with log:
        ends = log.view(topic).ends
    with committed_reader(log.config) as consumer:
        for partition, end in sorted(ends.items()):
            at = TopicPartition(topic, partition)
            consumer.assign([at])
            start = consumer.beginning_offsets([at])[at]
            consumer.seek(at, start)
            records = read_until(consumer, at, end, settled_seconds(log.config))
            seen = _look_among(records, wanted, traces)
            if start > 0 and not seen:
                traces.cut.append(partition)
    return traces


def _look_among(records: Iterable[Any], wanted: set[bytes], traces: Traces) -> bool:
    """Add what the records of a partition tell. Return whether one of them is wanted."""
    seen = False
    others: set[bytes] = set()
    for record in records:
        mark = _mark(record.key or b"", record.value, record.headers)
        if mark.identity in wanted:
            traces.times[mark.identity] += 1
            seen, others = True, set()
        elif traces.compacted:
            others.add(mark.key)
    traces.others |= others
    return seen


def sent_of(marks: Sequence[Mark], traces: Traces) -> int:
    """How many of the messages are in the topic, counted from the first on. Raises Unclear."""
    left = Counter(traces.times)
    sent = 0
    for mark in marks:
        if not left[mark.identity]:
            break
        left[mark.identity] -= 1
        sent += 1
    if left.total():
        raise Unclear(
            f"beyond the first {sent} of {len(marks)} messages of its newest batches it holds {left.total()} "
            "that are of later ones, or are there twice"
        )
    return sent


def check_unsent(marks: Sequence[Mark], traces: Traces) -> None:
    """Find out whether messages of one batch that are not in the topic never were. Raises Unclear.

    Compaction leaves the newest record of a key, so one such message that is missing shows that its whole
    transaction is.
    """
    if traces.cut:
        raise Unclear(f"records were deleted from its partitions {', '.join(map(str, traces.cut))}")
    if traces.compacted and not any(
        not mark.is_deletion and mark.key not in traces.others for mark in _newest(_next_transaction(marks))
    ):
        raise Unclear("it is compacted, and may have lost them because newer records have their keys")


def _next_transaction(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Return those that are in the next transaction for sure, however small a slow broker has made it."""
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
    for part in (key, value, *named):
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return Mark(digest.digest(), key, value is None, size)
