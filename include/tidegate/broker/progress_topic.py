"""The topic of progress records: how it is kept small, and how a shard's newest record is found in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka import TopicPartition

_HOUR_MS = 3_600_000
_LATEST_MS = 24 * _HOUR_MS

SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # The segment that is written to is never compacted. The broker closes one when it appends to it: once it
    # is full, or its first record is an hour old.
    "segment.bytes": str(1024 * 1024),
    "segment.ms": str(_HOUR_MS),
    "max.compaction.lag.ms": str(_HOUR_MS),
    "min.cleanable.dirty.ratio": "0.1",
}
"""What the topic is created with. Its log then has a record per shard, and what came in the last hours."""

FIRST_WINDOW = 64
WIDENING = 8
"""Offsets that are looked at first, and by how many times more when the record is not among them."""

ReadUntil = Callable[[Any, TopicPartition, int], Iterator[Any]]


def newest_record(consumer: Any, at: TopicPartition, key: bytes, end: int, read_until: ReadUntil) -> Any:
    """The last committed record with this key before offset `end`; None when there is none.

    `consumer` reads what is committed, and has `at` assigned. It is read from the end backwards, in windows
    that widen: how much that is depends on what others have written since the record, and not on how old the
    topic is. The windows join without a gap, and each is read to its end, so the first one with a record has
    the newest. A window may begin inside a transaction: with each fetch the broker says which of the
    transactions in it were aborted, wherever they began.
    """
    start: int = consumer.beginning_offsets([at])[at]
    upper, window = end, FIRST_WINDOW
    while upper > start:
        lower = max(start, end - window)
        consumer.seek(at, lower)
        records = [record for record in read_until(consumer, at, upper) if record.key == key]
        if records:
            return records[-1]
        upper, window = lower, window * WIDENING
    return None


def shortcomings(settings: Mapping[str, str], topic: str) -> Iterator[str]:
    """A sentence for each setting of the topic with which it could lose records, or would grow long."""
    policy = settings["cleanup.policy"]
    if policy != SETTINGS["cleanup.policy"]:
        yield (
            f"{topic} has cleanup.policy {policy}: the broker may delete how far a sink is, which halts it. "
            f"{_alter(topic, 'cleanup.policy')}"
        )
    closes_ms = min(int(settings["segment.ms"]), int(settings["max.compaction.lag.ms"]))
    if closes_ms > _LATEST_MS:
        yield (
            f"{topic} is compacted only after {closes_ms // _HOUR_MS} hours: the progress of a sink that was "
            "silent meanwhile is looked for in all that others have written. "
            f"{_alter(topic, 'segment.ms', 'max.compaction.lag.ms')}"
        )


def _alter(topic: str, *names: str) -> str:
    wanted = ",".join(f"{name}={SETTINGS[name]}" for name in names)
    return f"Set it: kafka-configs.sh --alter --topic {topic} --add-config {wanted}"
