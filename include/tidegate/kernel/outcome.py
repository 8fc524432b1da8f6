"""Emissions, state and traces as rows of the output schema, gathered record by record or from columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys
from tidegate.kernel.counts import Counts, count_emissions
from tidegate.kernel.ordering import last_where, recorded_of, row_numbers, starts, turns_of
from tidegate.kernel.reduce import Values
from tidegate.kernel.rows import EMISSION, LATE, RECORDED, REFUSED, STATE, TRACE, Ints, Mask, fill
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.tables import kind_of
from tidegate.kernel.unusable import LATE as LATE_REASON
from tidegate.kernel.unusable import pass_through, with_reasons

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
    expires_at: int | None = None


class _Late(NamedTuple):
    row: int
    at: int
    ordinal: int
    window_start: int
    window_end: int
    reason: str = LATE_REASON


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
        self,
        rows: pa.RecordBatch,
        values: Values,
        schema: pa.Schema,
        tells_before: bool = False,
        shows_windows: bool = True,
    ) -> None:
        """`tells_before`: an emission has in `emitted` what its entry had emitted last; `shows_windows`: it
        has the window of its entry.
        """
        self._shows_windows = shows_windows
        self._rows = rows
        self._tells_before = tells_before
        self._values = values
        self._schema = schema
        self._ordinals: dict[str, int] = {}
        self._emissions: list[tuple[Any, ...]] = []
        self._states: list[_State] = []
        self._traces: list[_Trace] = []
        self._refused: list[_Refused] = []
        self._late: list[_Late] = []
        self._late_ordinals: Counter[str] = Counter()
        self._quarantined: dict[str, list[tuple[int, str]]] = defaultdict(list)

    def emit(self, entry: Entry, value: Any, timestamp: int, at: int, cause: int, reason: str) -> None:
        """Emit a value, None for a deletion, numbered within its key. `at`: when it happened, epoch ms.

        `cause` is the row of the record that triggers it, or `first_by` of it; or TIMER or LAST.
        """
        ordinal = self._ordinals.get(entry.key, 0)
        self._ordinals[entry.key] = ordinal + 1
        start, end = self._window(entry)
        self._emissions.append(
            (entry.row, value, timestamp, at, cause, reason, ordinal, start, end, entry.emitted)
        )

    def refuse(self, entry: Entry, row: int, value: Any, timestamp: int, reason: str) -> None:
        """Refuse a value that would have been emitted; with the record in `row` the entry came to have it.

        Args:
            row: The record with which the entry came to have the value.
            reason: The expectations that it breaks.
        """
        start, end = self._window(entry)
        self._refused.append(_Refused(row, value, timestamp, reason, start, end))

    def _window(self, entry: Entry) -> tuple[int, int] | tuple[None, None]:
        return (entry.window if self._shows_windows else None) or (None, None)

    def emit_late(self, row: int, key: str, window: tuple[int, int], at: int) -> None:
        """Emit a late record, numbered within the late records of its key.

        Args:
            row: The record; rows have `record`.
            key: Its key.
            window: The last of its windows.
            at: The time of its partition with it, epoch ms.
        """
        self._late.append(_Late(row, at, self._late_ordinals[key], *window))
        self._late_ordinals[key] += 1

    def quarantine(self, row: int, reason: str, metric: str = "quarantined") -> None:
        """Quarantine a record.

        Args:
            row: A record whose `input` is filled.
            reason: A word of `formats.decoded` and the detail.
            metric: The count of such records.
        """
        self._quarantined[metric].append((row, reason))

    def savepoint(self, key: str) -> Callable[[], None]:
        """Return a function that takes back all emissions, refusals and traces of the key from now on.

        Args:
            key: The key of the record that is about to be applied: only this key's results can follow.
        """
        emissions, ordinal = len(self._emissions), self._ordinals.get(key, 0)
        refused, traces = len(self._refused), len(self._traces)

        def roll_back() -> None:
            del self._emissions[emissions:]
            del self._refused[refused:]
            del self._traces[traces:]
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
                expires_at=entry.expires_at,
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
            cause = np.array(columns.pop("cause"), np.int64)
            arrays = turns_of(self._row_values, cause)
            if RECORDED in self._schema.names:
                arrays[RECORDED] = recorded_of(self._row_values, cause, np.array(columns["at"], np.int64))
            # no sink asks for the value before, and its column would be built for nothing
            if not self._tells_before:
                del columns["emitted"]
            counts["emitted-tombstones"] += columns["value"].count(None)
            kinds = Counter(map(kind_of, columns["reason"]))
            counts.include({"emitted." + reason: n for reason, n in kinds.items()})
            yield self._as_rows(EMISSION, columns, arrays)
        if self._states:
            counts["state-rows-changed"] += len(self._states)
            yield self._as_rows(STATE, self._columns(_State._fields, self._states))
        if self._refused:
            counts["refused"] += len(self._refused)
            yield self._as_rows(REFUSED, self._columns(_Refused._fields, self._refused))
        if self._late:
            counts["late-emitted"] += len(self._late)
            places = pa.array([late.row for late in self._late], pa.int64())
            names = [name for name in ("timestamp", "record", RECORDED) if name in self._schema.names]
            own = {name: self._rows.column(name).take(places) for name in names}
            yield self._as_rows(LATE, self._columns(_Late._fields, self._late), own)
        for metric, quarantined in self._quarantined.items():
            places, reasons = zip(*quarantined, strict=True)
            rows = self._rows.take(pa.array(places, pa.int64()))
            yield pass_through(self._schema, with_reasons(rows, reasons), counts, metric)
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


@dataclass(frozen=True)
class EmittedRows:
    """Emissions in their order.

    Args:
        row: the last record that each emission contains.
        value: the emitted values; null is a deletion.
        timestamp: epoch ms.
        at: when the emission happened, epoch ms.
        cause: the row of the record that triggers the emission, or `first_by` of it; or TIMER or LAST.
        reason: one reason per emission, or one for all.
        window: start and end of each emission's window, epoch ms.
    """

    row: Ints
    value: pa.Array
    timestamp: Ints
    at: Ints
    cause: Ints
    reason: pa.StringArray | str
    window: tuple[Ints, Ints] | None = None


def emission_rows(
    schema: pa.Schema, keys: Keys, emitted: EmittedRows, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield emissions as one batch of `schema`, in the order of `emitted`, and count them; nothing if it is
    empty.

    `ordinal` counts from 0 within each run of rows of one key.

    Args:
        schema: The kernel's output schema.
        keys: The keys whose rows `emitted` names.
        counts: Gets the number of emissions, also by reason.
    """
    number = len(emitted.row)
    if not number:
        return
    reason = pa.repeat(emitted.reason, number) if isinstance(emitted.reason, str) else emitted.reason
    count_emissions(emitted.value, reason, counts)
    columns = _row_columns(keys, emitted.row) | turns_of(keys.values, emitted.cause)
    if RECORDED in schema.names:
        columns[RECORDED] = recorded_of(keys.values, emitted.cause, emitted.at)
    if emitted.window is not None:
        columns |= {"window_start": pa.array(emitted.window[0]), "window_end": pa.array(emitted.window[1])}
    start = starts(columns["key"])
    yield fill(
        schema,
        EMISSION,
        columns
        | {
            "value": emitted.value,
            "timestamp": pa.array(emitted.timestamp),
            "at": pa.array(emitted.at),
            "reason": reason,
            "ordinal": pc.subtract(row_numbers(number), last_where(start, start)),
        },
        number,
    )


def state_rows(
    schema: pa.Schema, keys: Keys, row: Ints, columns: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield the state of entries as one batch of `schema`; nothing if there are no entries.

    `row` is the row that changed each entry last, which has its key and position. Columns that are not in
    `columns` are null; by default the entry is live and holds nothing back.

    Args:
        row: A row number per entry.
        columns: Column of the output schema -> one value per entry.
    """
    number = len(row)
    if not number:
        return
    zeros = pa.repeat(pa.scalar(0, pa.int64()), number)
    defaults = {"live": pa.repeat(True, number)}
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()
    }
    yield fill(
        schema,
        STATE,
        _row_columns(keys, row) | {"pending": zeros, "bytes": zeros} | defaults | arrays,
        number,
    )


def count_states(keys: Keys, row: Ints, live: Mask, counts: Counts) -> None:
    """Count entries whose state changed; `row` has one row of each key.

    Args:
        live: Per element of `row`, whether the entry exists afterwards.
    """
    counts["state-rows-changed"] += len(row)
    # a key's state row comes first; a record there has null, and nothing was live
    was_live = pc.fill_null(keys.values("live", keys.first[keys.number[row]]), False)
    counts["state-rows"] += int(live.sum()) - was_live.true_count


def count_overtime(overtime: Ints, counts: Counts) -> None:
    """Count timers that fired, and the ms from when each was due to when it fired.

    Args:
        overtime: One element per timer, in ms.
    """
    if overtime.size:
        counts["suppression-overtime-count"] += overtime.size
        counts["suppression-overtime-sum"] += int(overtime.sum())
        counts.include({"suppression-overtime-min": int(overtime.min())})


def _row_columns(keys: Keys, row: Ints) -> dict[str, pa.Array]:
    return {name: keys.values(name, row) for name in _FROM_ROW}
