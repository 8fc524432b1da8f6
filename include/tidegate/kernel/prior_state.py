"""Merge state with a sorted batch: it comes before the records of its groups, a range of hashes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.grouping import changes
from tidegate.kernel.ordering import in_order

Hashes = npt.NDArray[np.int64]


class PriorState(Protocol):
    """The state that the batches before have left, read once in the order of hashes, up to `last_hash`."""

    last_hash: int

    def next_bound(self, up_to: int) -> int:
        """Return the largest hash, at most `up_to`, up to which `take` needs little memory.

        Args:
            up_to: The largest hash that the caller needs now.
        """

    def take(self, hashes: Hashes, up_to: int) -> pa.RecordBatch:
        """Return the newest state rows of entries up to the hash `up_to` that were not taken before, sorted.

        They have a hash of `hashes` (sorted, distinct), or a timer that the batch reaches.
        """


class _NoState:
    """The state of a first batch, or of rows that contain their state."""

    last_hash = -(2**63)

    def next_bound(self, up_to: int) -> int:
        return up_to

    def take(self, hashes: Hashes, up_to: int) -> pa.RecordBatch:
        del hashes, up_to
        return pa.RecordBatch.from_pylist([], pa.schema([]))


NO_STATE: PriorState = _NoState()


def with_state(
    batches: Iterable[pa.RecordBatch], prior: PriorState, order: Sequence[str], groups: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, each group's state before it; also state of groups without rows, as `prior` gives it.

    No hash is in two of `batches`; input and output are sorted by `order`; `groups` are the columns of rows
    that are decided together. An empty batch is passed on at once.

    Args:
        prior: The state, which is read once, from the least hash to the largest.
        order: The columns of `kernel.order`.
    """
    for rows in batches:
        if not rows.num_rows:
            yield rows
            continue
        hashes = rows.column("hash").to_numpy()
        start, last = 0, int(hashes[-1])
        while start < rows.num_rows:
            # one range of hashes at a time, so that memory does not grow with the state
            bound = prior.next_bound(last)
            end = int(np.searchsorted(hashes, bound, side="right"))
            state = prior.take(np.unique(hashes[start:end]), bound)
            yield from _merged(state, rows.slice(start, end - start), order, groups)
            start = end
    # state of groups without records: their timers may be due. What was taken is not taken again
    bound = -(2**63) - 1
    while bound < prior.last_hash:
        bound = prior.next_bound(prior.last_hash)
        state = prior.take(np.empty(0, np.int64), bound)
        if state.num_rows:
            yield state


def _merged(
    state: pa.RecordBatch, rows: pa.RecordBatch, order: Sequence[str], groups: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if not (state.num_rows and rows.num_rows):
        if state.num_rows or rows.num_rows:
            yield state if state.num_rows else rows
        return
    # state first: a stable sort by hash keeps it before its group's records
    combined = pa.concat_batches([state, rows])
    merged = combined.take(pa.array(np.argsort(combined.column("hash").to_numpy(), kind="stable")))
    if _interleaves(merged, groups):
        merged = in_order(combined, order)
    yield merged


def _interleaves(rows: pa.RecordBatch, groups: Sequence[str]) -> bool:
    """Return whether two groups share a hash, which is rare: then the order of hashes does not
    separate them.
    """
    same_hash = pc.invert(changes(rows.column("hash"), first=True))
    group_changes = [changes(rows.column(name)) for name in groups]
    return any(pc.any(pc.and_(same_hash, moved)).as_py() for moved in group_changes)
