"""The rows that a change of an Iceberg table adds and removes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThanOrEqual,
)

from tidegate.ledger import Stream
from tidegate.storage.schema import KEY, SEQ

STREAM = "stream"
"""The column with the pipeline and its generation, which tells apart the rows of several streams."""
_ROW = "row"


@dataclass(frozen=True)
class Removal:
    """Rows that a change removes.

    Args:
        files: The files that can have such rows.
        columns: The columns that decide whether a row is one.
        rows: Returns for each row, by these columns, whether it is removed.
    """

    files: BooleanExpression
    columns: tuple[str, ...]
    rows: Callable[[pa.Table], pa.ChunkedArray]


def newest_rows(rows: pa.Table, deleted: pa.ChunkedArray, entry: Sequence[str]) -> tuple[Removal, pa.Table]:
    """Return what an upsert changes: the removal of all entries, and the last row of those that are not
    deleted.

    Args:
        rows: The emissions of a batch, in order.
        deleted: For each of them, whether it is a deletion.
        entry: The columns that identify a key, or a key's window.
    """
    numbered = rows.select(entry).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    entries = numbered.group_by(list(entry)).aggregate([(_ROW, "max")])
    newest = entries[f"{_ROW}_max"].combine_chunks().sort()
    live = newest.filter(pc.invert(deleted.take(newest)))
    return _entries(entries.select(entry)), rows.take(live)


def _entries(entries: pa.Table) -> Removal:
    names = entries.column_names

    def are_entries(rows: pa.Table) -> pa.ChunkedArray:
        numbers = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.select(names).append_column(_ROW, numbers)
        return pc.is_in(numbers, numbered.join(entries, names, join_type="left semi")[_ROW])

    return Removal(_between(entries[KEY]), tuple(names), are_entries)


def rows_of_keys(keys: pa.ChunkedArray, pipeline: str) -> Removal:
    """Return the removal of all rows of keys that any generation of a pipeline has written."""
    # A table can be that of several pipelines, whose keys of the same text are others.
    return Removal(
        _between(keys),
        (KEY, STREAM),
        lambda rows: pc.and_(pc.is_in(rows[KEY], keys), pc.starts_with(rows[STREAM], pattern=f"{pipeline}/")),
    )


def rows_after(stream: Stream, seq: int) -> Removal:
    """Return the removal of a stream's rows of batches after `seq`."""
    name = str(stream)
    return Removal(
        And(EqualTo(STREAM, name), GreaterThan(SEQ, seq)),
        (STREAM, SEQ),
        lambda rows: pc.and_(pc.equal(rows[STREAM], name), pc.greater(rows[SEQ], seq)),
    )


def _between(keys: pa.ChunkedArray) -> BooleanExpression:
    """Return the condition for files with one of the keys.

    PyIceberg compares the statistics of files with 200 values at most.
    """
    bounds = pc.min_max(keys).as_py()
    if bounds["min"] is None:
        return AlwaysFalse()
    return And(GreaterThanOrEqual(KEY, bounds["min"]), LessThanOrEqual(KEY, bounds["max"]))
