"""`reduce: collect`: the records since the last flush, in order. References are lists of places in a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.json_text import encoder

EVENTS = "events"


@dataclass(frozen=True)
class Collect:
    """`{"events": [...]}`, in the order of the records; a flush removes what it emits."""

    takes_nulls: bool = False

    def held_type(self, value: pa.DataType) -> pa.DataType:
        """A list of the records' columns."""
        return pa.struct([(EVENTS, pa.list_(value))])

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """The same."""
        return self.held_type(value)

    def bind(self, rows: pa.RecordBatch) -> CollectValues:
        """The values of these rows."""
        return CollectValues(rows)


def events_overhead(events: int) -> int:
    """Bytes of the value's JSON text that are not its events': `{"events":[…,…]}`."""
    return len('{"":[]}') + len(EVENTS) + max(0, events - 1)


class CollectValues:
    """Row i's record is at i in the pool; the events that state rows hold come after all rows."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        values = rows.column("value")
        self.null = values.is_null().to_pylist()
        events = pc.struct_field(rows.column("held"), EVENTS)
        lengths = pc.fill_null(pc.list_value_length(events), 0).to_pylist()
        self._ends = list(accumulate(lengths, initial=rows.num_rows))
        self._pool = pa.concat_arrays([values, events.flatten()]) if any(lengths) else values
        self._text = encoder(values.type)

    def fold(self, accumulator: Any, row: int) -> Any:
        """One event more."""
        if accumulator is None:
            return [row]
        accumulator.append(row)
        return accumulator

    def output(self, accumulator: Any) -> Any:
        """All of them. Nothing is folded into a list that went out."""
        return accumulator

    def merge(self, older: Any, newer: Any) -> Any:
        """The older session's first."""
        return (older or []) + (newer or []) or None

    def mark(self, accumulator: Any) -> Any:
        """The list, and its length."""
        return None if accumulator is None else (accumulator, len(accumulator))

    def undo(self, mark: Any) -> Any:
        """The list, as long as it was: it only grows."""
        if mark is None:
            return None
        accumulator, length = mark
        del accumulator[length:]
        return accumulator

    def restore(self, row: int) -> tuple[Any, Any]:
        """The places of the stored events; no last output, since nothing is compared with events."""
        return list(range(self._ends[row], self._ends[row + 1])) or None, None

    def field(self, name: str) -> Callable[[Any], Any]:
        """Reads the events."""
        assert name == EVENTS, name
        return lambda output: self._pool.take(pa.array(output, pa.int64())).to_pylist()

    def type_of(self, name: str) -> pa.DataType:
        """A list of the records' columns."""
        assert name == EVENTS, name
        return pa.list_(self._pool.type)

    def size(self, accumulator: Any) -> int:
        """Bytes of the events' JSON text, brackets and commas included."""
        return (
            0
            if accumulator is None
            else sum(map(self.event_size, accumulator)) + events_overhead(len(accumulator))
        )

    def event_size(self, row: int) -> int:
        """Bytes of one event's JSON text."""
        return len(self._text(self._pool[row].as_py()).encode())

    def held_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """As a column."""
        ends = list(accumulate((len(accumulator or ()) for accumulator in accumulators), initial=0))
        places = pa.array([place for accumulator in accumulators for place in accumulator or ()], pa.int64())
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._pool.take(places))
        empty = pa.array([accumulator is None for accumulator in accumulators], pa.bool_())
        return pa.StructArray.from_arrays([lists], names=[EVENTS], mask=empty)

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """As a column."""
        return self.held_array(outputs)
