"""The columns that all state rows share, the identity of an entry, and the rule for its newest row. Readers,
compaction, lookups and views use these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.rows import ENTRY as ENTRY_FIELDS
from tidegate.kernel.rows import POSITION

HASH = "hash"
"""The sort order of state files: the key's hash; in a bounded stage the hash of the topic-partition."""
KEY, LIVE, DUE_AT, PENDING, UPDATED_SEQ = "key", "live", "due_at", "pending", "updated_seq"

ENTRY = (HASH, KEY, "window_start", "window_end")
"""The columns that distinguish entries. A bounded stage has PLACE, too: a key has an entry per
topic-partition.
"""
PLACE = ("topic", "partition")
NEWNESS = (UPDATED_SEQ, *PLACE)
"""The order of age of an entry's rows: the row with the largest values counts, compared in this order."""
TIMERS = (*PLACE, DUE_AT, PENDING)
"""The columns that decide whether an entry's timer fires: its partition's time, or that it holds an emission
back.
"""

_KEYED = [(HASH, pa.int64()), (KEY, pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64())]
_PLACED = [("topic", pa.string()), ("partition", pa.int32())]
STATE_COLUMNS = pa.schema([*_KEYED, *_PLACED, (LIVE, pa.bool_()), (UPDATED_SEQ, pa.int64())])
"""The columns that state files of every stage have; tables for other engines begin with them."""


def state_schema(values: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of a stage's state files; `values` are the columns that it stores of an entry's
    value.
    """
    fields = [pa.field(HASH, pa.int64()), pa.field(KEY, pa.string()), *values, *POSITION]
    fields += [pa.field("timestamp", pa.int64()), pa.field("source", pa.string()), *ENTRY_FIELDS]
    return pa.schema([*fields, pa.field(UPDATED_SEQ, pa.int64())])


Hashes = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[np.int64]


def entry_columns(by_place: bool) -> tuple[str, ...]:
    """Return the columns that distinguish a stage's entries; `by_place`: its buffer is bounded."""
    return ENTRY + PLACE if by_place else ENTRY


def newest_rows(rows: pa.Table, entry: Sequence[str] = ENTRY) -> pa.Table:
    """Return the newest row of each entry, sorted by entry.

    Most hashes have one row: more columns are compared only for hashes that several rows share.
    """
    # `take` is much faster on one chunk than on many
    rows = rows.combine_chunks()
    hashes: Hashes = rows[HASH].to_numpy()
    order = np.argsort(hashes, kind="stable")
    repeated = np.diff(hashes[order]) == 0
    if repeated.any():
        shared = np.append(repeated, False) | np.append(False, repeated)
        order = np.concatenate([order[~shared], _newest_among(rows, order[shared], entry)])
        order = order[np.argsort(hashes[order], kind="stable")]
    # Rows that are sorted and distinct already, as in a single file, need no copy.
    elif (np.diff(order) == 1).all():
        return rows
    return rows.take(pa.array(order))


def _newest_among(rows: pa.Table, candidates: RowNumbers, entry: Sequence[str]) -> RowNumbers:
    """Return the numbers of the rows that are the newest of their entry among `candidates`, in the order of
    entries.
    """
    columns = list(dict.fromkeys((*entry, *(name for name in NEWNESS if name in rows.column_names))))
    compared = rows.select(columns).take(pa.array(candidates)).combine_chunks()
    by_age = pc.sort_indices(compared, sort_keys=[(name, "ascending") for name in columns])
    same = np.ones(len(candidates) - 1, bool)
    for name in entry:
        column = compared[name].take(by_age).combine_chunks()
        preceding, following = column.slice(0, len(same)), column.slice(1)
        # Two nulls, as the window of an entry without windows, are the same entry; Arrow's `equal` says null.
        equal = pc.fill_null(pc.equal(preceding, following), False)
        both_null = pc.and_(preceding.is_null(), following.is_null())
        same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    newest: RowNumbers = candidates[by_age.to_numpy()[np.append(~same, True)]]
    return newest
