"""`Once`, the step in front of the stages that lets each value through once."""

from __future__ import annotations

from tests.core.rows_for_tests import Kernel, Record, record_row
from tidegate import core


def record(timestamp: int) -> Record:
    return Record("k", {"a": 1.0, "b": "x"}, 0, timestamp, timestamp)


def test_an_entry_that_is_forgotten_and_comes_again_in_one_batch_has_one_state_row() -> None:
    kernel = Kernel(core.Once(keep_ms=10))
    kernel.apply([record(0)])
    later = record_row(record(20)) | {"time": 15}  # another key's record has moved time past it
    kernel.apply([], extra=[later], times={("in", 0): 20})
    assert [(row["updated_seq"], row["due_at"]) for row in kernel.state] == [(1, 10), (2, 30)]
    kernel.apply([record(25)], times={("in", 0): 25})
    assert len(kernel.emitted_rows) == 2
    assert kernel.counts["deduplicated"] == 1
