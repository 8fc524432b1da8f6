"""The columns of kernel rows as Python lists, each made when it is first read."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts
from tidegate.kernel.rows import ENTRY, RECORD
from tidegate.kernel.sources import Position, root
from tidegate.kernel.stage import Batch


class Columns:
    """One Arrow batch of rows. `before` is the time of each row's partition before the row, in epoch ms."""

    def __init__(self, rows: pa.RecordBatch, batch: Batch) -> None:
        self._rows = rows
        self._batch = batch
        self.kind = rows.column("kind").to_pylist()
        self.key = rows.column("key").to_pylist()
        self.timestamp = rows.column("timestamp").to_pylist()
        self.before = pc.max_element_wise(rows.column("time"), least_times(rows, batch)).to_pylist()

    @cached_property
    def _topics(self) -> list[str]:
        # a batch has few topics: each name becomes one Python object
        encoded = self._rows.column("topic").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return [names[code] for code in encoded.indices.to_pylist()]

    @cached_property
    def _partitions(self) -> list[int]:
        return self._rows.column("partition").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def offset(self) -> list[int]:
        """The offset of each row in its topic-partition."""
        return self._rows.column("offset").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def passes(self) -> list[bool | None]:
        """Whether `where` accepts the row's own value; None if it was not tested on records."""
        return self._rows.column("passes").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def _chains(self) -> list[str | None]:
        return self._rows.column("source").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def stored(self) -> dict[str, list[Any]]:
        """The columns of state rows about their entries: column -> values."""
        return {field.name: self._rows.column(field.name).to_pylist() for field in ENTRY}

    def position(self, row: int) -> Position:
        """Return (topic, partition, offset) of the row's record."""
        return self._topics[row], self._partitions[row], self.offset[row]

    def value(self, row: int) -> Any:
        """Return the row's own value."""
        return self._rows.column("value")[row].as_py()

    def root(self, row: int) -> Position:
        """Return the position of the record that the row's record originally comes from.

        Example: the chain `orders/0/7;totals/1/3` gives `("orders", 0, 7)`.
        """
        chain = self._chains[row]
        return self.position(row) if chain is None else root(chain)

    def end(self, row: int) -> int:
        """Return the time of the row's partition at the end of the batch, epoch ms."""
        return self._batch.ends.get((self._topics[row], self._partitions[row]), self._batch.least_end)


def least_times(rows: pa.RecordBatch, batch: Batch) -> pa.Int64Array | pa.Int64Scalar:
    """Return per row the largest clock that was applied to its topic-partition before; a scalar if all are
    equal.

    Args:
        rows: Rows with the columns `topic` and `partition`.
        batch: Has `floor` and `clocks`.
    """
    floor = pa.scalar(batch.floor, pa.int64())
    if all(clock == batch.floor for clock in batch.clocks.values()):
        return floor
    topics, partitions = zip(*batch.clocks, strict=True)
    text = rows.schema.field("topic").type
    names = pa.array(sorted(set(topics)), text)

    # a topic-partition as one number: `index_in` looks up one column only
    def numbers(topic: pa.Array, partition: pa.Array) -> pa.Int64Array:
        number = pc.index_in(topic, value_set=names).cast(pa.int64())
        return pc.add(pc.multiply(number, 2**32), partition.cast(pa.int64()))

    clocked = numbers(pa.array(topics, text), pa.array(partitions))
    place = pc.index_in(numbers(rows.column("topic"), rows.column("partition")), value_set=clocked)
    return pc.fill_null(pa.array(list(batch.clocks.values()), pa.int64()).take(place), floor)


def count_lateness(rows: pa.RecordBatch, counts: Counts) -> None:
    """Count how far records are behind the time of their partition, in ms: 0 for records that advance it.

    Args:
        counts: Gets number, sum and largest lateness; null times do not count.
    """
    record = pc.equal(rows.column("kind"), RECORD)
    behind = pc.subtract(rows.column("time"), rows.column("timestamp")).filter(record).drop_null()
    if len(behind):
        lateness = pc.max_element_wise(behind, pa.scalar(0, pa.int64()))
        counts["record-lateness-count"] += len(lateness)
        counts["record-lateness-sum"] += pc.sum(lateness).as_py()
        counts.include({"record-lateness-max": pc.max(lateness).as_py()})
