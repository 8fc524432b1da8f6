"""Whole topic-partitions, their rows brought together by key: as bounded buffers are decided on columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar.keys import Ints, Keys, Lines, mask
from tidegate.core.grouping import starts
from tidegate.core.stage import Batch


def by_key(rows: pa.RecordBatch, batch: Batch) -> Keys:
    """The keys of each partition, in the order of their texts; each key's rows stay in theirs."""
    moved = pc.or_(starts(rows.column("topic")), starts(rows.column("partition")))
    line = np.cumsum(mask(moved)) - 1
    rank, keys = _ranks(rows.column("key"))
    number = line * keys + rank
    # of small numbers NumPy makes a radix sort
    order = np.argsort(number.astype(np.min_scalar_type(number.max())), kind="stable")
    begins = np.diff(number[order], prepend=-1) != 0
    return Keys(_arranged(rows, pa.array(order)), batch, begins, Lines(line, order))


def _arranged(rows: pa.RecordBatch, order: pa.Int64Array) -> pa.RecordBatch:
    """The rows in this order. What is null altogether stays: without state half of the columns are."""
    columns = [column if column.null_count == len(column) else column.take(order) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _ranks(keys: pa.StringArray) -> tuple[Ints, int]:
    """Per row, how many texts come before its own; and how many there are."""
    encoded = keys.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()], len(rank)
