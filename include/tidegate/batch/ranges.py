"""Interval arithmetic of a plan: which offsets a batch reads. Plain functions on plain values."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from tidegate.batch.identity import check_planned_topic, check_same_topic
from tidegate.broker.log import TopicView
from tidegate.errors import LogTruncated, OffsetsLost
from tidegate.ledger import Head, OffsetRange, Plan

Ends = Mapping[tuple[str, int], int]


def plan_ranges(
    head: Head, views: Sequence[TopicView], first_starts: Ends, upper: Ends | None, max_records: int | None
) -> tuple[OffsetRange, ...]:
    """One range per topic-partition, empty ones included, so that the head knows every partition.

    Starts come from the head; see `first_start` for partitions that the head does not know yet.
    The interval reaches up to `upper` (absent: the partition has no record past it). Ends are at most that,
    the last stable offset, and what `max_records` leaves; a range that ends before the interval does is cut.
    Raises TopicRecreated, OffsetsLost, LogTruncated.
    """
    ranges = []
    for view in views:
        check_same_topic(head, view.topic, view.topic_id)
        for partition in sorted(view.starts):
            at = (view.topic, partition)
            start = head.offsets.get(at, first_start(head, view, partition, first_starts))
            check_kept(head, view, partition, start)
            interval_end = min((upper or {}).get(at, view.ends[partition]), view.ends[partition])
            interval = OffsetRange(view.topic, partition, start, max(start, interval_end))
            ranges.append(interval.cut(view.stable_ends[partition]))
    return limit_span(ranges, max_records)


def first_start(head: Head, view: TopicView, partition: int, first_starts: Ends) -> int:
    """Return where the first batch that reads a partition begins.

    A partition that was added to a topic begins at 0, although retention may have deleted records since: a
    batch that began after them would lose them without a word.
    """
    if head.has_read(view.topic):
        return 0
    return first_starts.get((view.topic, partition), view.starts[partition])


def standing_still(head: Head, cut: Container[tuple[str, int]]) -> tuple[OffsetRange, ...]:
    """Ranges in which nothing is read: each partition stays where the head has it.

    `cut`: the partitions in which the head's batch left records of its interval. They are still left.
    """
    return tuple(
        OffsetRange(*at, offset, offset, head.epochs.get(at), at in cut)
        for at, offset in sorted(head.offsets.items())
    )


def check_kept(head: Head, view: TopicView, partition: int, start: int) -> None:
    """Raise OffsetsLost or LogTruncated unless the log has all records from `start` on."""
    first, end = view.starts[partition], view.ends[partition]
    if start < first and head.has_read(view.topic):
        lost = f"{view.topic}[{partition}] offsets {start} to {first - 1}"
        raise OffsetsLost(
            f"Retention deleted {lost} before they were read",
            f"Restore them, or go on without: {head.stream.recover_command('accept-gap')}",
        )
    if start > end:
        raise LogTruncated(
            f"{view.topic}[{partition}] ends at offset {end}, but it was read up to {start}",
            f"Restore the log, or raise `generation` of {head.stream.pipeline} to start over.",
        )


def check_planned(plan: Plan, views: Sequence[TopicView]) -> None:
    """Raise an error unless the topics of the plan still have all of its records. Raises what `plan_ranges`
    raises.
    """
    starts = {(range_.topic, range_.partition): range_.start for range_ in plan.ranges if range_.span}
    planned = Head(plan.stream, plan.seq - 1, starts, plan.topic_ids)
    by_topic = {view.topic: view for view in views}
    for range_ in plan.ranges:
        if not range_.span:
            continue
        view = by_topic[range_.topic]
        check_planned_topic(plan, view.topic, view.topic_id)
        check_kept(planned, view, range_.partition, range_.start)
        end = view.ends.get(range_.partition, 0)
        if range_.end > end:
            raise LogTruncated(
                f"{range_.topic}[{range_.partition}] ends at offset {end}, but batch {plan.seq} is planned "
                f"up to {range_.end}",
                f"Restore the log, or forget the plan: {plan.stream.recover_command('drop-plan')}",
            )


def limit_ends(ranges: Sequence[OffsetRange], ends: Ends) -> tuple[OffsetRange, ...]:
    """Cut the ranges at these offsets; where none is given, nothing is read."""
    return tuple(range_.cut(ends.get((range_.topic, range_.partition), range_.start)) for range_ in ranges)


def limit_span(ranges: Sequence[OffsetRange], most: int | None) -> tuple[OffsetRange, ...]:
    """Cut the ranges so that all together span at most `most` offsets (None: any).

    Each partition gets an equal share, and what a small one leaves of its share goes to the others: a busy
    partition cannot keep the records of small ones waiting.
    """
    spans = [range_.span for range_ in ranges]
    if most is None or sum(spans) <= most:
        return tuple(ranges)
    shares = _equal_shares(spans, most)
    return tuple(range_.cut(range_.start + share) for range_, share in zip(ranges, shares, strict=True))


def _equal_shares(spans: Sequence[int], most: int) -> list[int]:
    """Divide `most`, which is less than the sum of the spans; no share is larger than its span."""
    shares = [0] * len(spans)
    left = most
    for served, index in enumerate(sorted(range(len(spans)), key=spans.__getitem__)):
        shares[index] = min(spans[index], left // (len(spans) - served))
        left -= shares[index]
    return shares
