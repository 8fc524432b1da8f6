"""The origin of a record: its own position, and the hops before it."""

from __future__ import annotations

Position = tuple[str, int, int]
"""(topic, partition, offset)."""


def root(chain: str) -> Position:
    """Return the first entry of a source chain, which is `topic/partition/offset` joined by `;`, oldest
    first.

    Example: `root("orders/0/7;totals/1/3")` is `("orders", 0, 7)`.
    """
    topic, partition, offset = chain.partition(";")[0].split("/")
    return topic, int(partition), int(offset)


def repeats(position: Position, fence: Position) -> bool:
    """Return whether a record is at or before a position of its own topic-partition.

    Example: offset 7 repeats the fence 7 of its own partition, and no fence of another one.
    """
    return position[2] <= fence[2] and position[:2] == fence[:2]
