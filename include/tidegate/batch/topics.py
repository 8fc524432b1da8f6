"""The topics that a batch reads: those that the pipeline file lists, or those that its pattern selects when
the batch is planned.

A plan stores the names, so a retry and every later step read the same topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.errors import TopicMissing, TopicShared
from tidegate.kafka.log import KafkaLog
from tidegate.ledger import Head, OffsetRange
from tidegate.model.source import Source
from tidegate.model.sources import Sources, TopicPattern


def source_topics(log: KafkaLog, sources: Sources, head: Head) -> tuple[str, ...]:
    """Return the topics that the sources read now, those of a pattern in the order of their names.

    A topic that batches have read, and that the pattern no longer finds, must not be left out without a word:
    its unread records would be lost. Raises TopicMissing for such a topic, and if a pattern selects none;
    TopicShared if two sources read a topic.
    """
    topics: dict[str, str] = {}
    for name, source in sources.items():
        for topic in _topics_of_source(log, source, head):
            if (owner := topics.setdefault(topic, name)) != name:
                raise TopicShared(
                    f"The topic {topic} is selected by the sources `{owner}` and `{name}`",
                    "A topic belongs to one source: make the pattern of one of them narrower.",
                )
    return tuple(topics)


def _topics_of_source(log: KafkaLog, source: Source, head: Head) -> tuple[str, ...]:
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


def new_topics(sources: Sources, head: Head, ranges: Iterable[OffsetRange]) -> list[str]:
    """Return the topics that a pattern selects and no batch has read, in the order of their names."""
    patterns = [source for source in sources.values() if isinstance(source.selection, TopicPattern)]
    new = {range_.topic for range_ in ranges} - set(topics_of(head))
    return sorted(topic for topic in new if any(source.reads(topic) for source in patterns))
