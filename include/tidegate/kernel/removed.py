"""Records that a `filter` removes: they are counted, and never reach the state."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.rows import REMOVED, TRACE, fill
from tidegate.kernel.tables import made_by_tables

_TRACED = ("hash", "key", "topic", "partition", "offset", "timestamp")
FATE = "removed"
"""The fate of such a record in a trace, and its metric."""


def without_removed(rows: pa.RecordBatch, counts: Counts) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that no filter removes; and the others, which are counted, or None.

    A last record that a changed table has joined again is no record of the input, and counts as `rejoined`.

    Example: of two records and one of kind REMOVED the two come back, and `counts["removed"]` is 1 more.
    """
    kind = rows.column("kind")
    # usually there is none, and then nothing is copied
    if pc.index(kind, REMOVED).as_py() < 0:
        return rows, None
    is_removed = pc.equal(kind, REMOVED)
    removed = rows.filter(is_removed)
    rejoined = pc.sum(made_by_tables(removed)).as_py()
    if rejoined:
        counts["rejoined"] += rejoined
    counts[FATE] += removed.num_rows - rejoined
    return rows.filter(pc.invert(is_removed)), removed


def traces_of_removed(schema: pa.Schema, removed: pa.RecordBatch) -> pa.RecordBatch:
    """Return a trace of each removed record, in the kernel's output `schema`."""
    values = pc.fill_null(json_texts(removed.column("value")), "null")
    columns = {name: removed.column(name) for name in _TRACED}
    columns["at"] = pc.max_element_wise(removed.column("time"), removed.column("timestamp"))
    columns["reason"] = pa.repeat(FATE, removed.num_rows)
    columns["trace"] = pc.binary_join_element_wise('{"value":', values, ',"known":[]}', "")
    return fill(schema, TRACE, columns, removed.num_rows)
