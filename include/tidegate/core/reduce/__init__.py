"""Reduces: how records fold into a value. One file each.

A `Reduce` declares the types that it makes. Bound to rows, it gives `Values`, which fold by row number, with
references to values that only they understand, so that most values never leave Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tidegate.core.reduce.aggregates import Aggregate, Aggregates
from tidegate.core.reduce.collect import Collect
from tidegate.core.reduce.latest import Latest


class Values(Protocol):
    """The values of one Arrow batch of rows.

    An accumulator is the fold of an entry's records; an output is what would be emitted of it. Both are
    references that only the reduce itself can read, and None means nothing. `row` counts from 0.
    """

    null: Sequence[bool]
    """Per row, whether its value is null."""

    def fold(self, accumulator: Any, row: int) -> Any:
        """Return the accumulator with the row's record folded in, in place or as a new one; None begins one.

        Raises RecordFailed, and leaves `accumulator` as it was.
        """
        ...

    def output(self, accumulator: Any) -> Any:
        """Return what would be emitted; it does not change when `accumulator` is folded on."""
        ...

    def merge(self, older: Any, newer: Any) -> Any:
        """Return the accumulator of two sessions that become one. Raises RecordFailed as `fold` does."""
        ...

    def mark(self, accumulator: Any) -> Any:
        """Return what `undo` needs, in constant time, however large the accumulator is."""
        ...

    def undo(self, mark: Any) -> Any:
        """Return the accumulator as it was when the mark was made."""
        ...

    def restore(self, row: int) -> tuple[Any, Any]:
        """Return (accumulator, last output) of a state row."""
        ...

    def field(self, name: str) -> Callable[[Any], Any]:
        """Return a function that reads one column of an output."""
        ...

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of one column of an output."""
        ...

    def size(self, accumulator: Any) -> int:
        """Return the bytes (UTF-8) of the accumulator, as the JSON text that would be emitted; 0 for None."""
        ...

    def event_size(self, row: int) -> int:
        """Return the bytes (UTF-8) of the row's own value as JSON text."""
        ...

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """Return accumulators as the column `accumulator` of state rows, of the type
        `Reduce.accumulator_type`.
        """
        ...

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """Return outputs as a column `value` or `emitted`, of the type `Reduce.output_type`."""
        ...


class Reduce(Protocol):
    """A way to fold records into a value: settings, from which `bind` makes `Values` for each Arrow batch."""

    @property
    def takes_nulls(self) -> bool:
        """Whether a null value deletes; otherwise it is ignored."""
        ...

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of the column `accumulator`, for records with these columns."""
        ...

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of emissions."""
        ...

    def bind(self, rows: pa.RecordBatch) -> Values:
        """Return the values of these rows."""
        ...


__all__ = ["Aggregate", "Aggregates", "Collect", "Latest", "Reduce", "Values"]
