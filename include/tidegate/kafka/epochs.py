"""Leader epochs: under which leader of a partition a record was written, and where each leader's records end.

Offset and epoch identify a record: two logs that both have it are equal up to it. So the epoch of the last
record that was read shows whether the log was truncated below it, even if the log has grown again since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import kafka.errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from kafka import TopicPartition

Partition = tuple[str, int]
_Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Partition = _Topic.OffsetForLeaderPartition


class EpochEnd(NamedTuple):
    """The newest leader epoch with records, up to the epoch of the request, and the offset after its last
    record.

    If the log has no such epoch, `epoch` is that of the request, and `end` the offset where its records would
    have ended. Both are -1 if the epoch of the request is newer than all that the log has.
    """

    epoch: int
    end: int


EpochEnds = Callable[[Mapping[Partition, int]], Mapping[Partition, EpochEnd]]
"""A function that asks the leaders of partitions where an epoch of each partition ends."""


def epoch_ends(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
    """Return where an epoch of each partition ends, as its leader says, with one request per leader.

    kafka-python's admin client has no call for this request (KIP-320), but it can find the leaders. Raises
    KafkaError.
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
            # -1: the leader does not compare its own epoch with one that this client has.
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
    """Return the leader epoch of the record before each offset, for partitions whose log still has that
    record.

    Most partitions have the epoch of their present leader, which one request shows; a partition that is far
    behind needs one more request for each leader that has written since.

    Args:
        ask: asks the leaders where an epoch of each partition ends.
        offsets: (topic, partition) -> the offset.
        newest: the epochs of the partitions' present leaders.
    """
    # Under its first leader a log has no other epoch, so nobody has to be asked.
    epochs = {at: 0 for at, epoch in newest.items() if epoch == 0}
    begins: dict[Partition, int] = {}
    candidates = {at: epoch for at, epoch in newest.items() if epoch > 0}
    # Invariant: the record before the offset is of the candidate's epoch, or of an older one.
    while candidates:
        before = ask({at: epoch - 1 for at, epoch in candidates.items()})
        older = {}
        for at, (epoch, end) in before.items():
            if end < offsets[at]:
                epochs[at] = candidates[at]
            elif epoch == 0:
                epochs[at] = 0
            elif epoch > 0 and end != begins.get(at):  # the same end again: the log has no older epoch
                older[at], begins[at] = epoch, end
        candidates = older
    return epochs
