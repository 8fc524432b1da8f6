"""The order in which the records of one key are taken (DESIGN, "Order").

It is that of (topic, partition, turn). Where a key's records sit in several partitions it is
(timestamp, topic, partition, turn) instead, and only those keys are sorted once more. Under a `sequence` the
time of its partition stands in for a record's timestamp: it never goes back, so that the records of a
partition stay in their order, whichever of them are left out between two passes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.grouping import changes, starts
from tidegate.core.rows import RECORD


def in_order(rows: pa.RecordBatch, by: Sequence[str]) -> pa.RecordBatch:
    """The rows, sorted by these columns. Spark sorts them by their hash only, which compares no rows."""
    if _is_sorted(rows, by):
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by]))


def _is_sorted(rows: pa.RecordBatch, by: Sequence[str]) -> bool:
    """Whether no row has to move, which is found much sooner than the order; where nulls go is not told."""
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
    """The rows in their order of application, and how many keys had records in several partitions."""
    start = starts(rows.column("key"))
    moved = _leaves_partition(rows, start)
    if not pc.any(moved).as_py():
        return rows, 0
    key_number = pc.cumulative_sum(start.cast(pa.int64()))
    several = pc.unique(key_number.filter(moved))
    merged = pc.is_in(key_number, value_set=several)
    timestamp = rows.column("timestamp")
    if by_time:
        timestamp = pc.max_element_wise(rows.column("time"), timestamp)
    order = pa.table(
        {
            "key": key_number,
            "kind": rows.column("kind"),
            "seq": rows.column("updated_seq"),
            "timestamp": pc.if_else(merged, timestamp, 0),
            "topic": rows.column("topic"),
            "partition": rows.column("partition"),
            "turn": rows.column("turn"),
            "part": rows.column("part"),
        }
    )
    by = [(name, "ascending") for name in order.column_names]
    return rows.take(pc.sort_indices(order, sort_keys=by)), len(several)


def _leaves_partition(rows: pa.RecordBatch, start: pa.BooleanArray) -> pa.BooleanArray:
    """True at a record whose topic-partition is not that of the key's record before it."""
    elsewhere = pc.or_(changes(rows.column("topic")), changes(rows.column("partition")))
    record = pc.equal(rows.column("kind"), RECORD)
    # the key's state rows come first
    after_record = pc.and_not(pc.and_(record, pc.invert(changes(rows.column("kind")))), start)
    return pc.and_(after_record, elsewhere)


def already_applied(rows: pa.RecordBatch, state: pa.Int64Array) -> pa.BooleanArray:
    """True at a record at or before the position that last changed its key's state.

    `state` holds, per row, the number of the key's state row, or null.
    """
    same_partition = pc.and_(
        pc.equal(rows.column("topic"), rows.column("topic").take(state)),
        pc.equal(rows.column("partition"), rows.column("partition").take(state)),
    )
    not_after = pc.less_equal(rows.column("offset"), rows.column("offset").take(state))
    return pc.fill_null(pc.and_(same_partition, not_after), False)
