"""The kernel on whole columns, where that says the same as record by record (`folding`), only sooner.

Tests hold the two ways against each other, and both against a model that shares nothing with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from tidegate.core.columnar import latest
from tidegate.core.counts import Counts
from tidegate.core.stage import Batch, Stage

Way = Callable[[Stage, Batch, pa.Schema, pa.RecordBatch, Counts], Iterator[pa.RecordBatch]]
"""Decides rows of whole keys: gives emissions and state, sorted by hash."""


def way(stage: Stage, batch: Batch, value: pa.StructType) -> Way | None:
    """How a stage decides its rows on columns; None: it cannot. `value`: the records' columns."""
    return latest.fold_columns if latest.suits(stage, batch, value) else None
