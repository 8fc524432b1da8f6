"""Quarantined rows on their way through the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.kernel.rows_for_tests import SCHEMA, Record, record_row
from tidegate import kernel

UNUSABLE = {
    "kind": kernel.QUARANTINED,
    "hash": 0,
    "topic": "in",
    "partition": 0,
    "offset": 9,
    "input": {"reason": "malformed"},
}


@pytest.mark.parametrize("usable", [0, 1])
def test_entries_are_emitted_before_further_rows_are_read(usable: int) -> None:
    """They are whole records: those of a task together may be larger than its memory."""
    record = record_row(Record("k", {"a": 1.0, "b": "x"}, 0, 0, 1_000))
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(3):
            taken += 1
            yield pa.RecordBatch.from_pylist([UNUSABLE, *[record] * usable], schema=SCHEMA)

    came_out = [
        (taken, rows.num_rows)
        for rows in kernel.decide(kernel.Stage(kernel.Latest(), kernel.Update()), batches())
        if rows.column("kind")[0].as_py() == kernel.QUARANTINED
    ]
    assert came_out == [(1, 1), (2, 1), (3, 1)]
