"""Rows on their way into the kernel and out of it."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark.kernel_task import numbered_by_key


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 5))
def test_emissions_of_a_key_are_numbered_across_batches(drawn: list[str], size: int) -> None:
    keys = sorted(drawn)
    rows = pa.table({"key": pa.array(keys, pa.string()), "ordinal": pa.nulls(len(keys), pa.int64())})
    batches = rows.to_batches(max_chunksize=size)
    numbered = [row["ordinal"] for batch in numbered_by_key(batches) for row in batch.to_pylist()]
    assert numbered == [number for _, group in groupby(keys) for number, _ in enumerate(group)]
