"""The topic of progress records: settings that keep it small, and the search for a shard's newest record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka import TopicPartition

_HOUR_MS = 3_600_000
_LATEST_MS = 24 * _HOUR_MS

SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # The broker never compacts the active segment. It closes a segment when it appends to it and the segment
    # is full, or its first record is an hour old.
    "segment.bytes": str(1024 * 1024),
    "segment.ms": str(_HOUR_MS),
    "max.compaction.lag.ms": str(_HOUR_MS),
    "min.cleanable.dirty.ratio": "0.1",
}
"""The settings of the topic. With them its log has one record per shard, and those of the last hours."""

FIRST_WINDOW = 64
WIDENING = 8
"""The number of offsets that are read first, and the factor for more if the record is not among them."""

ReadUntil = Callable[[Any, TopicPartition, int], Iterator[Any]]


def newest_record(consumer: Any, at: TopicPartition, key: bytes, end: int, read_until: ReadUntil) -> Any:
    """Return the last committed record with this key before offset `end`; None if there is none.

    `consumer` reads committed records, and has the partition `at` assigned. The search reads windows from the
    end backwards, each larger than the one before. So its cost depends on what other shards have written
    since the record, and not on the age of the topic. The windows have no gap between them, and each is read
    to its end, so the first one with a record has the newest. A window can begin inside of a transaction:
    with each fetch the broker lists the aborted transactions in it, no matter where they began.

    Args:
        consumer: a consumer of kafka-python.
        at: the partition.
        key: the shard, as bytes.
        end: the high watermark of the partition.
        read_until: yields the records up to an offset.
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
    """Yield a message for each setting with which the topic could lose records, or would grow long."""
    policy = settings["cleanup.policy"]
    if policy != SETTINGS["cleanup.policy"]:
        yield (
            f"{topic} has cleanup.policy {policy}: the broker may delete a sink's progress, which halts it. "
            f"{_alter(topic, 'cleanup.policy')}"
        )
    closes_ms = min(int(settings["segment.ms"]), int(settings["max.compaction.lag.ms"]))
    if closes_ms > _LATEST_MS:
        yield (
            f"{topic} is compacted only after {closes_ms // _HOUR_MS} hours: to find the progress of a sink "
            "that was silent meanwhile, tidegate reads everything that other sinks have written. "
            f"{_alter(topic, 'segment.ms', 'max.compaction.lag.ms')}"
        )


def _alter(topic: str, *names: str) -> str:
    settings = ",".join(f"{name}={SETTINGS[name]}" for name in names)
    return f"Set it: kafka-configs.sh --alter --topic {topic} --add-config {settings}"
