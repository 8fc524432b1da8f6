"""Whole topic-partitions with their rows brought together by key, for bounded buffers on columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columnar.keys import Ints, Keys, Lines, mask
from tidegate.kernel.grouping import starts
from tidegate.kernel.stage import Batch


def by_key(rows: pa.RecordBatch, batch: Batch) -> Keys:
    """Return the keys of each partition in the order of their texts; each key's rows keep their order.

    Args:
        rows: Rows of whole topic-partitions, sorted as `rows.BY_PARTITION`.
    """
    # these rows are sorted by topic-partition, so each change begins a line
    moved = pc.or_(starts(rows.column("topic")), starts(rows.column("partition")))
    line = np.cumsum(mask(moved)) - 1
    rank, keys = _ranks(rows.column("key"))
    # NumPy sorts small integers by radix, which is much faster
    small = np.min_scalar_type((int(line[-1]) + 1) * keys)
    number = line.astype(small) * small.type(keys) + rank.astype(small)
    order = np.argsort(number, kind="stable")
    number = number[order]
    begins = np.append(True, number[1:] != number[:-1])
    return Keys(rows, batch, begins, Lines(line, order))


def _ranks(keys: pa.StringArray) -> tuple[Ints, int]:
    """Return per row the number of texts that sort before its own, and the number of distinct texts."""
    encoded = keys.dictionary_encode()
    # sorts the distinct texts only: a partition has many more rows than keys
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()], len(rank)
