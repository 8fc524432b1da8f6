"""Explode a column of lists: one row for each element, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PART, EMPTY = "__part", "__empty"
_MOST_BYTES = 64 * 1024 * 1024
"""The bytes of rows in one piece. Each row counts as its whole record, since that is what a row copies at
most.
"""


def explode(rows: pa.RecordBatch, name: str, sizes: pa.Int64Array) -> Iterator[pa.RecordBatch]:
    """Yield rows with the elements of the column `name` in place of the list, and PART, the index in the
    list.

    A list that is null or empty gives one row, with a null element and EMPTY.

    Args:
        sizes: The bytes of each row's record, which limit the size of a piece: a record of a megabyte with
            ten thousand elements would take 10 GB in one piece.
    """
    lists = rows.column(name)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    repeats = np.maximum(lengths, 1)
    parents = np.repeat(np.arange(rows.num_rows), repeats)
    parts = np.arange(len(parents)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    empty = lengths[parents] == 0
    # `flatten` leaves out empty and null lists, whose rows get a null element
    places = pa.array(np.cumsum(~empty) - 1, mask=empty)
    elements = lists.flatten()
    for piece in _pieces(sizes.to_numpy()[parents]):
        # a piece at a time: each element's row copies its whole record
        columns = dict(zip(rows.schema.names, rows.take(pa.array(parents[piece])).columns, strict=True))
        columns[name] = elements.take(places[piece])
        columns |= {PART: pa.array(parts[piece].astype(np.int32)), EMPTY: pa.array(empty[piece])}
        yield pa.RecordBatch.from_pydict(columns)


def _pieces(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Yield slices of consecutive rows with at most `_MOST_BYTES`; a larger row is alone."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start] - sizes[start]
        end = max(int(np.searchsorted(ends, before + _MOST_BYTES, side="right")), start + 1)
        yield slice(start, end)
        start = end
