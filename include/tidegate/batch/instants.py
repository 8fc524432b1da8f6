"""Where instants fall in the topics of a source: only a hint, for timestamps need not rise with offsets."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.batch.ranges import Ends
from tidegate.batch.trigger import Trigger
from tidegate.broker.log import KafkaLog, TopicView
from tidegate.errors import TriggerInvalid
from tidegate.spec import Source


def first_starts(log: KafkaLog, views: Sequence[TopicView], source: Source) -> dict[tuple[str, int], int]:
    """Return the offsets at which the very first batch starts, by the pipeline file; empty: at the first
    record.
    """
    if source.start == "earliest":
        return {}
    latest = {(view.topic, p): end for view in views for p, end in view.stable_ends.items()}
    return latest if source.start == "latest" else latest | offsets_at(log, views, source.start)


def interval_ends(log: KafkaLog, views: Sequence[TopicView], trigger: Trigger) -> Ends | None:
    """Return the offset at which the trigger's interval ends in each partition; see `plan_ranges`."""
    if trigger.interval_ends is not None:  # of a partition that was added since, nothing is in it
        return dict.fromkeys(_partitions(views), 0) | dict(trigger.interval_ends)
    if trigger.interval_end_ms is None:
        return None
    return offsets_at(log, views, trigger.interval_end_ms, believed_until_ms=trigger.believed_until_ms)


def offsets_at(
    log: KafkaLog, views: Sequence[TopicView], timestamp_ms: int, believed_until_ms: int | None = None
) -> dict[tuple[str, int], int]:
    """The first offset of each partition from an instant on; none where it has no such record.

    A record from after `believed_until_ms` does not count: it would hold back all that comes after it
    until its time has come. It is read, and quarantined.
    """
    return {
        (view.topic, partition): offset
        for view in views
        for partition, (offset, at_ms) in log.offsets_at(
            view.topic, sorted(view.starts), timestamp_ms
        ).items()
        if believed_until_ms is None or at_ms <= believed_until_ms
    }


def check_partitions(views: Sequence[TopicView], offsets: Ends) -> None:
    """Raise TriggerInvalid where offsets are given of partitions that are not there."""
    partitions = _partitions(views)
    unknown = ", ".join(f"{topic}[{number}]" for topic, number in sorted(offsets.keys() - set(partitions)))
    if unknown:
        raise TriggerInvalid(
            f"The trigger gives offsets of {unknown}, which the pipeline does not read",
            f"It reads {', '.join(f'{topic}[{number}]' for topic, number in partitions)}.",
        )


def _partitions(views: Sequence[TopicView]) -> list[tuple[str, int]]:
    return [(view.topic, partition) for view in views for partition in sorted(view.starts)]
