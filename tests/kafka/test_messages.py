"""Messages as columns: how they are cut into transactions, and what each is as a message."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.batches import batch_of, message
from tidegate.kafka.messages import Message, chunks, message_columns, messages_of, sizes_of

HEADERS = st.fixed_dictionaries(
    {"tidegate-source": st.binary(max_size=8)}, optional={"tidegate-window": st.binary(max_size=8)}
)
MESSAGES = st.lists(
    st.builds(
        Message,
        key=st.binary(max_size=9),
        value=st.none() | st.binary(max_size=9),
        timestamp_ms=st.integers(0, 2**40),
        headers=HEADERS.map(lambda headers: sorted(headers.items())),
    ),
    max_size=12,
)


def naive_chunks(messages: list[Message], records: int, size: int) -> list[list[Message]]:
    """One by one: a chunk ends before the message that it has no room for."""
    expected: list[list[Message]] = [[]]
    for item in messages:
        full = sum(other.size for other in expected[-1]) + item.size > size or len(expected[-1]) == records
        if expected[-1] and full:
            expected.append([])
        expected[-1].append(item)
    return expected


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 7), st.integers(1, 100))
def test_chunks_are_full_within_records_and_bytes(
    batches: list[list[Message]], records: int, size: int
) -> None:
    actual = list(chunks(map(batch_of, batches), records, lambda: size))
    shown = [[item for batch in chunk for item in messages_of(batch)] for chunk, _ in actual]
    assert shown == naive_chunks([record for batch in batches for record in batch], records, size)


@pytest.mark.parametrize(("count", "last"), [(0, [True]), (2, [True]), (3, [False, True])])
def test_only_the_last_chunk_is_marked_last(count: int, last: list[bool]) -> None:
    batches = [batch_of([message()]) for _ in range(count)]
    assert [is_last for _, is_last in chunks(batches, 2, lambda: 1_000)] == last


@given(MESSAGES)
def test_columns_give_back_each_message(messages: list[Message]) -> None:
    batch = batch_of(messages)
    assert list(messages_of(batch)) == messages
    columns = zip(*message_columns(batch), strict=True)
    assert [(*fixed, headers or []) for *fixed, headers in columns] == [tuple(item) for item in messages]
    assert sizes_of(batch).tolist() == [item.size for item in messages]


def test_a_slice_has_its_own_messages() -> None:
    numbered = [message(b"%d" % number) for number in range(5)]
    batch: pa.RecordBatch = batch_of(numbered).slice(2, 2)
    assert list(messages_of(batch)) == numbered[2:4]
