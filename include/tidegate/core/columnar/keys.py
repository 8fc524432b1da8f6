"""Whole keys in NumPy columns, and which of them are plain: what columns alone can decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar.times import Times
from tidegate.core.columns import least_times
from tidegate.core.grouping import last_where, starts
from tidegate.core.ordering import already_applied
from tidegate.core.rows import FIRST, STATE
from tidegate.core.stage import Batch, Stage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_Number = TypeVar("_Number", bound=np.generic)
_AT_REST = ("pending", "bytes", "due_at", "window_start", "flushed_at")
"""What the state row of an entry has not, or as 0, when it holds nothing back."""


@dataclass(frozen=True)
class Lines:
    """Whole topic-partitions whose rows were brought together by key.

    Per row, the `number` of its partition (0, 1, 2 …, ascending), and its `place` among all rows as they were
    before: partition after partition, each in its order.
    """

    number: Ints
    place: Ints


class Placed:
    """Rows in the order of lines, as NumPy columns of one element per place."""

    def __init__(self, rows: pa.RecordBatch, batch: Batch) -> None:
        self._rows, self._batch = rows, batch
        self.is_state = mask(pc.equal(rows.column("kind"), STATE))
        self.timestamp = ints(rows.column("timestamp"))

    @cached_property
    def before(self) -> Ints:
        """The time of each record's partition before it."""
        return ints(pc.max_element_wise(self._rows.column("time"), least_times(self._rows, self._batch)))


class Keys:
    """Rows of whole keys, at least one, as NumPy columns of one element per row. All times in epoch ms.

    With `begins`, true where a part of a key begins, those parts stand for keys. With `lines`, keys of a
    partition are decided together, and see the times of all of its records; without, each key is a line.

    `rows` stand in the order of lines. A column of them is brought into the order of keys when it is first
    asked for as a whole, which few are: in a large partition that costs more than to decide it.
    """

    def __init__(
        self,
        rows: pa.RecordBatch,
        batch: Batch,
        begins: Mask | None = None,
        lines: Lines | None = None,
    ) -> None:
        self.rows = rows
        self.batch = batch
        self._columns: dict[str, pa.Array] = {}
        self._starts = starts(rows.column("key")) if begins is None else pa.array(begins)
        self.first: Ints = np.flatnonzero(mask(self._starts))
        """Per key, its first row."""
        self.end: Ints = np.append(self.first[1:], rows.num_rows)
        """Per key, the row after its last."""
        self.number: Ints = np.repeat(np.arange(len(self.first)), self.end - self.first)
        """Per row, the number of its key."""
        self.lines = lines
        self.line: Ints = self.number if lines is None else lines.number
        """Per row, the number of its line."""
        self.place: Ints = np.arange(rows.num_rows) if lines is None else lines.place
        """Per row, its place in the order of lines."""
        self.placed = Placed(rows, batch)
        self.is_state: Mask = self.by_row(self.placed.is_state)
        self.state: Ints = np.flatnonzero(self.is_state)
        """The state rows."""

    def by_row(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """What has an element per place, with one per row."""
        return values if self.lines is None else values[self.place]

    def by_place(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """What has an element per row, with one per place."""
        if self.lines is None:
            return values
        placed = np.empty_like(values)
        placed[self.place] = values
        return placed

    def column(self, name: str) -> pa.Array:
        """A column, one element per row."""
        if name not in self._columns:
            column = self.rows.column(name)
            moves = self.lines is not None and column.null_count < len(column)
            self._columns[name] = column.take(pa.array(self.place)) if moves else column
        return self._columns[name]

    def values(self, name: str, rows: Ints) -> pa.Array:
        """A column at some rows, without the others."""
        return self.rows.column(name).take(pa.array(rows if self.lines is None else self.place[rows]))

    def stored(self, name: str) -> Ints:
        """A column of whole numbers at the state rows; 0 for null."""
        return ints(self.values(name, self.state))

    def states(self, which: Mask) -> Mask:
        """The state rows that are chosen of them, as rows."""
        rows = np.zeros(self.rows.num_rows, np.bool_)
        rows[self.state[which]] = True
        return rows

    @cached_property
    def timestamp(self) -> Ints:
        return self.by_row(self.placed.timestamp)

    @cached_property
    def now(self) -> Ints:
        """The time of each record's partition with it."""
        return self.by_row(np.maximum(self.placed.before, self.placed.timestamp))

    def causes(self, rows: Ints) -> Ints:
        """Of records, what lets out what goes out with them: FIRST, or the row itself."""
        place = self.place[rows]
        return np.where(self.placed.timestamp[place] > self.placed.before[place], FIRST, rows)

    @cached_property
    def times(self) -> Times:
        """The times of their lines."""
        return Times(self)

    def lines_with(self, rows: Mask) -> Mask:
        """Per row, whether any of its line's rows is one of these."""
        lines = np.zeros(self.line[-1] + 1, np.bool_)
        lines[self.line[rows]] = True
        return lines[self.line]

    def repeated(self) -> Mask:
        """The records that their key's state has had already."""
        if not len(self.state):
            return self.is_state
        state = last_where(pa.array(self.is_state), self._starts)
        columns = {name: self.column(name) for name in ("topic", "partition", "offset")}
        return mask(already_applied(pa.RecordBatch.from_pydict(columns), state)) & ~self.is_state

    def at_rest(self) -> Mask:
        """The rows that are no state of an entry that holds something back, or has been in windows."""
        busy = np.logical_or.reduce([self.stored(name) != 0 for name in _AT_REST])
        return ~self.states(busy)

    def begun(self) -> Mask:
        """The state rows of entries that hold something back."""
        return self.states(self.stored("pending") > 0)

    def superseded(self) -> Mask:
        """The state rows that have rows of their key before them: more than one tells of an entry."""
        follows = np.ones(self.rows.num_rows, np.bool_)
        follows[self.first] = False
        return self.is_state & follows

    def duplicates(self, stage: Stage) -> Iterator[Mask]:
        """Rows that are not the first to tell of an entry without a window, or of a record."""
        yield self.superseded()
        if stage.deduplicate == "offset":
            yield self.repeated()

    def before_epoch(self) -> Mask:
        """The rows of before 1970; state may have no timestamp, which is -1."""
        timestamp = self.placed.timestamp
        return self.by_row((timestamp < 0) & ~(self.placed.is_state & (timestamp == -1)))

    def tombstones(self) -> Mask:
        """The records without a value."""
        return self.by_row(mask(self.rows.column("value").is_null())) & ~self.is_state


def ints(column: pa.Array) -> Ints:
    """Whole numbers; 0 for null."""
    return np.asarray(pc.fill_null(column, 0).to_numpy(), np.int64)


def mask(column: pa.BooleanArray) -> Mask:
    """Booleans, none of which is null."""
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def view(numbers: npt.NDArray[np.generic]) -> memoryview[int]:
    """To look up and set some elements one by one: sooner than in the array, without a list of all."""
    return memoryview(numbers)  # type: ignore[arg-type]  # a buffer it is


def only(values: pa.Array, rows: Mask) -> pa.Array:
    """The values of some rows, and null for the others."""
    return values.take(pa.array(np.arange(len(rows)), mask=~rows))


def accumulated(ufunc: np.ufunc, values: npt.NDArray[_Number], keys: Keys) -> npt.NDArray[_Number]:
    """Each key's values, folded from its first one up to each: one after the other, so doubles add up to
    what a loop has."""
    out = np.empty_like(values)
    with np.errstate(all="ignore"):  # infinite values are values like others
        for start, end in zip(keys.first.tolist(), keys.end.tolist(), strict=True):
            ufunc.accumulate(values[start:end], out=out[start:end])
    return out


def parted(
    rows: pa.RecordBatch, keys: Keys, special: Sequence[Mask]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows of lines that have none of the special ones, and those of the others.

    `rows` are in the order of lines, which `keys` keeps: only within a line it brings rows together.
    """
    apart = keys.lines_with(np.logical_or.reduce(special))
    if not apart.any():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(~apart)), rows.filter(pa.array(apart))
