"""The results that the record-by-record kernel gathers from rows, and their way back into Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kernel.counts import Counts
from tidegate.kernel.entry import NEVER, Entry
from tidegate.kernel.ordering import Ints, turns_of
from tidegate.kernel.rows import EMISSION, REFUSED, STATE, TRACE, fill
from tidegate.kernel.unusable import pass_through, with_reasons
from tidegate.kernel.values import Values

_FROM_ROW = ("hash", "key", "topic", "partition", "offset", "source")
# emissions are plain tuples, which are made faster than named ones: there may be one per record
_EMISSION = (
    "row", "value", "timestamp", "at", "cause", "reason", "ordinal", "window_start", "window_end", "emitted",
)  # fmt: skip
_NO_ARRAYS: Mapping[str, pa.Array] = {}


class _State(NamedTuple):
    row: int
    window_start: int | None
    window_end: int | None
    timestamp: int
    live: bool = False
    accumulator: Any = None
    emitted: Any = None
    digest: str | None = None
    pending: int = 0
    since: int | None = None
    bytes: int = 0
    due_at: int | None = None
    emitted_timestamp: int | None = None
    flushed_at: int | None = None


class _Refused(NamedTuple):
    row: int
    value: Any
    timestamp: int
    reason: str
    window_start: int | None
    window_end: int | None


class _Trace(NamedTuple):
    row: int
    reason: str
    at: int
    trace: str


class Outcome:
    """Emissions, changed entries and traces of one Arrow batch; the rows that they refer to are in `rows`.

    Args:
        rows: The rows that results refer to by number.
        values: The values to which references belong.
        schema: The output schema.
    """

    def __init__(
        self, rows: pa.RecordBatch, values: Values, schema: pa.Schema, tells_before: bool = False
    ) -> None:
        """`tells_before`: an emission has in `emitted` what its entry had emitted last."""
        self._rows = rows
        self._tells_before = tells_before
        self._values = values
        self._schema = schema
        self._ordinals: dict[str, int] = {}
        self._emissions: list[tuple[Any, ...]] = []
        self._states: list[_State] = []
        self._traces: list[_Trace] = []
        self._refused: list[_Refused] = []
        self._quarantined: list[tuple[int, str]] = []

    def emit(self, entry: Entry, value: Any, timestamp: int, at: int, cause: int, reason: str) -> None:
        """Emit a value, None for a deletion, numbered within its key. `at`: when it happened, epoch ms.

        `cause` is the row of the record that triggers it; or FIRST, TIMER or LAST.
        """
        ordinal = self._ordinals.get(entry.key, 0)
        self._ordinals[entry.key] = ordinal + 1
        start, end = entry.window or (None, None)
        self._emissions.append(
            (entry.row, value, timestamp, at, cause, reason, ordinal, start, end, entry.emitted)
        )

    def refuse(self, entry: Entry, row: int, value: Any, timestamp: int, reason: str) -> None:
        """Refuse a value that would have been emitted; with the record in `row` the entry came to have it.

        Args:
            row: The record with which the entry came to have the value.
            reason: The expectations that it breaks.
        """
        start, end = entry.window or (None, None)
        self._refused.append(_Refused(row, value, timestamp, reason, start, end))

    def quarantine(self, row: int, reason: str) -> None:
        """Quarantine a record.

        Args:
            row: A record whose `input` is filled.
            reason: A word of `formats.reasons` and the detail.
        """
        self._quarantined.append((row, reason))

    def savepoint(self, key: str) -> Callable[[], None]:
        """Return a function that takes back all emissions and refusals of the key from now on.

        Args:
            key: The key of the record that is about to be applied: only this key's results can follow.
        """
        emissions, ordinal = len(self._emissions), self._ordinals.get(key, 0)
        refused = len(self._refused)

        def roll_back() -> None:
            del self._emissions[emissions:]
            del self._refused[refused:]
            self._ordinals[key] = ordinal

        return roll_back

    def remember(self, entry: Entry, hashed: bool) -> None:
        """Write an entry as a state row. `hashed`: `entry.emitted` is a digest, not a value.

        Args:
            entry: A live entry that has changed.
        """
        start, end = entry.window or (None, None)
        self._states.append(
            _State(
                row=entry.position_row,
                window_start=start,
                window_end=end,
                timestamp=entry.timestamp,
                live=entry.live,
                accumulator=entry.accumulator,
                emitted=None if hashed else entry.emitted,
                digest=entry.emitted if hashed else None,
                pending=entry.pending,
                since=entry.since if entry.pending else None,
                bytes=entry.bytes,
                due_at=None if entry.due == NEVER else entry.due,
                emitted_timestamp=entry.emitted_timestamp,
                flushed_at=entry.flushed_at,
            )
        )

    def expire(self, entry: Entry) -> None:
        """Write that an entry has expired: a state row that is not live, without value and timer."""
        start, end = entry.window or (None, None)
        self._states.append(_State(entry.position_row, start, end, entry.timestamp))

    def trace(self, row: int, fate: str, at: int, description: str) -> None:
        """Note what became of a record; `description` is the JSON text of the column `trace`.

        Args:
            fate: A reason of an emission, or what else became of the record.
            at: The partition's time with the record, in epoch ms.
        """
        self._traces.append(_Trace(row, fate, at, description))

    def batches(self, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield all results as rows of the output schema, and count emissions and changes.

        Args:
            counts: Gets the numbers of emissions by reason, and of changed state rows.
        """
        if self._emissions:
            counts["emitted"] += len(self._emissions)
            columns = self._columns(_EMISSION, self._emissions)
            turns = turns_of(self._row_values, np.array(columns.pop("cause"), np.int64))
            # no sink asks for the value before, and its column would be built for nothing
            if not self._tells_before:
                del columns["emitted"]
            counts["emitted-tombstones"] += columns["value"].count(None)
            counts.include({"emitted." + reason: n for reason, n in Counter(columns["reason"]).items()})
            yield self._as_rows(EMISSION, columns, turns)
        if self._states:
            counts["state-rows-changed"] += len(self._states)
            yield self._as_rows(STATE, self._columns(_State._fields, self._states))
        if self._refused:
            counts["refused"] += len(self._refused)
            yield self._as_rows(REFUSED, self._columns(_Refused._fields, self._refused))
        if self._quarantined:
            places, reasons = zip(*self._quarantined, strict=True)
            rows = self._rows.take(pa.array(places, pa.int64()))
            yield pass_through(self._schema, with_reasons(rows, reasons), counts)
        if self._traces:
            yield self._as_rows(TRACE, self._columns(_Trace._fields, self._traces))

    def _row_values(self, name: str, rows: Ints) -> pa.Array:
        return self._rows.column(name).take(pa.array(rows))

    @staticmethod
    def _columns(names: tuple[str, ...], gathered: list[Any]) -> dict[str, Sequence[Any]]:
        return dict(zip(names, zip(*gathered, strict=True), strict=True))

    def _as_rows(
        self, kind: int, columns: dict[str, Sequence[Any]], arrays: Mapping[str, pa.Array] = _NO_ARRAYS
    ) -> pa.RecordBatch:
        rows = len(columns["row"])
        # the row that changed an entry last gives the result its key and position
        places = pa.array(columns.pop("row"), pa.int64())
        arrays = {name: self._array(name, values) for name, values in columns.items()} | dict(arrays)
        row_columns = {name: self._rows.column(name).take(places) for name in _FROM_ROW}
        if kind == TRACE:
            row_columns["timestamp"] = self._rows.column("timestamp").take(places)
        return fill(self._schema, kind, row_columns | arrays, rows)

    def _array(self, name: str, values: Any) -> pa.Array:
        if name == "accumulator":
            return self._values.accumulator_array(values)
        if name in ("value", "emitted"):
            return self._values.output_array(values)
        return pa.array(values, self._schema.field(name).type)
