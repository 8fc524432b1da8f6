"""Remedy `move`: go on reading a source topic in another cluster, which has a copy of it (decision 82)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.batch.publish import publish_decided
from tidegate.batch.still_batch import decide_still_batch, still_plan
from tidegate.batch.topics import topics_of
from tidegate.errors import Halted, SettingsInvalid
from tidegate.inspect.streams import catalog_entries
from tidegate.kafka.log import KafkaLog, TopicView
from tidegate.kafka.mirrored import (
    MOST_SCANNED,
    Place,
    is_same_place,
    offsets_of_place,
    place_at,
    shared_around,
)
from tidegate.kernel.rows import with_column
from tidegate.ledger import Head, LeasedLedger, OffsetRange
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.recovery.remedy import Proposal, Situation

Checkpoints = Mapping[tuple[int, int], int]
"""(partition, offset in the old topic) -> the offset in the new one, of one topic."""


@dataclass(frozen=True)
class MovedPartition:
    """The offset at which reading continues in a partition, and the evidence for it.

    Args:
        old_offset: the head's offset in the old topic.
        new_offset: the offset of the same record in the new topic.
        evidence: why these two are the same place, for people.
        new_unread: the number of offsets from there to the end of the new partition.
        old_unread: the same number in the old partition; None if unknown.
    """

    partition: int
    old_offset: int
    new_offset: int
    evidence: str
    new_unread: int
    old_unread: int | None = None


@dataclass(frozen=True)
class MovedTopic:
    """A topic of another cluster that replaces the one that was read.

    Args:
        view: the new topic.
        partitions: the place in each partition that was read.
        epochs: (topic, partition) -> the leader epoch of the record before the new offset.
    """

    view: TopicView
    partitions: tuple[MovedPartition, ...]
    epochs: Mapping[tuple[str, int], int]

    @property
    def new_offsets(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> the offset at which reading continues."""
        return {(self.view.topic, moved.partition): moved.new_offset for moved in self.partitions}


class Move:
    """Map the head's offsets, and the positions in the state, to another cluster's copy of a topic."""

    name = "move"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if it is chosen, and the source's connection leads to another topic of the same
        name.

        Raises Halted if a place in the copy is not certain; TopicMissing, SettingsInvalid, BrokerUnavailable.
        """
        if not situation.is_chosen(self.name):
            return None
        moved = _moved_topics(situation, situation.head)
        if not moved:
            return None
        names = ", ".join(topic.view.topic for topic in moved)
        cause = f"The source's connection leads to another topic {names} than {situation.stream} has read."
        return Proposal(self.name, cause, tuple(_effects(situation, moved)), lambda: _move(situation))


def _effects(situation: Situation, topics: list[MovedTopic]) -> Iterator[str]:
    stream, seq = situation.stream, situation.head.seq + 1
    if situation.open_plan is not None:
        yield f"Batch {seq}, which is planned, is forgotten, and planned anew in the new topic."
    for topic in topics:
        for moved in topic.partitions:
            yield f"{topic.view.topic}[{moved.partition}] {_described(moved)}"
    yield (
        f"Batch {seq} reads and emits nothing: it has the new offsets, and in the state no position that a "
        "record of the new topic could be taken for."
    )
    smaller = [topic.view.topic for topic in topics for moved in topic.partitions if _goes_back(moved)]
    if smaller:
        yield (
            f"Offsets of {', '.join(dict.fromkeys(smaller))} go back. A pipeline that reads what {stream} "
            "sends with `deduplicate: root` takes emissions of smaller offsets for repetitions: raise its "
            "`generation` before the next run."
        )
    for other in situation.ledger.streams():
        if other.pipeline == stream.pipeline and other != stream:
            yield f"{other} has its own offsets: {other.recover_command('move')}"


def _goes_back(moved: MovedPartition) -> bool:
    return moved.new_offset < moved.old_offset


def _described(moved: MovedPartition) -> str:
    text = f"goes on at {moved.new_offset} in place of {moved.old_offset}: {moved.evidence}."
    if moved.old_unread is not None and moved.old_unread > moved.new_unread:
        text += (
            f" From there on the old topic has {moved.old_unread} offsets, the new one {moved.new_unread}: "
            "see that the rest is still copied."
        )
    return text


def _move(situation: Situation) -> tuple[str, ...]:
    app, done = situation.app, []
    with situation.leased() as lease, app.clusters:
        publish_decided(app, lease)
        head = lease.head(lease.stream)
        topics = _moved_topics(situation, head)
        if not topics:
            return ("The source's connection leads to the topics that were read; nothing was done.",)
        if (dropped := lease.drop_plan()) is not None:
            done.append(f"Batch {dropped} is forgotten; the next run plans it anew.")
        _decide(situation, lease, head, topics)
        publish_decided(app, lease)
    places = [
        f"{topic}[{partition}] {at}"
        for moved in topics
        for (topic, partition), at in moved.new_offsets.items()
    ]
    return (*done, f"{lease.stream} goes on in the new cluster, at {', '.join(places)}.")


def _decide(situation: Situation, lease: LeasedLedger, head: Head, topics: list[MovedTopic]) -> None:
    """Decide the batch that has the new offsets, ids and epochs, and state without positions after them."""
    before = lease.plan(lease.stream, head.seq)
    assert before is not None, "the ledger has the head's plan"
    offsets = {place: offset for topic in topics for place, offset in topic.new_offsets.items()}
    epochs = {place: epoch for topic in topics for place, epoch in topic.epochs.items()}
    plan = still_plan(head, before, lease.lease.holder)
    ranges = tuple(_at(planned, offsets, epochs) for planned in plan.ranges)
    ids = {topic.view.topic: topic.view.topic_id for topic in topics}
    plan = replace(plan, ranges=ranges, topic_ids={**head.topic_ids, **ids})

    def lower(_name: str, _stage: kernel.Stage, rows: pa.Table) -> pa.Table:
        return lower_positions(rows, offsets)

    decide_still_batch(situation.app, lease, plan, lower)


def _at(
    planned: OffsetRange, offsets: Mapping[tuple[str, int], int], epochs: Mapping[tuple[str, int], int]
) -> OffsetRange:
    offset = offsets.get(planned.place)
    if offset is None:
        return planned
    # start = end: the range reads nothing, and its end becomes the head's offset.
    return replace(planned, start=offset, end=offset, end_epoch=epochs.get(planned.place))


def lower_positions(rows: pa.Table, offsets: Mapping[tuple[str, int], int]) -> pa.Table:
    """Return the state rows whose position is at or after the offset at which their partition continues.

    They get the position before that offset. Otherwise the records that come there would count as
    repetitions.

    Args:
        rows: state rows with `topic`, `partition` and `offset`.
        offsets: (topic, partition) -> the offset at which reading continues.

    Example: if a partition continues at 7, a row with the offset 40 gets 6; one with 5 is left out.
    """
    places = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    # `deduplicate: offset` drops what is at or before the position of the key's row.
    last = pa.array([offsets[place] - 1 if place in offsets else None for place in places], pa.int64())
    is_ahead = pc.fill_null(pc.greater(rows["offset"], last), False)
    return with_column(rows, "offset", last).filter(is_ahead)


def _moved_topics(situation: Situation, head: Head) -> list[MovedTopic]:
    """Return the topics of the source that have another id now, with the place in each partition."""
    pipeline = _pipeline(situation)
    with situation.app.log(pipeline.sources.connection) as log:
        # A topic that was never read has no offset to translate; it begins as the file says.
        views = [log.view(topic) for topic in topics_of(head) if pipeline.sources.reads(topic)]
        # Kafka gives each topic an id of its own, also a copy with the same name.
        replaced = [view for view in views if view.topic_id != head.topic_ids[view.topic]]
        return [_moved_topic(situation, head, log, view) for view in replaced]


def _pipeline(situation: Situation) -> Pipeline:
    """Return the pipeline of the current file, which names the new cluster."""
    for entry in catalog_entries(situation.app):
        if entry.pipeline is not None and entry.is_file_of(situation.stream):
            return entry.pipeline
    if situation.head_plan is None:
        raise Halted(f"{situation.stream} has read nothing yet", "Run it: it begins in the new topic.")
    return planned_pipeline(situation.head_plan)


def _moved_topic(situation: Situation, head: Head, log: KafkaLog, view: TopicView) -> MovedTopic:
    read = {partition: at for (topic, partition), at in head.offsets.items() if topic == view.topic}
    _require_same_partitions(view, read)
    places = _old_places(situation, head, view.topic, read)
    file = situation.options.checkpoints
    checkpoints = read_checkpoints(file) if file is not None else None
    if places is None and checkpoints is None:
        raise Halted(
            f"The topic {view.topic} (id {view.topic_id}) is another one than was read "
            f"(id {head.topic_ids[view.topic]}), and nothing says which offset of it is which of the old one",
            "Give what does: --old-connection NAME, with TIDEGATE_KAFKA_NAME set to the old cluster, or "
            "--checkpoints FILE, with lines of `partition,old offset,new offset`.",
        )
    moved = []
    for partition, offset in sorted(read.items()):
        place = places[partition] if places is not None else None
        if checkpoints is not None:
            moved.append(_by_checkpoint(log, view, (partition, offset), checkpoints, place))
        else:
            assert place is not None, "one of both is given"
            moved.append(_by_records(log, view, (partition, offset), place))
    # The epochs of the copy: the head's would not be found in its log, and halt the next plan.
    at = {(view.topic, place.partition): place.new_offset for place in moved}
    return MovedTopic(view, tuple(moved), log.epochs_before([view], at))


def _require_same_partitions(view: TopicView, read: Mapping[int, int]) -> None:
    missing = sorted(read.keys() - view.starts.keys())
    # Records in other partitions than before would lose their order by key.
    added = [number for number in sorted(view.starts.keys() - read.keys()) if view.ends[number] > 0]
    if missing or added:
        what = (
            f"lacks the partitions {missing}" if missing else f"has records in {added}, which were not read"
        )
        raise Halted(
            f"The new topic {view.topic} {what}: its records are not in the partitions in which they were",
            "Copy the topic partition by partition, as MirrorMaker does; or raise `generation` to start "
            "over.",
        )


def _old_places(
    situation: Situation, head: Head, topic: str, read: Mapping[int, int]
) -> dict[int, Place] | None:
    """Return the records around the head's offsets in the old cluster; None if no connection to it was
    named.
    """
    connection = situation.options.old_connection
    if connection is None:
        return None
    with situation.app.log(connection) as log:
        view = log.view(topic)
        if view.topic_id != head.topic_ids[topic]:
            raise SettingsInvalid(
                f"The topic {topic} of connection {connection} has the id {view.topic_id}, and was read as "
                f"{head.topic_ids[topic]}",
                "Let --old-connection name the cluster that was read before.",
            )
        return {partition: place_at(log, view, partition, offset) for partition, offset in read.items()}


def _by_checkpoint(
    log: KafkaLog, view: TopicView, read: tuple[int, int], checkpoints: Checkpoints, old: Place | None
) -> MovedPartition:
    partition, offset = read
    where = f"{view.topic}[{partition}] offset {offset}"
    if read not in checkpoints:
        raise Halted(
            f"The checkpoints do not say which offset of the new topic is {where}",
            f"Add the line `{partition},{offset},NEW`: NEW is the offset of the first record that was not "
            "read yet, or the end of the partition.",
        )
    new = checkpoints[read]
    if not view.starts[partition] <= new <= view.ends[partition]:
        raise Halted(
            f"By the checkpoints {where} is {new} in the new topic, which has {view.starts[partition]} to "
            f"{view.ends[partition]}",
            "Correct the line; if records are not copied yet, wait for that.",
        )
    # A checkpoint is a person's word: where the old cluster answers, the records must agree.
    here = place_at(log, view, partition, new)
    # Without the old cluster, or without records there, only the file's word is left.
    if old is None or not (old.before or old.after):
        return MovedPartition(partition, offset, new, "by the checkpoints, not compared", here.unread)
    if not is_same_place(old, here):
        raise Halted(
            f"By the checkpoints {where} is {new} in the new topic, and the records around the two differ",
            "Correct the line, or leave --checkpoints out to have the place found by records.",
        )
    evidence = f"by the checkpoints, and {_same_records(old, here)}"
    return MovedPartition(partition, offset, new, evidence, here.unread, old.unread)


def _by_records(log: KafkaLog, view: TopicView, read: tuple[int, int], old: Place) -> MovedPartition:
    partition, offset = read
    offsets = offsets_of_place(log, view, partition, old)
    # Exactly one place: a guess would read records twice, or leave some out.
    if offsets is not None and len(offsets) == 1:
        here = place_at(log, view, partition, offsets[0])
        return MovedPartition(
            partition, offset, offsets[0], _same_records(old, here), here.unread, old.unread
        )
    if offsets is None:
        why = f"more than {MOST_SCANNED} records would have to be compared"
    elif offsets:
        why = f"the records around it are at {', '.join(map(str, offsets[:5]))}"
    else:
        why = "no place has the records around it, by timestamp, key, value and headers"
    raise Halted(
        f"Which offset of the new topic is {view.topic}[{partition}] offset {offset} is not certain: {why}",
        "Say it: --checkpoints FILE, with a line of `partition,old offset,new offset` for each partition. If "
        "records are not copied yet, wait for that.",
    )


def _same_records(old: Place, here: Place) -> str:
    before, after = shared_around(old, here)
    if not before and not after:
        return "both are empty there"
    return f"{before} records before it and {after} after it are the same in both"


def read_checkpoints(file: Path) -> dict[tuple[int, int], int]:
    """Return what a file with lines of `partition,old offset,new offset` says. Raises SettingsInvalid."""
    try:
        lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    except OSError as error:
        raise SettingsInvalid(f"{file} cannot be read: {error}", "Give another file.") from error
    checkpoints: dict[tuple[int, int], int] = {}
    for number, line in enumerate(lines, start=1):
        fields = [field.strip() for field in line.split(",")]
        if not line or (number == 1 and not fields[0].isdecimal()):
            continue  # a header
        if len(fields) != 3 or not all(field.isdecimal() for field in fields):
            raise SettingsInvalid(
                f"{file}:{number}: `{line}` is not `partition,old offset,new offset`", "Correct the line."
            )
        partition, old, new = map(int, fields)
        if checkpoints.setdefault((partition, old), new) != new:
            raise SettingsInvalid(
                f"{file}:{number}: partition {partition}, offset {old} has two new offsets",
                "Keep the right one.",
            )
    return checkpoints
