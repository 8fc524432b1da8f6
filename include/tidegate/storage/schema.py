"""The columns of state and outbox, declared once: compute writes them, and readers take their names here.

All state rows share some columns, the identity of an entry, and the rule for its newest row. A row of an
outbox is an emission. `ordinal` gives the order of a key's emissions in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.rows import ENTRY as ENTRY_FIELDS
from tidegate.kernel.rows import POSITION, RECORDED

HASH = "hash"
"""The sort order of state files: the key's hash; in a bounded stage the hash of the topic-partition."""
KEY, LIVE, DUE_AT, PENDING, UPDATED_SEQ = "key", "live", "due_at", "pending", "updated_seq"

ENTRY = (HASH, KEY, "window_start", "window_end")
"""The columns that distinguish entries. A bounded stage has PLACE, too: a key has an entry per
topic-partition.
"""
TOPIC = "topic"
PLACE = (TOPIC, "partition")
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


ORDINAL, REASON, TIMESTAMP, AT, SOURCE, SEQ = "ordinal", "reason", "timestamp", "at", "source", "seq"
"""`timestamp` is the emission's own (epoch ms), `at` when it happened, `source` the chain of positions."""
TURN, PART = "turn", "part"
"""The place of the record that triggered an emission, see `kernel.ordering`: with `at` they give the order of
the emissions of several keys, for stages that read them later.
"""

VALUE, KEY_COLUMNS = "value", "key_columns"
"""Structs: what is emitted, null for a deletion; and the columns that the key was made of."""

WINDOW = ("window_start", "window_end")
"""Epoch ms; null without a window."""

ORDER = (SEQ, KEY, ORDINAL)
"""The sort order of rows of several batches: a key's emissions in the order in which they were emitted."""

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys((HASH, ORDINAL, *WINDOW, TIMESTAMP, AT, TURN, SEQ, RECORDED), pa.int64()),
    **dict.fromkeys((KEY, REASON, SOURCE), pa.string()),
    PART: pa.int32(),
}

SHARED_COLUMNS = pa.schema([(name, _TYPES[name]) for name in (HASH, KEY, *WINDOW, TIMESTAMP, SEQ)])
"""The columns that the outbox of every stage has; its table for other engines begins with them."""


def outbox_schema(
    value: pa.DataType,
    key_columns: pa.DataType,
    payloads: Mapping[str, pa.DataType],
    recorded: bool = False,
) -> pa.Schema:
    """Return the columns of a stage's outbox.

    Args:
        value: the type of the struct `value`, which is null for a deletion.
        key_columns: the type of the struct of the columns that make the key.
        payloads: the columns that its sinks send (`Payload.column`); null for a deletion, unless an envelope
            reports it.
        recorded: whether it has the timestamps that Kafka has of the records that trigger emissions.
    """
    fixed = [*WINDOW, TIMESTAMP, AT, TURN, PART, SOURCE, SEQ, *([RECORDED] if recorded else [])]
    names = [HASH, KEY, ORDINAL, REASON, VALUE, KEY_COLUMNS, *payloads, *fixed]
    types = {**_TYPES, **payloads, VALUE: value, KEY_COLUMNS: key_columns}
    return pa.schema([(name, types[name]) for name in names])


def window_columns(windowed: bool) -> tuple[str, ...]:
    """Return the window's columns if a stage has windows, for readers that show them only then."""
    return WINDOW if windowed else ()


def parts_of(struct: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns in `value` or `key_columns`, by name; all of them are null where the
    struct is null.
    """
    return {field.name: pc.struct_field(struct, field.name) for field in struct.type}


def emission_columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of emissions by name: those of the window, of the key and of the value, of which the
    last one with a name counts.
    """
    window = {name: rows.column(name) for name in WINDOW}
    return {**window, **parts_of(rows.column(KEY_COLUMNS)), **parts_of(rows.column(VALUE))}
