"""The order in which the records of one key are taken (docs/semantics.md, "Order"), and that of emissions.

Records are taken in the order (topic, partition, turn). Where a key's records sit in several partitions the
order is (timestamp, topic, partition, turn), and only those keys are sorted once more. Under a `sequence` the
time of its partition replaces a record's timestamp: it never goes back, so that the records of a partition
keep their order, whichever of them are left out between two passes. In a later stage a record is an emission
of the stage before, and its rank replaces its timestamp.

Emissions have the order of their ranks: (instant, turn, part, key, ordinal). One process that takes a
partition record by record, and after each record fires all timers that are due by (due, key, window), emits
in that order, once its emissions are sorted by when they happened. Of one instant come first the emissions of
the record with which its partition's time reaches the instant, then those of the timers that waited for it,
then those of each later record. Values of several keys that one record evicts come key by key, whichever of
them is due first. So a task can rank the emissions of its keys without those of other keys, and
the ranks of a batch do not depend on where the batch begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import MemoryExhausted
from tidegate.kernel.rows import FIRST, LAST, RANK, RECORD, RECORDED, TIMER, Ints, ints, with_column
from tidegate.kernel.tables import made_by_tables

_BEFORE_ALL = -(2**63)
"""Sorts before all timestamps."""


def in_order(rows: pa.RecordBatch, by: Sequence[str]) -> pa.RecordBatch:
    """Return the rows, sorted by these columns. Spark sorts them by their hash only, which
    compares no rows.

    Args:
        by: Column names, the most significant first; see `order`.
    """
    if _is_sorted(rows, by):
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by]))


def order_of_hashes(hashes: Ints) -> Ints:
    """Return the numbers of rows in the order of their hashes; rows of one hash keep their order.

    Example: the hashes 7, 3, 7 give `[1, 0, 2]`.
    """
    # NumPy sorts numbers several times faster than it finds their order: so each gets its row as lower bits
    lower = (1 << len(hashes).bit_length()) - 1
    order: Ints = np.sort((hashes & ~lower) | np.arange(len(hashes))) & lower
    in_order_ = hashes[order]
    if (in_order_[1:] >= in_order_[:-1]).all():
        return order
    # rare: two hashes differ in the lower bits only
    return np.argsort(hashes, kind="stable")


def _is_sorted(rows: pa.RecordBatch, by: Sequence[str]) -> bool:
    """Return whether rows are sorted, much faster than sorting; False if a column has nulls."""
    tied: pa.BooleanArray | None = None
    for column in map(rows.column, by):
        if column.null_count:
            return False
        before, after = column.slice(0, max(rows.num_rows - 1, 0)), column.slice(1)
        falls, same = pc.greater(before, after), pc.equal(before, after)
        if pc.any(falls if tied is None else pc.and_(falls, tied)).as_py():
            return False
        tied = same if tied is None else pc.and_(same, tied)
    return True


def merge_partitions(rows: pa.RecordBatch, by_time: bool = False) -> tuple[pa.RecordBatch, int]:
    """Return the rows in the order in which they are applied, and the number of keys in several partitions.

    `by_time`: the time of its partition replaces a record's timestamp.

    Args:
        rows: Rows of whole keys, sorted as `rows.BY_KEY`.
    """
    start = starts(rows.column("key"))
    moved = _leaves_partition(rows, start)
    # usually each key is in one partition, and its rows are in order already
    if not pc.any(moved).as_py():
        return rows, 0
    key_number = pc.cumulative_sum(start.cast(pa.int64()))
    several = pc.unique(key_number.filter(moved))
    merged = pc.is_in(key_number, value_set=several)
    across = _across_partitions(rows, by_time)
    order = pa.table(
        {
            "key": key_number,
            "kind": rows.column("kind"),
            "seq": rows.column("updated_seq"),
            # null for all other keys: there only topic, partition and turn decide
            **{name: pc.if_else(merged, column, None) for name, column in across.items()},
            "topic": rows.column("topic"),
            "partition": rows.column("partition"),
            "turn": rows.column("turn"),
            "part": rows.column("part"),
        }
    )
    by = [(name, "ascending") for name in order.column_names]
    return rows.take(pc.sort_indices(order, sort_keys=by)), len(several)


def _across_partitions(rows: pa.RecordBatch, by_time: bool) -> dict[str, pa.Array]:
    """Return the columns that order the records of a key across partitions."""
    if "rank" in rows.schema.names:
        return {f"rank.{field.name}": pc.struct_field(rows.column("rank"), field.name) for field in RANK}
    timestamp = rows.column("timestamp")
    if by_time:
        timestamp = pc.max_element_wise(rows.column("time"), timestamp)
    return {"timestamp": pc.if_else(made_by_tables(rows), _BEFORE_ALL, timestamp)}


def _leaves_partition(rows: pa.RecordBatch, start: pa.BooleanArray) -> pa.BooleanArray:
    """Return True at a record whose topic-partition differs from that of its key's record before it."""
    elsewhere = pc.or_(changes(rows.column("topic")), changes(rows.column("partition")))
    record = pc.equal(rows.column("kind"), RECORD)
    # the key's state rows come first
    after_record = pc.and_not(pc.and_(record, pc.invert(changes(rows.column("kind")))), start)
    return pc.and_(after_record, elsewhere)


def already_applied(rows: pa.RecordBatch, state: pa.Int64Array) -> pa.BooleanArray:
    """Return True at a record at or before the position that last changed its key's state.

    `state` has per row the number of the key's state row, or null.

    Args:
        rows: Records and state rows, with their positions.
    """
    same_partition = pc.and_(
        pc.equal(rows.column("topic"), rows.column("topic").take(state)),
        pc.equal(rows.column("partition"), rows.column("partition").take(state)),
    )
    not_after = pc.less_equal(rows.column("offset"), rows.column("offset").take(state))
    return pc.fill_null(pc.and_(same_partition, not_after), False)


def turns_of(values: Callable[[str, Ints], pa.Array], cause: Ints) -> dict[str, pa.Array]:
    """Return the columns `turn` and `part` of emissions.

    `cause` is per emission the row of the record that triggers it, or what replaces the record's turn: TIMER,
    LAST, or `first_by` of the record's row for FIRST. `values(column, rows)` reads rows.

    Args:
        values: Returns a column at row numbers.
        cause: One element per emission.
    """
    by_record = (cause >= 0) & (cause < LAST)
    if not by_record.any():
        turn = np.where(cause < FIRST, FIRST, cause)
        return {"turn": pa.array(turn), "part": pa.repeat(pa.scalar(0, pa.int32()), len(cause))}
    row = np.where(by_record, cause, 0)
    turn, part = (ints(values(name, row)) for name in ("turn", "part"))
    return {
        "turn": pa.array(np.where(by_record, turn, np.where(cause < FIRST, FIRST, cause))),
        "part": pa.array(np.where(by_record, part, 0)),
    }


def recorded_of(values: Callable[[str, Ints], pa.Array], cause: Ints, at: Ints) -> pa.Int64Array:
    """Return the column `recorded` of emissions: Kafka's timestamp of the record that triggers each of them;
    without a record, when it happened.

    Args:
        values: Returns a column at row numbers.
        cause: One element per emission, as for `turns_of`.
        at: When each emission happened, epoch ms.
    """
    row = np.where(cause <= FIRST, FIRST - cause, cause)
    by_record = (cause != TIMER) & (cause != LAST)
    if not by_record.any():
        return pa.array(at)
    recorded = values(RECORDED, np.where(by_record, row, 0))
    return pc.if_else(pa.array(by_record), recorded, pa.array(at))


def ranked(emissions: pa.RecordBatch, by_partition: bool) -> pa.RecordBatch:
    """Return emissions of whole keys, in their order, with `instant`, `turn` and `part`.

    Within a key (`by_partition`: a key and topic-partition) these never fall: an emission that would rank
    below an earlier one gets that one's rank. A timer can be due before the record that its key emits first,
    if time has come to the timer with that record.

    Args:
        emissions: Rows of kind EMISSION, with `at`, `turn` and `part`.
    """
    columns = [ints(emissions.column(name)) for name in ("at", "turn", "part")]
    group = _group_numbers(emissions, ("key", "topic", "partition") if by_partition else ("key",))
    order = np.argsort(group, kind="stable")
    # ranks rarely fall, and finding that out needs no sort by value
    if _falls([group[order], *(column[order] for column in columns)]):
        source = _highest_before(group, columns, order)
        columns = [column[source] for column in columns]
    for name, column in zip(("instant", "turn", "part"), columns, strict=True):
        emissions = with_column(emissions, name, column)
    return emissions


def _falls(columns: Sequence[Ints]) -> bool:
    """Return whether a row is below the one before it. The first column numbers groups, and never falls; in
    a group the second column decides, then the third, and so on."""
    same = np.equal(columns[0][1:], columns[0][:-1])
    for column in columns[1:]:
        before, now = column[:-1], column[1:]
        if (same & (now < before)).any():
            return True
        same &= now == before
    return False


def _highest_before(group: Ints, columns: Sequence[Ints], order: Ints) -> Ints:
    """Return, per row, a row with the highest values in its group so far. `order`: rows, group by group."""
    by_value = np.lexsort(columns[::-1])
    # a row's place among all values: one number to compare, instead of three columns
    height = np.empty(len(order), np.int64)
    height[by_value] = np.arange(len(order))
    # each group begins above all heights of the groups before it: one running maximum serves all
    base = group[order] * len(order)
    reached = np.empty(len(order), np.int64)
    reached[order] = np.maximum.accumulate(height[order] + base) - base
    return by_value[reached]


def _group_numbers(rows: pa.RecordBatch, by: Sequence[str]) -> Ints:
    """Return the number of each row's group."""
    group = np.zeros(rows.num_rows, np.int64)
    for name in by:
        encoded = rows.column(name).dictionary_encode()
        group = group * len(encoded.dictionary) + ints(encoded.indices)
    return group


ENOUGH_ROWS = 32_768

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
        enough = rows >= ENOUGH_ROWS or size >= _ENOUGH_BYTES
        # only a batch's last group can go on in the next batch, so the cut is before it
        cut = _last_start(batch, pending, by) if enough else None
        if cut is None:
            pending.append(batch)
            continue
        complete = [*pending, batch.slice(0, cut)] if cut else pending
        pending = [batch.slice(cut)]
        rows, size = pending[0].num_rows, _bytes(pending[0])
        if complete:
            yield joined_and_released(complete)
    if pending:
        yield joined_and_released(pending)


def joined_and_released(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches in one. The list is empty then, so that their memory is free."""
    joined = concatenated(batches)
    batches.clear()
    return joined


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches in one.

    Columns that are entirely null share one array per type: without state half of the columns are null, and a
    large array costs the pages that it touches first. Raises MemoryExhausted if a column exceeds 2 GiB.
    """
    if len(batches) == 1:
        return batches[0]
    schema, columns = batches[0].schema, []
    nulls = cache(partial(pa.nulls, number_of_rows(batches)))
    for place, field in enumerate(schema):
        parts = [batch.column(place) for batch in batches]
        is_null = all(part.null_count == len(part) for part in parts)
        columns.append(nulls(field.type) if is_null else _joined(field.name, parts, batches[-1]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def number_of_rows(batches: Sequence[pa.RecordBatch]) -> int:
    """Return the number of the rows of all batches."""
    return sum(batch.num_rows for batch in batches)


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
