"""The contents of a buffer of consecutive rows of a key, on whole columns: the newest value, or
all events.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columnar.keys import Ints, Keys
from tidegate.kernel.json_text import encoder
from tidegate.kernel.reduce.collect import EVENTS, events_overhead


class Newest:
    """The value and timestamp of a buffer's last row.

    A buffer is the rows from `first` to before `end`, all of one key; arguments have one element per buffer.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def timestamps(self, first: Ints, end: Ints) -> Ints:
        """Return the timestamps of buffers.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """
        timestamp: Ints = self._keys.placed.timestamp[self._keys.place[end - 1]]
        return timestamp

    def values(self, first: Ints, end: Ints) -> pa.Array:
        """Return the values of buffers.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """
        values = self._keys.values("value", end - 1)
        is_state = self._keys.is_state[end - 1]
        if is_state.any():
            return pc.if_else(pa.array(is_state), self._keys.values("accumulator", end - 1), values)
        return values

    def sizes(self, values: pa.Array) -> Ints:
        """Return the bytes of each value's JSON text; 0 for null."""
        return text_bytes(values)


class Events:
    """The events of all rows of a buffer, and their largest timestamp.

    A record is one event; a state row has the events in `accumulator`. A buffer is the rows from `first` to
    before `end`, all of one key; arguments have one element per buffer.
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
        """Return the largest timestamps of buffers.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """
        if not len(first):
            return first
        # `reduceat` also gives the gaps between buffers: every second result is one of a gap.
        return np.maximum.reduceat(self._timestamp, np.column_stack([first, end]).ravel())[::2]

    def values(self, first: Ints, end: Ints) -> pa.Array:
        """Return the values of buffers, structs with the list of their events.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """
        start, lengths = self._start[first], self._start[end] - self._start[first]
        ends = np.append(0, np.cumsum(lengths))
        places = np.arange(ends[-1]) + np.repeat(start - ends[:-1], lengths)
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._events.take(pa.array(places)))
        return pa.StructArray.from_arrays([lists], names=[EVENTS])

    def sizes(self, values: pa.Array) -> Ints:
        """Return the bytes of each value's JSON text; 0 for null."""
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


Contents = Newest | Events


def text_bytes(values: pa.Array) -> Ints:
    """Return the bytes of each value's JSON text in UTF-8; 0 for null.

    Example: the texts `a` and null give 3 and 0, with the quotes of JSON.
    """
    text = encoder(values.type)
    return np.array(
        [0 if value is None else len(text(value).encode()) for value in values.to_pylist()], np.int64
    )
