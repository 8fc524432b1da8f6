"""What each emission replaces: the value that its entry emitted before, for sinks that send both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.rows import EMISSION, STATE, Ints, with_column

_ENTRY = ("key", "window_start", "window_end")


def with_before(rows: pa.RecordBatch, decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the decided rows; each emission gets in `emitted` the value that its entry emitted before.

    It is null if the entry had emitted nothing, or a deletion. An entry's state must have what it emitted,
    not a hash of it (`Stage.remembers_emitted`).

    Args:
        rows: the rows that were decided, of whole keys with their state, in the kernel's order.
        decided: the rows that came out of the kernel; each entry's emissions in the kernel's order.
    """
    # the emission before can be in another batch, so all of them must be decided first
    batches = list(decided)
    numbers = [number for number, batch in enumerate(batches) if _is_emitted(batch)]
    if not numbers:
        yield from batches
        return
    state = rows.filter(pc.equal(rows.column("kind"), STATE))
    before = _before(state, [batches[number] for number in numbers])
    start = 0
    for number in numbers:
        batch = batches[number]
        batches[number] = with_column(batch, "emitted", before.slice(start, batch.num_rows))
        start += batch.num_rows
    yield from batches


def _is_emitted(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows and batch.column("kind")[0].as_py() == EMISSION)


def _before(state: pa.RecordBatch, emissions: Sequence[pa.RecordBatch]) -> pa.Array:
    """Return the value before each emission, in the order of the emissions."""
    # state first: an entry's first emission replaces what its state has emitted
    emitted = pa.concat_arrays([state.column("emitted"), *(batch.column("value") for batch in emissions)])
    order, starts = _by_entry([state, *emissions])
    before = np.empty(len(order), np.int64)
    # per row, the row of its entry before it; -1 for an entry's first row
    before[order] = np.concatenate([[-1], order[:-1]])
    before[order[starts]] = -1
    previous = before[state.num_rows :]
    return emitted.take(pa.array(previous, mask=previous < 0))


def _by_entry(batches: Sequence[pa.RecordBatch]) -> tuple[Ints, Ints]:
    """Return the rows sorted by entry, stably, and where each entry starts."""
    # codes, since NumPy cannot sort texts and nulls together
    columns = [_numbers(pa.concat_arrays([batch.column(name) for batch in batches])) for name in _ENTRY]
    order = np.lexsort(columns)  # a stable sort: an entry's rows keep their order
    changed = np.zeros(len(order), bool)
    changed[:1] = True
    for column in columns:
        sorted_ = column[order]
        changed[1:] |= sorted_[1:] != sorted_[:-1]
    return order, np.flatnonzero(changed)


def _numbers(values: pa.Array) -> Ints:
    """Return a number for each distinct value, null included."""
    codes = values.dictionary_encode().indices
    return np.asarray(pc.fill_null(codes.cast(pa.int64()), -1))
