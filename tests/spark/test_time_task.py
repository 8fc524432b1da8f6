"""The time of a later stage, against a loop over its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark.level import Clock, by_place

SCHEMA = pa.schema(
    [
        ("__topic", pa.string()),
        ("__partition", pa.int32()),
        ("__timestamp", pa.int64()),
        ("__reason", pa.string()),
        ("__turn", pa.int64()),
        ("__time", pa.int64()),
    ]
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "__topic": st.sampled_from(["s", "t"]),
            "__partition": st.integers(0, 2),
            "__timestamp": st.integers(0, 50),
            "__reason": st.sampled_from([None, None, "null_key_column"]),
        }
    ),
    max_size=15,
)
starts = st.dictionaries(st.tuples(st.sampled_from(["s", "t"]), st.integers(0, 2)), st.integers(-1, 60))


@given(rows, starts, st.integers(1, 6))
def test_row_has_the_stream_time_before_it(
    given_rows: list[dict[str, Any]], starts: dict[tuple[str, int], int], size: int
) -> None:
    ordered = sorted(given_rows, key=lambda row: (row["__topic"], row["__partition"]))
    table = pa.Table.from_pylist(ordered, SCHEMA)
    clock = Clock(starts)
    timed = [
        row
        for batch in table.to_batches(max_chunksize=size)
        for part in by_place(batch)
        for row in clock.timed(part).to_pylist()
    ]
    assert [(row["__turn"], row["__time"]) for row in timed] == naive(ordered, starts)


def naive(ordered: list[dict[str, Any]], starts: dict[tuple[str, int], int]) -> list[tuple[int, int]]:
    times, turns, expected = dict(starts), {}, []
    for row in ordered:
        place = (row["__topic"], row["__partition"])
        turns[place] = turns.get(place, 0) + 1
        expected.append((turns[place], times.get(place, -1)))
        if row["__reason"] is None:
            times[place] = max(times.get(place, -1), row["__timestamp"])
    return expected
