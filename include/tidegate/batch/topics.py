"""The topics that a batch reads: those that the pipeline file lists, or those that its pattern selects when
the batch is planned.

A plan stores the names, so a retry and every later step read the same topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.errors import TopicMissing
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Head, OffsetRange
from tidegate.model.source import Source
from tidegate.model.topics import TopicPattern


def source_topics(log: KafkaLog, source: Source, head: Head) -> tuple[str, ...]:
    """Return the topics that a source reads now, those of a pattern in the order of their names.

    A topic that batches have read, and that the pattern no longer finds, must not be left out without a word:
    its unread records would be lost. Raises TopicMissing for such a topic, and if a pattern selects none.
    """
    if not isinstance(source.selection, TopicPattern):
        return source.topics
    pattern, servers = source.selection.pattern, log.config.servers
    topics = tuple(topic for topic in log.topics() if source.reads(topic))
    lost = [topic for topic in topics_of(head) if source.reads(topic) and topic not in topics]
    if lost:
        raise TopicMissing(
            f"{', '.join(lost)} at {servers} was read up to now, and does not exist any more, or this user "
            "may no longer describe it",
            "Give the user the right Describe; or if the topic was deleted, raise `generation` of "
            f"{head.stream.pipeline} to go on with the topics that are left, with a new state.",
        )
    if not topics:
        raise TopicMissing(
            f"No topic at {servers} matches the pattern `{pattern}`",
            "Create one, correct the pattern, which must match whole names, or give this user the right "
            "Describe: without it, a topic is not visible.",
        )
    return topics


def topics_of(head: Head) -> list[str]:
    """Return the topics that batches have read, in the order of their names."""
    return sorted({topic for topic, _ in head.offsets})


def new_topics(source: Source, head: Head, ranges: Iterable[OffsetRange]) -> list[str]:
    """Return the topics that a pattern selects and no batch has read, in the order of their names."""
    if not isinstance(source.selection, TopicPattern):
        return []
    return sorted({range_.topic for range_ in ranges} - set(topics_of(head)))
