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
    """The values of one Arrow batch of rows. `held` and `output` references: None stands for nothing."""

    null: Sequence[bool]
    """Per row, whether its value is null."""

    def fold(self, held: Any, row: int) -> Any:
        """What is held with the row's record folded in. Raises RecordFailed, and leaves `held` as it was."""
        ...

    def output(self, held: Any) -> Any:
        """What would go out; does not change when `held` is folded on."""
        ...

    def merge(self, older: Any, newer: Any) -> Any:
        """What two sessions hold together."""
        ...

    def mark(self, held: Any) -> Any:
        """What `undo` needs, however `held` is folded on."""
        ...

    def undo(self, mark: Any) -> Any:
        """What was held when the mark was made."""
        ...

    def restore(self, row: int) -> tuple[Any, Any]:
        """What a state row holds, and what it last emitted."""
        ...

    def field(self, name: str) -> Callable[[Any], Any]:
        """Reads one column of an output."""
        ...

    def type_of(self, name: str) -> pa.DataType:
        """The type of one column of an output."""
        ...

    def size(self, held: Any) -> int:
        """Bytes of what is held, as the JSON text that would go out."""
        ...

    def event_size(self, row: int) -> int:
        """Bytes of the row's own value as JSON text."""
        ...

    def held_array(self, held: Sequence[Any]) -> pa.Array:
        """As a column `held`."""
        ...

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """As a column `value` or `emitted`."""
        ...


class Reduce(Protocol):
    """A way to fold."""

    @property
    def takes_nulls(self) -> bool:
        """Whether a null value deletes; otherwise it is ignored."""
        ...

    def held_type(self, value: pa.DataType) -> pa.DataType:
        """The type of what is held, for records with these columns."""
        ...

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """The type of what goes out."""
        ...

    def bind(self, rows: pa.RecordBatch) -> Values:
        """The values of these rows."""
        ...


__all__ = ["Aggregate", "Aggregates", "Collect", "Latest", "Reduce", "Values"]
