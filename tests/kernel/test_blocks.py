"""Topic-partitions of bounded stages that are decided in blocks give what they give as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch
from tests.kernel.model.strategies import Case, cases, histories
from tidegate import errors, kernel
from tidegate.kernel import blocks
from tidegate.kernel.rows import BY_PARTITION

_ENTRY = ("kind", "topic", "partition", "key")


class AllState:
    """A `kernel.PriorState` that gives all rows; also those of topic-partitions without records."""

    last_hash = 2**63 - 1

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.sort_by([(name, "ascending") for name in BY_PARTITION])

    def next_bound(self, up_to: int) -> int:
        return up_to

    def take(self, hashes: np.ndarray, up_to: int, only_keys: pa.StringArray | None) -> pa.RecordBatch:
        del hashes, only_keys
        end = int(np.searchsorted(self._rows["hash"].to_numpy(), up_to, side="right"))
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        return pa.RecordBatch.from_pylist(taken.to_pylist(), taken.schema)


@dataclass
class KernelWithPriorState(Kernel):
    """The kernel with its state beside the rows, as Spark's tasks have it."""

    def _decide_rows(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> list[pa.RecordBatch]:
        prior = AllState(pa.Table.from_pylist(self.state, self.schema))
        return list(kernel.decide(self.stage, self._sorted(records), batch, prior))


def decided(kernel: Kernel, batches: Sequence[Batch]) -> list[Any]:
    """Return all rows of each batch, by entry; or the error that ends the history."""
    all_rows: list[Any] = []
    for batch in batches:
        try:
            kernel.apply(batch)
        except errors.BufferFull as error:
            return [*all_rows, str(error)]
        # an ordinal only orders the emissions of a key in its topic-partition
        in_order = sorted(kernel.rows, key=lambda row: row["ordinal"] or 0)
        by_entry = sorted(in_order, key=lambda row: [str(row[name]) for name in _ENTRY])
        all_rows.append([repr(_compared(row)) for row in by_entry])
    return all_rows


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    # nothing reads when a deletion was emitted: a row that is not live, at which a block can end, lacks it
    emitted_ms = row["emitted_timestamp"] if row["emitted"] is not None else None
    return {**row, "ordinal": None, "counts": _counts(row), "emitted_timestamp": emitted_ms}


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of a row without zeros."""
    counts = json.loads(row["counts"] or "{}")
    return {name: number for name, number in counts.items() if number}


@examples(500)
@given(
    cases(["time_limit"], ["latest"], windows=[None], deduplicates=["offset"], filtered=False),
    histories(),
    st.integers(1, 7),
    st.integers(1, 4),
)
def test_blocks_decide_what_whole_partitions_decide(
    case: Case, batches: list[Batch], arrow_rows: int, block_rows: int
) -> None:
    assume("max_records" in case.stage["emit"].get("buffer", {}))
    whole = decided(Kernel(case, arrow_rows, compacting=True), batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", block_rows)
        assert decided(KernelWithPriorState(case, arrow_rows, compacting=True), batches) == whole
