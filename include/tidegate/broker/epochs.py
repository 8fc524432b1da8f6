"""Leader epochs: under which leader of a partition a record was written, and where each leader's records end.

A record is known by its offset and its epoch: logs that both have it are the same up to there. So who keeps
the epoch of the last record that was read finds out whether the log was truncated below it, also when it has
grown again since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import kafka.errors
from kafka import TopicPartition
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

Partition = tuple[str, int]
_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Partition = _Topic.OffsetForLeaderPartition


class EpochEnd(NamedTuple):
    """The newest leader epoch, up to one that was asked for, of which a log has records; and the offset after
    the last of them. Where the log has none older, `epoch` is the one that was asked for, and `end` where
    its records would have ended; -1 and -1 where that one is newer than all that the log knows.
    """

    epoch: int
    end: int


EpochEnds = Callable[[Mapping[Partition, int]], Mapping[Partition, EpochEnd]]
"""Asks the partitions' leaders where an epoch of each ends."""


def epoch_ends(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
    """Where an epoch of each partition ends, as its leader says. Raises KafkaError.

    One request for each leader. kafka-python's admin client has no call for it, only the way to the leaders.
    """
    ends: dict[Partition, EpochEnd] = admin._manager.run(_epoch_ends, admin, epochs)
    return ends


async def _epoch_ends(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
    leaders = await admin._async_get_leader_for_partitions({TopicPartition(*at) for at in epochs})
    ends: dict[Partition, EpochEnd] = {}
    for leader, partitions in leaders.items():
        request = _request({at: epochs[at] for at in partitions})
        ends |= _ends(await admin._manager.send(request, node_id=leader))
    return ends


def _request(epochs: Mapping[Partition, int]) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), epoch in epochs.items():
        topics.setdefault(topic, []).append(
            _Partition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,  # a consumer
        topics=[_Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _ends(response: Any) -> dict[Partition, EpochEnd]:
    ends = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = kafka.errors.for_code(partition.error_code)
            if error is not kafka.errors.NoError:
                raise error(f"{topic.topic}[{partition.partition}] does not say where its epochs end")
            ends[topic.topic, partition.partition] = EpochEnd(partition.leader_epoch, partition.end_offset)
    return ends


def epochs_before(
    ask: EpochEnds, offsets: Mapping[Partition, int], newest: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The epoch of the record before each offset, for partitions of which the log still has that record.

    `newest` are the epochs of the partitions' leaders. Of most it is the answer, and one question finds that
    out; a partition that is far behind takes one more for each leader that has written since.
    """
    epochs = {at: 0 for at, epoch in newest.items() if epoch == 0}
    begins: dict[Partition, int] = {}
    candidates = {at: epoch for at, epoch in newest.items() if epoch > 0}
    while candidates:
        before = ask({at: epoch - 1 for at, epoch in candidates.items()})
        older = {}
        for at, (epoch, end) in before.items():
            if end < offsets[at]:
                epochs[at] = candidates[at]
            elif epoch == 0:
                epochs[at] = 0
            elif epoch > 0 and end != begins.get(at):  # the same again: the log knows of none that is older
                older[at], begins[at] = epoch, end
        candidates = older
    return epochs
