"""Place rows: each task has one range of hashes, so that no two tasks write or need the same state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

LEAST_HASH, GREATEST_HASH = -(2**63), 2**63 - 1
REPORT, SLOT = "__report", "__slot"
"""The columns of reports: their text, and the slot that they go to; null in all other rows."""
_RECORDS_AT_MOST, _RECORDS_PER_CORE, _STATE_BYTES = 500_000, 10_000, 256_000_000
_HALF = 2**31
"""Slots are computed from a hash's upper 32 bits, so that no product exceeds 64 bits."""


class HashRange(NamedTuple):
    """Hashes from `first` to `last`, both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class Slots:
    """The tasks of a stage: `number` of them, each with the hashes of its range.

    Example: `Slots(2).range(1)` has the hashes from 0 on.
    """

    number: int

    @staticmethod
    def of_batch(records: int, cores: int, state_bytes: int) -> Slots:
        """Return as many slots as a batch needs to fit in memory, and to give each core work if there is
        enough.

        A small batch on a large state gets some, too: it may have to read all of the state.

        Args:
            records: the largest number of records that the batch can read.
            cores: the number of tasks that run at once.
            state_bytes: the size on disk of the largest stage.

        Example: `Slots.of_batch(1_000, 8, 0)` is `Slots(1)`, and `Slots.of_batch(2_000_000, 2, 0)` is
        `Slots(4)`.
        """
        for_records = math.ceil(records / _RECORDS_AT_MOST)
        for_cores = min(cores, math.ceil(records / _RECORDS_PER_CORE))
        return Slots(max(for_records, for_cores, math.ceil(state_bytes / _STATE_BYTES), 1))

    def slot_of(self, hash_: Column) -> Column:
        """Return the slot of a hash."""
        upper = F.shiftright(hash_, 32) + F.lit(_HALF).cast("long")
        return F.shiftright(upper * F.lit(self.number).cast("long"), 32).cast("int")

    def range(self, slot: int) -> HashRange:
        """Return the hashes of a slot."""
        return HashRange(self._first(slot), self._first(slot + 1) - 1)

    def _first(self, slot: int) -> int:
        # Ceiling division: the first upper half that `slot_of` multiplies and shifts to this slot.
        return (-(-slot * 2 * _HALF // self.number) - _HALF) << 32


def arranged(frame: DataFrame, slots: Slots, hash_: Column, order: Sequence[Column | str]) -> DataFrame:
    """Return the rows of each slot in one partition, in order.

    Reports go to the slot that they name, and come first: their sort columns are null, or the least hash.

    Args:
        frame: rows, with reports among them.
        slots: the tasks.
        hash_: the hash that decides the slot of a row.
        order: the order within a slot.
    """
    # `repartition` would hash the number of the slot once more, and let slots share a partition.
    placed = frame.repartitionById(slots.number, F.coalesce(F.col(SLOT), slots.slot_of(hash_)))
    return placed.sortWithinPartitions(*order).drop(SLOT)


def hash_order() -> Column:
    """Sort rows by their hash alone: Spark sorts a single number by radix, which compares no rows."""
    return F.when(F.col(REPORT).isNull(), F.col("hash"))
