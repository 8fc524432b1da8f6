"""How records fold into a value. One unit per way.

A `Reduce` says what types it makes. Bound to rows, it gives `Values`: folding by row number, with references
to values that only it understands, so that most values never leave Arrow.
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

    An accumulator is what the records of an entry are folded into; an output is what would go out of it. Both
    are references that only the unit itself can read, and None stands for nothing. `row` counts from 0.
    """

    null: Sequence[bool]
    """Per row, whether its value is null."""

    def fold(self, accumulator: Any, row: int) -> Any:
        """The accumulator with the row's record folded in, in place or anew; None begins one.

        Raises RecordFailed, and leaves `accumulator` as it was.
        """
        ...

    def output(self, accumulator: Any) -> Any:
        """What would go out; does not change when `accumulator` is folded on."""
        ...

    def merge(self, older: Any, newer: Any) -> Any:
        """The accumulator of two sessions that become one; may raise RecordFailed, as `fold` does."""
        ...

    def mark(self, accumulator: Any) -> Any:
        """What `undo` needs, however `accumulator` is folded on. Costs the same, however large that is."""
        ...

    def undo(self, mark: Any) -> Any:
        """The accumulator as it was when the mark was made."""
        ...

    def restore(self, row: int) -> tuple[Any, Any]:
        """(accumulator, last output) of a state row."""
        ...

    def field(self, name: str) -> Callable[[Any], Any]:
        """Reads one column of an output."""
        ...

    def type_of(self, name: str) -> pa.DataType:
        """The type of one column of an output."""
        ...

    def size(self, accumulator: Any) -> int:
        """Bytes (UTF-8) of the accumulator, as the JSON text that would go out; 0 for None."""
        ...

    def event_size(self, row: int) -> int:
        """Bytes (UTF-8) of the row's own value as JSON text."""
        ...

    def held_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """As the column `held` of state rows, of the type `Reduce.held_type`."""
        ...

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """As a column `value` or `emitted`, of the type `Reduce.output_type`."""
        ...


class Reduce(Protocol):
    """A way to fold records into a value: settings, which `bind` makes `Values` of for each Arrow batch."""

    @property
    def takes_nulls(self) -> bool:
        """Whether a null value deletes; otherwise it is ignored."""
        ...

    def held_type(self, value: pa.DataType) -> pa.DataType:
        """The type of the column `held`, for records with these columns."""
        ...

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """The type of what goes out."""
        ...

    def bind(self, rows: pa.RecordBatch) -> Values:
        """The values of these rows."""
        ...


__all__ = ["Aggregate", "Aggregates", "Collect", "Latest", "Reduce", "Values"]
