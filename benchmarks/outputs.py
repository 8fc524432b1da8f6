"""What topics hold, compared: each key's records, in order, as a `read_committed` consumer sees them."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Message

from benchmarks.place import topic_ends
from benchmarks.programs import ResultWrong
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import Slice, read_slice


def require_same_output(servers: str, topic: str, other: str) -> None:
    """Raises ResultWrong unless both topics have records, and for each key the same values and timestamps in
    the same order."""
    digests, other_digests = _digests(servers, topic), _digests(servers, other)
    if not digests:
        raise ResultWrong(f"{topic} has no records that could be compared")
    if digests == other_digests:
        return
    keys = digests.keys() | other_digests.keys()
    differ = sorted(key for key in keys if digests.get(key) != other_digests.get(key))
    example = differ[0].decode(errors="replace")
    raise ResultWrong(f"{topic} and {other} differ in {len(differ):,} of {len(keys):,} keys: {example} …")


def _digests(servers: str, topic: str) -> dict[bytes, int]:
    """Key -> a digest of its values and timestamps, in order."""
    digests: dict[bytes, int] = {}
    for message in messages(servers, topic):
        key = message.key() or b""
        digests[key] = hash((digests.get(key), message.value(), message.timestamp()[1]))
    return digests


def messages(servers: str, topic: str) -> Iterator[Message]:
    """Yield the messages of a topic, partition after partition."""
    config = KafkaConfig.parse(servers)
    for partition, end in topic_ends(servers, topic).items():
        for block in read_slice(config, Slice(topic, partition, 0, end)):
            yield from block
