"""Bring rows of one key together: whole keys from a stream of batches, and where each key starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import MemoryExhausted

_ENOUGH_ROWS = 32_768
_ENOUGH_BYTES = 8 * 1024 * 1024
_WIDE = ("value", "input", "accumulator", "emitted")


def whole_groups(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, cut so that no group is in two batches, and no batch is needlessly small.

    A group has the same values in the columns `by`; its rows come together. Memory has 32,768 rows or 8 MiB,
    and one batch and the largest group's rows more. An empty batch is passed on at once. Raises
    MemoryExhausted if a group has more text than an Arrow array holds.

    Example: by `key`, batches with the keys `a b` and `b c` become batches that do not separate the two `b`.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            yield batch
            continue
        rows, size = rows + batch.num_rows, size + _bytes(batch)
        enough = rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES
        # only a batch's last group can go on in the next batch, so the cut is before it
        cut = _last_start(batch, pending, by) if enough else None
        if cut is None:
            pending.append(batch)
            continue
        complete = [*pending, batch.slice(0, cut)] if cut else pending
        if complete:
            yield concatenated(complete)
        pending = [batch.slice(cut)]
        rows, size = pending[0].num_rows, _bytes(pending[0])
    if pending:
        yield concatenated(pending)


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches in one.

    Columns that are entirely null share one array per type: without state half of the columns are null, and a
    large array costs the pages that it touches first. Raises MemoryExhausted if a column exceeds 2 GiB.
    """
    if len(batches) == 1:
        return batches[0]
    schema, columns = batches[0].schema, []
    nulls = cache(partial(pa.nulls, sum(batch.num_rows for batch in batches)))
    for place, field in enumerate(schema):
        parts = [batch.column(place) for batch in batches]
        is_null = all(part.null_count == len(part) for part in parts)
        columns.append(nulls(field.type) if is_null else _joined(field.name, parts, batches[-1]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined(name: str, parts: Sequence[pa.Array], last: pa.RecordBatch) -> pa.Array:
    """Return the parts of a column as one array; offsets of texts have 32 bits."""
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid:
        row = {part: last.column(part)[-1].as_py() for part in ("key", "topic", "partition", "offset")}
        raise MemoryExhausted(
            f"The records of the key {str(row['key'])[:100]!r}, the last of which is "
            f"{row['topic']}/{row['partition']}/{row['offset']}, have more than 2 GiB in the column {name}",
            "Let a batch read fewer records (`source.max_records`), or select fewer columns.",
        ) from None


def _bytes(batch: pa.RecordBatch) -> int:
    """Return about the bytes of a batch: the other columns are narrow."""
    return sum(batch.column(name).nbytes for name in _WIDE)


def _last_start(batch: pa.RecordBatch, pending: list[pa.RecordBatch], by: Sequence[str]) -> int | None:
    """Return the row at which the batch's last group starts; None if that group goes on from `pending`."""
    last = batch.slice(batch.num_rows - 1)
    same = _matches(batch, last, by)
    # a group's rows come together: the first row like the last one starts it
    start = int(pc.index(same, True).as_py())
    if start == 0 and pending and _matches(pending[-1].slice(pending[-1].num_rows - 1), last, by)[0].as_py():
        return None
    return start


def _matches(rows: pa.RecordBatch, reference: pa.RecordBatch, by: Sequence[str]) -> pa.BooleanArray:
    masks = [pc.equal(rows.column(name), reference.column(name)[0]) for name in by]
    return masks[0] if len(masks) == 1 else pc.and_(*masks)


def starts(keys: pa.Array) -> pa.BooleanArray:
    """Return True at the first row of each key.

    Example: the keys `a a b` give `[True, False, True]`.
    """
    return changes(keys, first=True)


def changes(values: pa.Array, first: bool = False) -> pa.BooleanArray:
    """Return True where a value differs from the row before; in the first row, `first`.

    Example: the values 1, 1, 2 give `[False, False, True]`.
    """
    rows = len(values)
    return after_first(pc.not_equal(values.slice(1), values.slice(0, max(rows - 1, 0))), rows, first)


def after_first(rest: pa.BooleanArray, rows: int, first: bool = False) -> pa.BooleanArray:
    """Return `first`, then `rest`, which has a value for each row but the first, as a column of
    `rows` rows.

    Example: `[True]` for 2 rows gives `[False, True]`.
    """
    return pa.concat_arrays([pa.array([first]), rest]) if rows else rest


def group_ends(rows: pa.RecordBatch, by: Sequence[str]) -> list[int]:
    """Return the row after the last one of each group.

    Example: the keys `a a b` give `[2, 3]`.
    """
    start = starts(rows.column(by[0]))
    for name in by[1:]:
        start = pc.or_(start, starts(rows.column(name)))
    return [*pc.indices_nonzero(start).to_pylist()[1:], rows.num_rows]


def ends(start: pa.BooleanArray) -> pa.BooleanArray:
    """Return True at the last row of each key.

    Example: starts `[True, False, True]` give `[False, True, True]`.
    """
    if not len(start):
        return start
    return pa.concat_arrays([start.slice(1), pa.array([True])])


def row_numbers(rows: int) -> pa.Int64Array:
    """Return 0, 1, 2 … as int64."""
    return pa.arange(0, rows)


def last_where(mask: pa.BooleanArray, start: pa.BooleanArray) -> pa.Int64Array:
    """Return for each row the number of the last row up to it, in the same key, where `mask` holds; else
    null.

    Example: mask `[T, F, F, F]` and starts `[T, F, T, F]` give `[0, 0, null, null]`.
    """
    # -1 at each key's start, so that no number is carried over from the key before
    marked = pc.if_else(mask, row_numbers(len(mask)), pc.if_else(start, pa.scalar(-1, pa.int64()), None))
    filled = pc.fill_null_forward(marked)
    return pc.if_else(pc.equal(filled, -1), None, filled)
