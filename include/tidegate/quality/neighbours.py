"""The rule that each emission of `on: change` differs from the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.kernel.equality import any_differs, differs
from tidegate.quality.observations import SAMPLE, Observation
from tidegate.storage.schema import HASH, KEY, LIVE, ORDINAL, REASON, TIMESTAMP, VALUE, WINDOW, Hashes

COLUMNS = (HASH, KEY, *WINDOW, ORDINAL, REASON, TIMESTAMP, VALUE)

Mask = npt.NDArray[np.bool_]
StateBefore = Callable[[Hashes], pa.Table]
"""Hashes, sorted and distinct -> the newest state row of each of their entries."""

_ENTRY = (KEY, *WINDOW)
_MAY_BE_EQUAL = ("heartbeat", "promoted")
"""Reasons of emissions that may equal the one before: heartbeats, which are sent although nothing changed,
and emissions of a promotion, which are sent for consumers of another generation.
"""
_LACKING, _IS_NEW, _IS_FIRST = "lacking", "is_new", "is_first"


def no_equal_neighbours(
    parts: Iterable[pa.Table],
    emit: kernel.Emit,
    before: StateBefore | None = None,
    expires: bool = False,
) -> Observation:
    """Check that no emission equals the one of its entry (key and window) before it, by the stage's
    `equal`.

    If `before` is given, the first emission of an entry is compared with the value that the state before the
    batch has as last emitted. Two deletions are equal. Not compared are heartbeats, emissions of a promotion,
    values that return after their key's state has expired, and neighbours between which an emission is
    missing because it went into quarantine. The sample contains keys. Memory holds one part at a time.

    Args:
        parts: Emissions with the columns `COLUMNS`, in the order of the outbox: those of a key follow each
            other, by their ordinals.
        emit: The `emit` of the stage.
        before: Reads the state before the batch; None compares only within the batch.
        expires: Whether state expires, so that a value that returns is new.

    Raises UserFunctionFailed or ConditionFailed if the stage's own comparison fails.
    """
    elements = unexpected = 0
    sample: list[str | None] = []
    walk, may_be_equal = _Walk(), pa.array([*_MAY_BE_EQUAL, *(["new"] if expires else [])])
    for part in parts:
        rows = walk.entries(part)
        has_to_differ = ~_as_mask(pc.is_in(rows[REASON], value_set=may_be_equal))
        same = rows.filter(_same_as_neighbour(rows, emit, has_to_differ))[KEY].to_pylist()
        if before is not None:
            firsts = rows.filter(pc.and_(rows[_IS_FIRST], pa.array(has_to_differ)))
            same += _same_as_state(firsts, emit, before)
        elements += part.num_rows
        unexpected += len(same)
        sample += same[: SAMPLE - len(sample)]
    return Observation.of_rows("emissions equal the one before", elements, unexpected, sample)


class _Walk:
    """Puts the emissions of an entry next to each other, also if a key continues in the next part."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._rows_of_key = 0
        self._last: pa.Table | None = None  # the last row of each entry of that key

    def entries(self, part: pa.Table) -> pa.Table:
        """Return the part's rows by entry, in order, after the last rows of entries that continue from the
        part before.

        Rows of the part before have `is_new` false. `lacking` is the number of emissions of the key, up to
        the row, that are missing in the outbox. `is_first` marks the first emission of an entry, if none of
        the key is missing before.
        """
        rows = self._numbered(part.select(COLUMNS).combine_chunks())
        if not rows.num_rows:
            return rows.append_column(_IS_FIRST, pa.array([], pa.bool_()))
        if self._last is not None and rows[KEY][0].as_py() == self._last[KEY][0].as_py():
            rows = pa.concat_tables([self._last, rows]).combine_chunks()
        # without windows, an entry is a key, and the outbox is already sorted by it
        if rows[WINDOW[0]].null_count < rows.num_rows:
            rows = rows.sort_by([(name, "ascending") for name in (*_ENTRY, ORDINAL)])
        begins = _begins(rows, _ENTRY)
        is_end = np.append(begins[1:], True)
        of_last_key = pc.equal(rows[KEY], self._key).to_numpy()
        # Only the last key can continue, and of its entries only the last rows are compared again.
        carried = rows.filter(pa.array(is_end & of_last_key))
        self._last = carried.set_column(
            carried.column_names.index(_IS_NEW), _IS_NEW, pa.repeat(False, carried.num_rows)
        )
        is_first = begins & _numbers(rows, _IS_NEW) & (_numbers(rows, _LACKING) == 0)
        return rows.append_column(_IS_FIRST, pa.array(is_first))

    def _numbered(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        index = np.arange(count)
        if count:
            begins = _begins(rows, (KEY,))
            index -= np.maximum.accumulate(np.where(begins, index, 0))
            if rows[KEY][0].as_py() == self._key:
                end = np.flatnonzero(np.append(begins[1:], True))[0] + 1
                index[:end] += self._rows_of_key
            self._key, self._rows_of_key = rows[KEY][-1].as_py(), int(index[-1]) + 1
        # ordinals count all emissions of a key, also those in quarantine; the outbox has only the others
        lacking = rows[ORDINAL].to_numpy() - index
        return rows.append_column(_LACKING, pa.array(lacking, pa.int64())).append_column(
            _IS_NEW, pa.repeat(True, count)
        )


def _same_as_neighbour(rows: pa.Table, emit: kernel.Emit, has_to_differ: Mask) -> pa.BooleanArray:
    """Return whether each row that has to differ equals the row above it, of the same entry."""
    same = np.zeros(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        lacking = _numbers(rows, _LACKING)
        candidate = ~_begins(rows, _ENTRY) & _numbers(rows, _IS_NEW) & has_to_differ
        # Between two rows with different numbers an emission is in quarantine, so they are no neighbours.
        candidate[1:] &= np.diff(lacking) == 0
        places = np.flatnonzero(candidate)
        compared = rows.select([VALUE, TIMESTAMP])
        old, new = compared.take(pa.array(places - 1)), compared.take(pa.array(places))
        same[places] = _are_same(emit, _outputs(old), _outputs(new))
    return pa.array(same)


def _same_as_state(firsts: pa.Table, emit: kernel.Emit, before: StateBefore) -> list[str | None]:
    """Return the keys of rows that equal what their entries emitted last before the batch."""
    if not firsts.num_rows:
        return []
    state = before(np.unique(firsts[HASH].to_numpy()))
    if not state.num_rows:
        return []
    state = state.filter(state[LIVE])
    old, new = _pairs(state, firsts)
    # with `state: hash`, the state has only a digest of the value
    if emit.marks:
        values = _outputs(new)
        hashed = emit.marker(values)  # type: ignore[arg-type]  # it reads columns only
        digests = old["digest"].to_pylist()
        same = np.array(
            [
                values.is_valid[row] and hashed(row, values.timestamps[row]) == last
                for row, last in enumerate(digests)
            ],
            np.bool_,
        )
    else:
        has_emitted = pc.is_valid(old["emitted"]).combine_chunks()
        old, new = old.filter(has_emitted), new.filter(has_emitted)
        timestamps = old["timestamp"]
        if "emitted_timestamp" in old.column_names:
            timestamps = pc.coalesce(old["emitted_timestamp"], timestamps)
        last = _Outputs(old["emitted"].combine_chunks(), timestamps)
        same = _are_same(emit, last, _outputs(new))
    keys: list[str | None] = new.filter(pa.array(same))[KEY].to_pylist()
    return keys


def _pairs(state: pa.Table, firsts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows whose entries are in both tables, side by side."""
    # windows as numbers: Arrow's join matches no nulls
    left, right = (
        pa.table(
            {KEY: rows[KEY]}
            | {name: pc.fill_null(rows[name].cast(pa.int64()), -1) for name in WINDOW}
            | {number: pa.array(range(rows.num_rows), pa.int64())}
        )
        for rows, number in ((state, "old"), (firsts, "new"))
    )
    joined = left.join(right, list(_ENTRY), join_type="inner")
    return state.take(joined["old"]), firsts.take(joined["new"])


class _Outputs:
    """Values of emissions, in the form that `Emit.compare` reads; an output is the number of a row."""

    def __init__(self, structs: pa.StructArray, timestamps: pa.ChunkedArray | None = None) -> None:
        self.structs = structs
        self.is_valid: Mask = structs.is_valid().to_numpy(zero_copy_only=False)
        self._timestamps = timestamps

    @cached_property
    def timestamps(self) -> list[int]:
        """The timestamps of the emissions. An exact comparison does not need them."""
        return [] if self._timestamps is None else self._timestamps.to_pylist()

    def field(self, name: str) -> Callable[[int], Any]:
        """Return a function that reads one column of an output."""
        values: list[Any] = self.structs.field(name).to_pylist()
        return values.__getitem__

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of one column of an output."""
        return self.structs.type.field(name).type


def _outputs(rows: pa.Table) -> _Outputs:
    values = rows[VALUE].combine_chunks()
    return _Outputs(values, rows[TIMESTAMP])


def _are_same(emit: kernel.Emit, old: _Outputs, new: _Outputs) -> Mask:
    """Return whether the values of each row are equal.

    Values are not compared if a compared column is missing in one of them, or has another type.
    """
    same: Mask = ~old.is_valid & ~new.is_valid
    both = np.flatnonzero(old.is_valid & new.is_valid)
    if not len(both) or not _is_comparable(emit, old.structs.type, new.structs.type):
        return same
    places = pa.array(both)
    if emit.compares_exactly:
        pair = old.structs.take(places), new.structs.take(places)
        same[both] = ~any_differs(*pair, emit.compared).to_numpy(zero_copy_only=False)
        return same
    joined = _Outputs(pa.concat_arrays([old.structs.take(places), new.structs.take(places)]))
    test = emit.compare(joined)  # type: ignore[arg-type]  # it reads columns only
    assert test is not None, "`on: change` compares"
    count = len(both)
    same[both] = [
        test(at, count + at, old.timestamps[row], new.timestamps[row]) for at, row in enumerate(both)
    ]
    return same


def _is_comparable(emit: kernel.Emit, old: pa.StructType, new: pa.StructType) -> bool:
    places = [(old.get_field_index(name), new.get_field_index(name)) for name in emit.compared]
    if any(min(pair) < 0 for pair in places):
        return False
    if not emit.compares_exactly:
        return bool(old.equals(new))
    return all(old.field(before).type == new.field(after).type for before, after in places)


def _begins(rows: pa.Table, names: tuple[str, ...]) -> Mask:
    """Return whether each row differs from the row above it in one of the columns; true for the first row."""
    begins = np.ones(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        begins[1:] = False
        for name in names:
            column = rows[name].combine_chunks()
            other = differs(column.slice(0, rows.num_rows - 1), column.slice(1))
            begins[1:] |= other.to_numpy(zero_copy_only=False)
    return begins


def _numbers(rows: pa.Table, name: str) -> Any:
    return rows[name].to_numpy()


def _as_mask(column: pa.ChunkedArray) -> Mask:
    mask: Mask = column.to_numpy()
    return mask
