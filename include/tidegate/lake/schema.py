"""What state rows have in common: the columns that the lake looks at, what an entry is, and which row of an
entry counts. Readers, compaction, lookups and views ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

HASH = "hash"
"""What state files are sorted by: the key's hash; in a bounded stage that of the topic-partition."""
KEY, LIVE, DUE_AT, UPDATED_SEQ = "key", "live", "due_at", "updated_seq"

ENTRY = (HASH, KEY, "window_start", "window_end")
"""What tells entries apart. In a bounded stage also PLACE: a key has an entry in each topic-partition."""
PLACE = ("topic", "partition")
NEWNESS = (UPDATED_SEQ, *PLACE)
"""Of an entry's rows the one with the largest of these counts, compared in this order."""

Hashes = npt.NDArray[np.int64]


def entry_columns(by_place: bool) -> tuple[str, ...]:
    """The columns that tell a stage's entries apart. `by_place`: its buffer is bounded."""
    return ENTRY + PLACE if by_place else ENTRY


def newest_rows(rows: pa.Table, entry: Sequence[str] = ENTRY) -> pa.Table:
    """The newest row of each entry, sorted by entry.

    Most hashes have one row: only where several share one are more columns compared.
    """
    hashes: Hashes = rows[HASH].to_numpy()
    order = np.argsort(hashes, kind="stable")
    repeated = np.diff(hashes[order]) == 0
    if not repeated.any():
        return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))
    shared = np.append(repeated, False) | np.append(False, repeated)
    newest = _newest_of_shared(rows.take(pa.array(order[shared])), entry)
    together = pa.concat_tables([rows.take(pa.array(order[~shared])), newest])
    return together.take(pa.array(np.argsort(together[HASH].to_numpy(), kind="stable")))


def _newest_of_shared(rows: pa.Table, entry: Sequence[str]) -> pa.Table:
    columns = (*entry, *(name for name in NEWNESS if name not in entry and name in rows.column_names))
    by = [(name, "ascending") for name in columns]
    rows = rows.take(pc.sort_indices(rows, sort_keys=by)).combine_chunks()
    same = np.ones(rows.num_rows - 1, bool)
    for name in entry:
        column = rows[name].combine_chunks()
        here, following = column.slice(0, rows.num_rows - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(here, following), False)
        both_null = pc.and_(here.is_null(), following.is_null())
        same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.append(~same, True)))


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows with the columns of `schema`: what they do not have is null, also fields of a struct."""
    if rows.schema.equals(schema):
        return rows
    return pa.table([_conformed_column(rows, field) for field in schema], schema)


def _conformed_column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    stored = rows[field.name]
    if stored.type == field.type:
        return stored
    if not pa.types.is_struct(field.type):
        return stored.cast(field.type)
    column = stored.combine_chunks()
    parts = [
        pc.struct_field(column, part.name).cast(part.type)
        if column.type.get_field_index(part.name) >= 0
        else pa.nulls(len(column), part.type)
        for part in field.type
    ]
    struct = pa.StructArray.from_arrays(parts, fields=list(field.type), mask=column.is_null())
    return pa.chunked_array([struct])


def merged_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """All columns that any of them has, and all fields of their structs, in the order of first appearance.

    A column has one type in all of a generation's files: an edit may add some, and change none.
    """
    return pa.schema(_merged_fields(field for schema in schemas for field in schema))


def _merged_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    merged: dict[str, pa.Field] = {}
    for field in fields:
        before = merged.get(field.name, field)
        if pa.types.is_struct(field.type) and before.type != field.type:
            field = pa.field(field.name, pa.struct(_merged_fields([*before.type, *field.type])))
            before = field
        merged[field.name] = before
    return list(merged.values())
