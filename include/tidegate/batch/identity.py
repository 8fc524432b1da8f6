"""Whether the logs are still those that were planned, and read: by the topics' ids, and by the leader epoch
of the last record. Offsets alone do not tell: a log that was truncated or created anew grows past them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate.broker.epochs import EpochEnd
from tidegate.broker.log import KafkaLog, TopicView
from tidegate.errors import LogTruncated, TopicRecreated
from tidegate.ledger import Head, OffsetRange, Plan, Stream

Partition = tuple[str, int]
Ends = Mapping[Partition, EpochEnd]


def check_same_topic(head: Head, topic: str, topic_id: str) -> None:
    """Offsets mean something only in the topic that they were read from. Raises TopicRecreated."""
    previous_id = head.topic_ids.get(topic)
    if previous_id is not None and previous_id != topic_id:
        raise TopicRecreated(_recreated(topic, previous_id, topic_id), _new_generation(head.stream))


def check_planned_topic(plan: Plan, topic: str, topic_id: str) -> None:
    """Raise TopicRecreated if a topic has another id than in the plan.

    For the first batch the fix is to drop the plan, since there is no state yet.
    """
    planned_id = plan.topic_ids[topic]
    if planned_id != topic_id:
        forget = f"Forget the plan, to read the new topic: {plan.stream.recover_command('drop-plan')}"
        fix = forget if plan.seq == 1 else _new_generation(plan.stream)
        raise TopicRecreated(_recreated(topic, planned_id, topic_id), fix)


def check_head_is_there(head: Head, ends: Ends) -> None:
    """The last record before the head must be in the log, hence all before it are those that were read.

    `ends` are of the head's epochs. Raises LogTruncated.
    """
    for at, epoch in head.epochs.items():
        if at in ends and _is_lost(epoch, head.offsets[at], ends[at]):
            raise LogTruncated(
                f"{_truncated(at, head.offsets[at], epoch, ends[at])}; it was read up to there",
                f"Restore the log, or raise `generation` of {head.stream.pipeline} to start over.",
            )


def check_ends_are_there(plan: Plan, ends: Ends) -> None:
    """The last record of each range must be in the log, the one that was there when the batch was planned.

    `ends` are of the ranges' epochs. Raises LogTruncated.
    """
    for planned in plan.ranges:
        at, epoch = (planned.topic, planned.partition), planned.end_epoch
        if epoch is not None and is_truncated(planned, ends):
            raise LogTruncated(
                f"{_truncated(at, planned.end, epoch, ends[at])}; batch {plan.seq} is planned up to there",
                f"Restore the log, or forget the plan: {plan.stream.recover_command('drop-plan')}",
            )


def is_truncated(planned: OffsetRange, ends: Ends) -> bool:
    """Whether the log of a range lacks its last record, the one that was there when it was planned."""
    at, epoch = (planned.topic, planned.partition), planned.end_epoch
    return epoch is not None and at in ends and _is_lost(epoch, planned.end, ends[at])


def planned_epochs(plan: Plan) -> dict[Partition, int]:
    """The epoch of the last record of each range in which there is something to read."""
    return {
        (planned.topic, planned.partition): planned.end_epoch
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
    """The ranges, each with the leader epoch of the record before its end. Raises BrokerUnavailable."""
    ends = {(planned.topic, planned.partition): planned.end for planned in ranges}
    epochs = log.epochs_before(views, ends)
    return tuple(
        replace(planned, end_epoch=epochs.get((planned.topic, planned.partition))) for planned in ranges
    )


def _is_lost(epoch: int, offset: int, now: EpochEnd) -> bool:
    """Whether a log that has `now` of an epoch lacks the record of that epoch before an offset.

    An epoch of which retention has deleted all is not missed: the log then begins after it.
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
