"""Where a record came from: its own position, and the hops that it has behind it."""

from __future__ import annotations

Position = tuple[str, int, int]
"""(topic, partition, offset)."""


def root(chain: str) -> Position:
    """The first entry of a source chain: `topic/partition/offset` joined by `;`, oldest first."""
    topic, partition, offset = chain.partition(";")[0].split("/")
    return topic, int(partition), int(offset)


def repeats(position: Position, fence: Position) -> bool:
    """Whether a record is at or before a position of its own topic-partition."""
    return position[2] <= fence[2] and position[:2] == fence[:2]
