"""Find the place of a consumer in the copy of a partition that another cluster has.

The search compares the records around the place by key, value, headers and timestamp, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from tidegate.kafka.log import KafkaLog, TopicView
from tidegate.kafka.records import Slice, offset_of, read_records

AROUND = 10
"""The number of records before the place that are compared, and the number after it."""
MOST_SCANNED = 1_000_000
"""The largest number of records of a copy that is searched. For a longer copy a person states the place."""


class SeenRecord(NamedTuple):
    """A record's offset, and its identity: timestamp, key, value and headers."""

    offset: int
    identity: tuple[Any, ...]

    @property
    def timestamp_ms(self) -> int:
        """The timestamp of the record, in epoch ms."""
        return int(self.identity[0])


@dataclass(frozen=True)
class Place:
    """The committed records next to an offset of a partition: the last ones before it, and the first ones
    from it on.

    `unread` is the number of offsets from the place to the end.
    """

    before: Sequence[SeenRecord] = field(default_factory=tuple)
    after: Sequence[SeenRecord] = field(default_factory=tuple)
    unread: int = 0


def place_at(log: KafkaLog, view: TopicView, partition: int, offset: int) -> Place:
    """Return the records next to an offset. Raises BrokerUnavailable."""
    start, end = view.starts[partition], view.stable_ends[partition]
    before: list[SeenRecord] = []
    reach = AROUND
    # Markers and compaction leave gaps: look ten times as far back until enough records are there.
    while len(before) < AROUND and reach < 1_000 * AROUND and offset - reach // 10 > start:
        before = _read(log, view.topic, partition, max(start, offset - reach), min(offset, end))
        reach *= 10
    after = _read(log, view.topic, partition, max(start, offset), min(end, offset + 100 * AROUND))
    return Place(before[-AROUND:], after[:AROUND], max(0, end - offset))


def offsets_of_place(log: KafkaLog, view: TopicView, partition: int, place: Place) -> list[int] | None:
    """Return each offset of the copy that has the place's records around it, as far as the copy has them.

    One is the place; with none or several, it is not known. None: the copy has too many records to look
    through. Raises BrokerUnavailable.
    """
    around = [*place.before, *place.after]
    start, end = view.starts[partition], view.stable_ends[partition]
    if not around:
        return [end] if start == end else []
    # A copy keeps the timestamps, so it has none of the records before the oldest instant.
    oldest_ms = min(record.timestamp_ms for record in around)
    first = log.offsets_at(view.topic, [partition], oldest_ms).get(partition, (end, 0))[0]
    if end - first > MOST_SCANNED:
        return None
    copied = _read(log, view.topic, partition, first, end)
    if place.before:
        return [copied[at].offset + 1 for at in range(len(copied)) if _fits(copied, at + 1, place)]
    return [copied[at].offset for at in range(len(copied)) if _fits(copied, at, place)]


def shared_around(first: Place, second: Place) -> tuple[int, int]:
    """Return how many records before and after two places are the same, counted from the places."""
    return _same(first.before[::-1], second.before[::-1]), _same(first.after, second.after)


def is_same_place(first: Place, second: Place) -> bool:
    """Return whether the records around both are the same, as far as both have them."""
    before, after = shared_around(first, second)
    all_before = before == min(len(first.before), len(second.before))
    return all_before and after == min(len(first.after), len(second.after)) and before + after > 0


def _fits(copied: Sequence[SeenRecord], at: int, place: Place) -> bool:
    """Return whether the place is before the copied record number `at`."""
    here = Place(copied[max(0, at - AROUND) : at], copied[at : at + AROUND])
    if place.before and not here.before:
        return False
    return is_same_place(place, here)


def _same(first: Sequence[SeenRecord], second: Sequence[SeenRecord]) -> int:
    pairs = zip(first, second, strict=False)
    return len(list(takewhile(lambda pair: pair[0].identity == pair[1].identity, pairs)))


def _read(log: KafkaLog, topic: str, partition: int, start: int, end: int) -> list[SeenRecord]:
    return [
        SeenRecord(
            offset_of(record),
            (record.timestamp()[1], record.key(), record.value(), tuple(record.headers() or ())),
        )
        for record in read_records(log.config, Slice(topic, partition, start, end))
    ]
