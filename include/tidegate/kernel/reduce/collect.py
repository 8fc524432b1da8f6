"""`reduce: collect`: the records since the last flush, in order. References are lists of places in a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.json_text import encoder
from tidegate.kernel.values import Reduce

EVENTS = "events"


@dataclass(frozen=True)
class Collect(Reduce):
    """`{"events": [...]}`, in the order of the records; a flush removes what it emits."""

    lists_events: ClassVar[bool] = True

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        """Return a list of the records' columns, as the struct's field `events`."""
        return pa.struct([(EVENTS, pa.list_(value))])

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of the accumulator: it is emitted as it is."""
        return self.accumulator_type(value)

    def bind(self, rows: pa.RecordBatch) -> CollectValues:
        """Return the values of these rows."""
        return CollectValues(rows)


def events_overhead(events: int) -> int:
    """Return the bytes of the value's JSON text that are not its events': `{"events":[…,…]}`.

    Example: it is 13 without events, and 14 for two, with their comma.
    """
    return len('{"":[]}') + len(EVENTS) + max(0, events - 1)


class CollectValues:
    """Values in a pool: row i's record is at i; the events of state rows come after all rows."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        values = rows.column("value")
        self.null = values.is_null().to_pylist()
        events = pc.struct_field(rows.column("accumulator"), EVENTS)
        lengths = pc.fill_null(pc.list_value_length(events), 0).to_pylist()
        # the pool has one value per row, and behind them the events of state rows
        self._ends = list(accumulate(lengths, initial=rows.num_rows))
        self._pool = pa.concat_arrays([values, events.flatten()]) if any(lengths) else values
        self._text = encoder(values.type)

    def fold(self, accumulator: Any, row: int) -> Any:
        """Add one event."""
        if accumulator is None:
            return [row]
        # in place: a new list per record would be quadratic in the events of a buffer
        accumulator.append(row)
        return accumulator

    def output(self, accumulator: Any) -> Any:
        """Return all events. No record is folded into a list that was emitted."""
        return accumulator

    def merge(self, older: Any, newer: Any) -> Any:
        """Join two sessions, the older one's events first."""
        return (older or []) + (newer or []) or None

    def mark(self, accumulator: Any) -> Any:
        """Return the list, and its length."""
        return None if accumulator is None else (accumulator, len(accumulator))

    def undo(self, mark: Any) -> Any:
        """Cut the list to its length at the mark: it only grows."""
        if mark is None:
            return None
        accumulator, length = mark
        del accumulator[length:]
        return accumulator

    def restore(self, row: int) -> tuple[Any, Any]:
        """Return the places of the stored events; no last output, since nothing is compared with events."""
        return list(range(self._ends[row], self._ends[row + 1])) or None, None

    def field(self, name: str) -> Callable[[Any], Any]:
        """Return a function that reads the events."""
        assert name == EVENTS, name
        return lambda output: self._pool.take(pa.array(output, pa.int64())).to_pylist()

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of the events."""
        assert name == EVENTS, name
        return pa.list_(self._pool.type)

    def size(self, accumulator: Any) -> int:
        """Return the bytes of the events' JSON text, brackets and commas included."""
        return (
            0
            if accumulator is None
            else sum(map(self.event_size, accumulator)) + events_overhead(len(accumulator))
        )

    def event_size(self, row: int) -> int:
        """Return the bytes of one event's JSON text."""
        return len(self._text(self._pool[row].as_py()).encode())

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """Return accumulators as a column."""
        ends = list(accumulate((len(accumulator or ()) for accumulator in accumulators), initial=0))
        places = pa.array([place for accumulator in accumulators for place in accumulator or ()], pa.int64())
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._pool.take(places))
        empty = pa.array([accumulator is None for accumulator in accumulators], pa.bool_())
        return pa.StructArray.from_arrays([lists], names=[EVENTS], mask=empty)

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """Return outputs as a column."""
        return self.accumulator_array(outputs)
