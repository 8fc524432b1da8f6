"""Fix the offsets that a batch reads, and check that the logs are still those that were planned and read.

Offsets alone do not tell a log that was truncated or created anew, since it grows past them. So a plan has
the topics' ids, and the leader epoch of the last record of each range.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate.batch.trigger import Trigger
from tidegate.errors import LogTruncated, OffsetsLost, TopicRecreated, TriggerInvalid
from tidegate.kafka.log import KafkaLog, TopicView
from tidegate.kafka.topic_facts import EpochEnd, Partition
from tidegate.ledger import Head, OffsetRange, Plan, Stream
from tidegate.model.sources import Sources

Ends = Mapping[Partition, int]
"""Partition -> the offset after the last one that counts."""
EpochEnds = Mapping[Partition, EpochEnd]


def plan_ranges(
    head: Head, views: Sequence[TopicView], first_starts: Ends, upper: Ends | None
) -> tuple[OffsetRange, ...]:
    """Return one range per topic-partition, also empty ones, so that the head knows every partition.

    A range starts at the head's offset; see `first_start` for partitions that the head does not know yet. The
    interval reaches up to `upper` (absent: the partition has no record past it). The range ends there, or at
    the last stable offset; one that ends before the interval does is cut.
    Raises TopicRecreated, OffsetsLost, LogTruncated.
    """
    ranges = []
    for view in views:
        check_same_topic(head, view.topic, view.topic_id)
        for partition in sorted(view.starts):
            at = (view.topic, partition)
            # From the head, never from a consumer group: its offsets would advance without the state.
            start = head.offsets.get(at, first_start(head, view, partition, first_starts))
            check_kept(head, view, partition, start)
            interval_end = min((upper or {}).get(at, view.ends[partition]), view.ends[partition])
            # Timestamps need not rise with offsets: an interval's end below the head reads nothing.
            interval = OffsetRange(view.topic, partition, start, max(start, interval_end))
            # From the last stable offset on, a transaction is open: its records may yet be aborted.
            ranges.append(interval.cut(view.stable_ends[partition]))
    return tuple(ranges)


def first_start(head: Head, view: TopicView, partition: int, first_starts: Ends) -> int:
    """Return where the first batch that reads a partition begins.

    A partition that was added to a topic begins at 0, although retention may have deleted records since: a
    batch that began after them would lose them without a word.
    """
    if head.has_read(view.topic):
        return 0
    return first_starts.get((view.topic, partition), view.starts[partition])


def standing_still(head: Head, cut: Container[tuple[str, int]]) -> tuple[OffsetRange, ...]:
    """Return ranges that read nothing: each partition stays where the head has it.

    Args:
        head: the last committed batch.
        cut: the partitions in which the head's batch left records of its interval. They are still left.
    """
    return tuple(
        OffsetRange(*at, offset, offset, head.epochs.get(at), at in cut)
        for at, offset in sorted(head.offsets.items())
    )


def check_kept(head: Head, view: TopicView, partition: int, start: int) -> None:
    """Check that the log has all records from `start` on.

    Raises OffsetsLost if retention deleted unread records, LogTruncated if the log ends before `start`.
    """
    # A topic that was never read has lost nothing: what retention left is its beginning.
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
    starts = {range_.place: range_.start for range_ in plan.ranges if range_.span}
    # The head as the plan saw it; an empty range is left out, since it needs no record.
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
    """Cut the ranges at these offsets; where none is given, nothing is read.

    Example: with the end 7 for its partition, a range from 5 to 9 becomes 5 to 7.
    """
    return tuple(range_.cut(ends.get(range_.place, range_.start)) for range_ in ranges)


def limit_records(
    ranges: Sequence[OffsetRange], sources: Sources, trigger: Trigger
) -> tuple[OffsetRange, ...]:
    """Cut the ranges to `max_records` of each source, and all together to that of the trigger."""
    limited: list[OffsetRange] = []
    for name, source in sources.items():
        own = [range_ for range_ in ranges if sources.name_of(range_.topic) == name]
        limited += limit_span(own, trigger.most_records(source.max_records))
    return limit_span(limited, trigger.max_records)


def limit_span(ranges: Sequence[OffsetRange], most: int | None) -> tuple[OffsetRange, ...]:
    """Cut the ranges so that all together span at most `most` offsets (None: any).

    Each partition gets an equal share, and what a small one leaves of its share goes to the others: a busy
    partition cannot keep the records of small ones waiting.

    Example: of the spans 2, 10 and 10, a limit of 12 reads 2, 5 and 5.
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
    # Smallest first, so that `left` already contains what the small ones did not use of their shares.
    for served, index in enumerate(sorted(range(len(spans)), key=spans.__getitem__)):
        shares[index] = min(spans[index], left // (len(spans) - served))
        left -= shares[index]
    return shares


def first_starts(log: KafkaLog, views: Sequence[TopicView], sources: Sources) -> dict[tuple[str, int], int]:
    """Return the offsets at which the very first batch starts, by the pipeline file; those of a partition are
    absent if it starts at the first record.
    """
    starts: dict[tuple[str, int], int] = {}
    for name, source in sources.items():
        own = [view for view in views if sources.name_of(view.topic) == name]
        if source.start != "earliest":
            starts |= {(view.topic, p): end for view in own for p, end in view.stable_ends.items()}
        if isinstance(source.start, int):
            starts |= offsets_at(log, own, source.start)
    return starts


def interval_ends(log: KafkaLog, views: Sequence[TopicView], trigger: Trigger) -> Ends | None:
    """Return the offset at which the trigger's interval ends in each partition; see `plan_ranges`."""
    if trigger.interval_ends is not None:  # of a partition that was added since, nothing is in it
        return dict.fromkeys(_all_partitions(views), 0) | dict(trigger.interval_ends)
    if trigger.interval_end_ms is None:
        return None
    return offsets_at(log, views, trigger.interval_end_ms, trigger.plausible_until_ms)


def offsets_at(
    log: KafkaLog, views: Sequence[TopicView], timestamp_ms: int, plausible_until_ms: int | None = None
) -> dict[tuple[str, int], int]:
    """Return the first offset of each partition from an instant on; none if it has no such record.

    Timestamps need not rise with offsets, so this is only a hint for an interval's end.

    Args:
        log: the cluster's logs.
        views: the topics.
        timestamp_ms: the instant, epoch ms.
        plausible_until_ms: a record from after it does not count: it would hold back all later records until
            its time has come.
    """
    return {
        (view.topic, partition): offset
        for view in views
        for partition, (offset, at_ms) in log.offsets_at(
            view.topic, sorted(view.starts), timestamp_ms
        ).items()
        if plausible_until_ms is None or at_ms <= plausible_until_ms
    }


def check_partitions(views: Sequence[TopicView], offsets: Ends) -> None:
    """Check that offsets are given only of partitions that exist. Raises TriggerInvalid."""
    partitions = _all_partitions(views)
    unknown = ", ".join(f"{topic}[{number}]" for topic, number in sorted(offsets.keys() - set(partitions)))
    if unknown:
        raise TriggerInvalid(
            f"The trigger gives offsets of {unknown}, which the pipeline does not read",
            f"It reads {', '.join(f'{topic}[{number}]' for topic, number in partitions)}.",
        )


def _all_partitions(views: Sequence[TopicView]) -> list[tuple[str, int]]:
    return [(view.topic, partition) for view in views for partition in sorted(view.starts)]


def check_same_topic(head: Head, topic: str, topic_id: str) -> None:
    """Check that a topic has the same id as in the head: the head's offsets mean nothing in another topic.

    Raises TopicRecreated.
    """
    previous_id = head.topic_ids.get(topic)
    if previous_id is not None and previous_id != topic_id:
        raise TopicRecreated(_recreated(topic, previous_id, topic_id), _new_generation(head.stream))


def check_planned_topic(plan: Plan, topic: str, topic_id: str) -> None:
    """Check that a topic has the same id as in the plan. Raises TopicRecreated.

    For the first batch the fix is to drop the plan, since there is no state yet.
    """
    planned_id = plan.topic_ids[topic]
    if planned_id != topic_id:
        forget = f"Forget the plan, to read the new topic: {plan.stream.recover_command('drop-plan')}"
        fix = forget if plan.seq == 1 else _new_generation(plan.stream)
        raise TopicRecreated(_recreated(topic, planned_id, topic_id), fix)


def check_head_is_there(head: Head, ends: EpochEnds) -> None:
    """Check that the last record before the head is in the log: then all before it are those that were read.

    `ends` are the ends of the head's epochs. Raises LogTruncated.
    """
    for at, epoch in head.epochs.items():
        if at in ends and _is_lost(epoch, head.offsets[at], ends[at]):
            raise LogTruncated(
                f"{_truncated(at, head.offsets[at], epoch, ends[at])}; it was read up to there",
                f"Restore the log, or raise `generation` of {head.stream.pipeline} to start over.",
            )


def check_ends_are_there(plan: Plan, ends: EpochEnds) -> None:
    """Check that the log has the last record of each range, the one that was there when the batch was
    planned.

    `ends` are the ends of the ranges' epochs. Raises LogTruncated.
    """
    for planned in plan.ranges:
        at, epoch = planned.place, planned.end_epoch
        if epoch is not None and is_truncated(planned, ends):
            raise LogTruncated(
                f"{_truncated(at, planned.end, epoch, ends[at])}; batch {plan.seq} is planned up to there",
                f"Restore the log, or forget the plan: {plan.stream.recover_command('drop-plan')}",
            )


def is_truncated(planned: OffsetRange, ends: EpochEnds) -> bool:
    """Return whether the log of a range lacks its last record, the one that was there when it was planned."""
    at, epoch = planned.place, planned.end_epoch
    return epoch is not None and at in ends and _is_lost(epoch, planned.end, ends[at])


def planned_epochs(plan: Plan) -> dict[Partition, int]:
    """Return the epoch of the last record of each range that is not empty."""
    return {
        planned.place: planned.end_epoch
        for planned in plan.ranges
        if planned.span and planned.end_epoch is not None
    }


def check_still_the_same(log: KafkaLog, plan: Plan) -> None:
    """Raise an error unless the topics are those of the plan, and their logs still have the last records that
    were read.

    Records that retention has deleted since do not matter: they were read. Raises TopicRecreated,
    TopicMissing, LogTruncated, BrokerUnavailable.
    """
    for topic in sorted({planned.topic for planned in plan.ranges if planned.span}):
        check_planned_topic(plan, topic, log.topic_id(topic))
    check_ends_are_there(plan, log.epoch_ends(planned_epochs(plan)))


def check_head_epochs(log: KafkaLog, head: Head, views: Iterable[TopicView]) -> None:
    """Run `check_head_is_there` for the partitions of these topics."""
    topics = {view.topic for view in views}
    check_head_is_there(
        head, log.epoch_ends({at: epoch for at, epoch in head.epochs.items() if at[0] in topics})
    )


def with_epochs(
    log: KafkaLog, views: Iterable[TopicView], ranges: Sequence[OffsetRange]
) -> tuple[OffsetRange, ...]:
    """Return the ranges with the leader epoch of the record before each end. Raises BrokerUnavailable."""
    ends = {planned.place: planned.end for planned in ranges}
    epochs = log.epochs_before(views, ends)
    return tuple(replace(planned, end_epoch=epochs.get(planned.place)) for planned in ranges)


def _is_lost(epoch: int, offset: int, now: EpochEnd) -> bool:
    """Return whether a log that has `now` of an epoch lacks the record of that epoch before an offset.

    An epoch of which retention has deleted all records is not missed: the log then begins after it.
    """
    return now.epoch != epoch or now.end < offset


def _recreated(topic: str, previous_id: str, topic_id: str) -> str:
    return f"The topic {topic} was deleted and created again (id {previous_id} is now {topic_id})"


def _new_generation(stream: Stream) -> str:
    return (
        f"Raise `generation` of {stream.pipeline} to read the new topic with a new state. If the topic was "
        f"moved to another cluster: {stream.recover_command('move')}. If the source's connection leads there "
        "by mistake, correct that instead."
    )


def _truncated(at: Partition, offset: int, epoch: int, now: EpochEnd) -> str:
    topic, partition = at
    left = f"ends at offset {now.end}" if now.epoch >= 0 else "is not known there"
    return (
        f"{topic}[{partition}] was truncated below offset {offset} and has grown again: the record before it "
        f"was written in leader epoch {epoch}, and what is left of that {left}"
    )
