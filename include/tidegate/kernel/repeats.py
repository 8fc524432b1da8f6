"""Drop records that repeat the record of their key before them, where they are read: most records of most
topics never reach the kernel then.

The result stays the same if the stage ignores repeated values (`Stage.ignores_repeats`), and if all records
of a key are in one topic-partition: in another one there may be a value between the two. Whoever drops
records therefore checks the kernel's counts afterwards (`has_hidden_values`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts, count_lateness
from tidegate.kernel.equality import any_differs
from tidegate.kernel.ordering import order_of_hashes
from tidegate.kernel.rows import RECORD, Ints, Mask, mask

MOST_REMEMBERED_ROWS, MOST_REMEMBERED_BYTES = 2_000_000, 128 * 1024 * 1024
"""The largest memory of keys; when it is full, it begins anew, and the next record of each key is kept."""
_REMEMBERED = ("hash", "key", "value", "passes")


class Repeats:
    """Drops repeated records of one topic-partition, whose rows come in order.

    Args:
        compared: the columns of values that count for a repetition.
        counts: get what became of the dropped records, as the kernel counts it.

    Example: of a key's values 1, 1, 2, 2, 1 the rows of 1, 2 and 1 stay.
    """

    def __init__(self, compared: tuple[str, ...], counts: Counts) -> None:
        self._compared = compared
        self._counts = counts
        self._last: pa.RecordBatch | None = None

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that do not repeat the row of their key before them, in their order.

        Args:
            rows: the next rows, in the form of the kernel's input.
        """
        own = rows.select([name for name in _REMEMBERED if name in rows.schema.names])
        own = own.append_column("is_record", pc.equal(rows.column("kind"), RECORD))
        before = 0 if self._last is None else self._last.num_rows
        together = own if self._last is None else pa.concat_batches([self._last, own])
        hashes = together.column("hash").to_numpy()
        order = order_of_hashes(hashes)
        follows = np.zeros(len(order), np.bool_)
        follows[1:] = hashes[order[1:]] == hashes[order[:-1]]
        self._remember(together, order, follows)
        # the second of each two rows in question; usually they are fewer than all rows
        second = np.flatnonzero(follows)
        second = second[order[second] >= before]
        repeated = self._repeated(together, order[second - 1], order[second])
        drops = np.zeros(rows.num_rows, np.bool_)
        drops[order[second[repeated]] - before] = True
        if not drops.any():
            return rows
        self._count(rows.filter(pa.array(drops)))
        return rows.filter(pa.array(~drops))

    def _repeated(self, rows: pa.RecordBatch, first: Ints, second: Ints) -> Mask:
        """Return per pair of row numbers whether the second row repeats the first one."""
        rows = rows.drop_columns(["hash"])
        earlier, later = (rows.take(pa.array(numbers)) for numbers in (first, second))
        # two keys can have one hash; of rows in quarantine the key is null
        same = pc.fill_null(pc.equal(earlier.column("key"), later.column("key")), False)
        for side in (earlier, later):
            # a deletion has no value; the value of a record in quarantine is null as well
            same = pc.and_(same, pc.and_(side.column("is_record"), side.column("value").is_valid()))
        if "passes" in rows.schema.names:
            same = pc.and_(same, pc.equal(earlier.column("passes"), later.column("passes")))
        differs = any_differs(earlier.column("value"), later.column("value"), self._compared)
        return mask(pc.and_not(same, differs))

    def _remember(self, rows: pa.RecordBatch, order: Ints, follows: Mask) -> None:
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = ~follows[1:]
        last = rows.take(pa.array(order[is_last]))
        fits = last.num_rows <= MOST_REMEMBERED_ROWS and last.nbytes <= MOST_REMEMBERED_BYTES
        self._last = last if fits else None

    def _count(self, dropped: pa.RecordBatch) -> None:
        counts, number = self._counts, dropped.num_rows
        passing = pc.sum(dropped.column("passes")).as_py() if "passes" in dropped.schema.names else number
        counts["used"] += number
        counts["idempotent-update-skip"] += passing
        counts["filtered"] += number - passing
        if "time" in dropped.schema.names:
            count_lateness(dropped, counts)


def has_hidden_values(counts: Mapping[str, int]) -> bool:
    """Return whether there may be a value between two records of which the second was dropped.

    Args:
        counts: the kernel's counts of the stage that got the other records.
    """
    # A record that was applied before counts for nothing, but one that repeats it may count.
    return bool(counts.get("keys-in-several-partitions") or counts.get("deduplicated"))
