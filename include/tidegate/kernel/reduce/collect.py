"""`reduce: collect`: the records since the last flush, in order. References are lists of places in a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys
from tidegate.kernel.json_text import encoder, text_bytes
from tidegate.kernel.reduce import Reduce
from tidegate.kernel.rows import Ints

EVENTS = "events"
"""The only column that is emitted."""


@dataclass(frozen=True)
class Collect(Reduce):
    """`{"events": [...]}`, in the order of the records; a flush removes what it emits."""

    word: ClassVar[str] = "collect"
    lists_events: ClassVar[bool] = True

    def emitted(self, computed: Mapping[str, str]) -> tuple[str, ...]:
        """Return the one column: the computed ones are fields of its events."""
        return (EVENTS,)

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        """Return a list of the records' columns, as the struct's field `events`."""
        return pa.struct([(EVENTS, pa.list_(value))])

    def output_type(self, value: pa.DataType) -> pa.DataType:
        return self.accumulator_type(value)

    def bind(self, rows: pa.RecordBatch) -> CollectValues:
        return CollectValues(rows)

    def contents(self, keys: Keys) -> Events:
        return Events(keys)


def events_overhead(events: int) -> int:
    """Return the bytes of the value's JSON text that are not its events': `{"events":[…,…]}`.

    Example: it is 13 without events, and 14 for two, with their comma.
    """
    return len('{"":[]}') + len(EVENTS) + max(0, events - 1)


class CollectValues:
    """Values in a pool: row i's record is at i; the events of state rows come after all rows."""

    pool = None  # a reference is a list of places

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
        if accumulator is None:
            return [row]
        # in place: a new list per record would be quadratic in the events of a buffer
        accumulator.append(row)
        return accumulator

    def output(self, accumulator: Any) -> Any:
        """Return all events. No record is folded into a list that was emitted."""
        return accumulator

    def merge(self, older: Any, newer: Any) -> Any:
        return (older or []) + (newer or []) or None

    def copy(self, accumulator: Any) -> Any:
        """Return another list with the same events."""
        return None if accumulator is None else list(accumulator)

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
        assert name == EVENTS, name
        return lambda output: self._pool.take(pa.array(output, pa.int64())).to_pylist()

    def type_of(self, name: str) -> pa.DataType:
        assert name == EVENTS, name
        return pa.list_(self._pool.type)

    def size(self, accumulator: Any) -> int:
        return (
            0
            if accumulator is None
            else sum(map(self.event_size, accumulator)) + events_overhead(len(accumulator))
        )

    def event_size(self, row: int) -> int:
        return len(self._text(self._pool[row].as_py()).encode())

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        ends = list(accumulate((len(accumulator or ()) for accumulator in accumulators), initial=0))
        places = pa.array([place for accumulator in accumulators for place in accumulator or ()], pa.int64())
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._pool.take(places))
        empty = pa.array([accumulator is None for accumulator in accumulators], pa.bool_())
        return pa.StructArray.from_arrays([lists], names=[EVENTS], mask=empty)

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        return self.accumulator_array(outputs)


class Events:
    """The events of all rows of a buffer, and their largest timestamp.

    A record is one event; a state row has the events in `accumulator`.
    """

    def __init__(self, keys: Keys) -> None:
        # `reduceat` needs an index behind the last buffer
        self._timestamp = np.append(keys.timestamp, 0)
        lengths = np.ones(len(keys.is_state), np.int64)
        self._events = keys.column("value")
        if keys.is_state.any():
            state_events = pc.struct_field(keys.column("accumulator"), EVENTS)
            lengths = np.where(
                keys.is_state, pc.fill_null(pc.list_value_length(state_events), 0).to_numpy(), 1
            )
            self._events = self._in_row_order(keys, state_events, lengths)
        self._start: Ints = np.append(0, np.cumsum(lengths))

    def _in_row_order(self, keys: Keys, state_events: pa.ListArray, lengths: Ints) -> pa.Array:
        """Return the pool of events, in which those of row i come before those of row i + 1."""
        stored = np.repeat(keys.is_state, lengths)
        places = np.empty(len(stored), np.int64)
        # in the pool, the events of state come after all records
        places[stored] = len(keys.is_state) + np.arange(stored.sum())
        places[~stored] = np.flatnonzero(~keys.is_state)
        return pa.concat_arrays([self._events, state_events.flatten()]).take(pa.array(places))

    def timestamps(self, first: Ints, end: Ints) -> Ints:
        if not len(first):
            return first
        # `reduceat` also gives the gaps between buffers: every second result is one of a gap.
        return np.maximum.reduceat(self._timestamp, np.column_stack([first, end]).ravel())[::2]

    def values(self, first: Ints, end: Ints) -> pa.Array:
        start, lengths = self._start[first], self._start[end] - self._start[first]
        ends = np.append(0, np.cumsum(lengths))
        places = np.arange(ends[-1]) + np.repeat(start - ends[:-1], lengths)
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._events.take(pa.array(places)))
        return pa.StructArray.from_arrays([lists], names=[EVENTS])

    def sizes(self, values: pa.Array) -> Ints:
        lists = values.field(EVENTS)
        # running sums: the size of a list is a difference of two
        sums = [0, *accumulate(text_bytes(lists.flatten()).tolist())]
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
        ends = pairwise(accumulate(lengths, initial=0))
        sizes = [
            sums[end] - sums[start] + events_overhead(end - start) if end > start else 0
            for start, end in ends
        ]
        return np.array(sizes, np.int64)
