"""Rows of one group, brought together: in one batch, and in order."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import MemoryExhausted
from tidegate.kernel.ordering import concatenated, in_order, order_of_hashes, whole_groups

_SCHEMA = pa.schema([("key", pa.string()), ("turn", pa.int64()), ("due", pa.int64()), ("end", pa.int64())])


def rows(*pairs: tuple[str | None, int]) -> pa.RecordBatch:
    columns = [{"key": key, "turn": turn} for key, turn in pairs]
    return pa.RecordBatch.from_pylist(columns, _SCHEMA)


def test_batches_in_one_have_the_rows_of_all() -> None:
    parts = [rows(("a", 1), ("b", 2)), rows(), rows(("c", 3)).slice(0, 1)]
    assert concatenated(parts).equals(pa.concat_batches(parts))


def test_columns_that_are_null_in_some_batches_survive() -> None:
    due = pa.RecordBatch.from_pylist([{"key": "b", "due": 7}], _SCHEMA)
    parts = [rows(("a", 1)), due]
    assert concatenated(parts).column("due").to_pylist() == [None, 7]


def test_columns_that_are_null_altogether_share_their_memory() -> None:
    combined = concatenated([rows(("a", 1)), rows(("b", 2))])
    due, end = (combined.column(name) for name in ("due", "end"))
    assert [buffer and buffer.address for buffer in due.buffers()] == [
        buffer and buffer.address for buffer in end.buffers()
    ]


@pytest.mark.parametrize("number", range(5))
def test_rows_are_sorted_by_successive_columns(number: int) -> None:
    pairs = list(itertools.product(["", "a", "ä"], [-1, 2]))[:number]
    for shuffled in itertools.permutations(pairs):
        assert in_order(rows(*shuffled), ("key", "turn")).equals(rows(*pairs))


def test_sorted_rows_are_not_moved() -> None:
    batch = rows(("a", 1), ("a", 1), ("a", 2), ("b", 0))
    assert in_order(batch, ("key", "turn")) is batch


def test_nulls_are_sorted_last() -> None:
    ordered = in_order(rows((None, 1), ("a", 2)), ("key", "turn"))
    assert ordered.column("key").to_pylist() == ["a", None]
    assert pc.all(ordered.column("due").is_null()).as_py()


def test_key_with_too_much_text_is_named() -> None:
    text = pa.array(["x" * 1_000_000]).take(pa.array([0] * 64))
    batch = pa.record_batch(
        {
            "hash": pa.repeat(pa.scalar(5, pa.int64()), 64),
            "key": pa.repeat("a large key", 64),
            "topic": pa.repeat("in", 64),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), 64),
            "offset": pa.array(range(64), pa.int64()),
            "value": text,
            **{name: pa.nulls(64) for name in ("input", "accumulator", "emitted")},
        }
    )
    says = "'a large key', the last of which is in/0/63, have more than 2 GiB in the column value"
    with pytest.raises(MemoryExhausted, match=says) as caught:
        list(whole_groups((batch for _ in range(40)), ("hash",)))
    assert "max_records" in caught.value.fix


@given(st.lists(st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_rows_of_one_hash_keep_their_order(hashes: list[int]) -> None:
    column = np.array(hashes, np.int64)
    assert order_of_hashes(column).tolist() == np.argsort(column, kind="stable").tolist()
