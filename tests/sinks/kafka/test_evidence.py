"""What records of a topic tell of how far a shard has sent: facts about counting them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tidegate.kafka.messages import Message
from tidegate.sinks.kafka.evidence import Mark, Traces, Unclear, check_unsent, mark_of, sent_of


def mark(name: str, key: str = "", deletion: bool = False) -> Mark:
    return Mark(name.encode(), (key or name).encode(), deletion)


def traces(
    names: Sequence[str] = (),
    compacted: bool = False,
    cut: Sequence[int] = (),
    other_keys: Sequence[str] = (),
) -> Traces:
    times = Counter(name.encode() for name in names)
    return Traces(compacted, times, list(cut), {key.encode() for key in other_keys})


MARKS = [mark("a"), mark("b"), mark("a"), mark("c")]


@pytest.mark.parametrize(
    ("names", "sent"), [("", 0), ("a", 1), ("ab", 2), ("aba", 3), ("aab", 3), ("abca", 4)]
)
def test_existing_messages_are_counted_from_the_first(names: str, sent: int) -> None:
    assert sent_of([[MARKS]], traces(names)) == [[sent]]


@pytest.mark.parametrize("names", ["b", "ac", "aabbc", "aaa"])
def test_messages_after_a_gap_or_repeated_prove_nothing(names: str) -> None:
    with pytest.raises(Unclear, match="beyond the first"):
        sent_of([[MARKS]], traces(names))


def test_missing_message_was_not_sent_without_deletion() -> None:
    check_unsent([mark("a", deletion=True)], traces(other_keys=["a"]))


def test_retention_without_a_trace_proves_nothing() -> None:
    with pytest.raises(Unclear, match="partitions 1, 2"):
        check_unsent([mark("a")], traces(cut=[1, 2]))


@pytest.mark.parametrize(
    ("missing", "other_keys", "proves"),
    [
        ([mark("a")], [], True),
        ([mark("a")], ["a"], False),
        ([mark("a", deletion=True)], [], False),
        ([mark("1", "a"), mark("2", "a", deletion=True)], [], False),
        ([mark("1", "a", deletion=True), mark("2", "a")], [], True),
        ([mark("a"), mark("b")], ["a"], True),
    ],
)
def test_compacted_topic_proves_absence_by_newest_message(
    missing: list[Mark], other_keys: list[str], proves: bool
) -> None:
    present = traces(compacted=True, other_keys=other_keys)
    if proves:
        check_unsent(missing, present)
    else:
        with pytest.raises(Unclear, match="compacted"):
            check_unsent(missing, present)


def message(**changes: object) -> Message:
    fields = {"key": b"k", "value": b"v", "timestamp_ms": 1, "headers": [("tidegate-source", b"t/0/1")]}
    return Message(**(fields | changes))  # type: ignore[arg-type]


def test_message_is_identified_without_its_timestamp() -> None:
    assert mark_of(message()) == mark_of(message(timestamp_ms=2))
    other_messages = [
        {"key": b"l"},
        {"value": None},
        {"value": b"-"},
        {"headers": [("tidegate-source", b"t/0/2")]},
    ]
    assert len({mark_of(message(**other)).identity for other in ({}, *other_messages)}) == 5
