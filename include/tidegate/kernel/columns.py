"""Whole keys as NumPy columns: which of them are plain, and the time of its partition as each key sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.ordering import already_applied, last_where, starts
from tidegate.kernel.rows import FIRST, STATE, Ints, ints, least_times, mask

if TYPE_CHECKING:
    from tidegate.kernel.rows import Mask
    from tidegate.kernel.stage import Batch, Stage

_Number = TypeVar("_Number", bound=np.generic)

_BUSY_COLUMNS = ("pending", "bytes", "due_at", "window_start", "flushed_at")
"""Columns that are null or 0 in the state row of an entry that holds nothing back."""


@dataclass(frozen=True)
class Lines:
    """Whole topic-partitions whose rows were brought together by key.

    `number` is per row the number of its partition (0, 1, 2 …, ascending), and `place` its place among all
    rows as they were before: partition after partition, each in its order.
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
        """The time of each record's partition before the record."""
        return ints(pc.max_element_wise(self._rows.column("time"), least_times(self._rows, self._batch)))


class Keys:
    """Rows of whole keys, at least one, as NumPy columns of one element per row. All times are in epoch ms.

    With `begins`, true where a part of a key begins, these parts count as keys. With `lines`, the keys of a
    partition are decided together, and see the times of all of its records; without, each key is a line.

    `rows` are in the order of lines. A column is brought into the order of keys only when it is first read as
    a whole, which few columns are: in a large partition, that costs more than the decision itself.
    """

    def __init__(
        self, rows: pa.RecordBatch, batch: Batch, begins: Mask | None = None, lines: Lines | None = None
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
        """Return values per place as values per row."""
        return values if self.lines is None else values[self.place]

    def by_place(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Return values per row as values per place.

        Args:
            values: One value per row, in the order of keys.
        """
        if self.lines is None:
            return values
        placed = np.empty_like(values)
        placed[self.place] = values
        return placed

    def column(self, name: str) -> pa.Array:
        """Return a column, one element per row."""
        if name not in self._columns:
            column = self.rows.column(name)
            # a column of nulls is the same in any order, and most state columns are null
            moves = self.lines is not None and column.null_count < len(column)
            self._columns[name] = column.take(pa.array(self.place)) if moves else column
        return self._columns[name]

    def values(self, name: str, rows: Ints) -> pa.Array:
        """Return a column at some rows, without reading the others.

        Args:
            rows: Row numbers, in the order of keys.
        """
        return self.rows.column(name).take(pa.array(rows if self.lines is None else self.place[rows]))

    def stored(self, name: str) -> Ints:
        """Return a column of whole numbers at the state rows; 0 for null.

        Args:
            name: A column of whole numbers, such as `due_at`.
        """
        return ints(self.values(name, self.state))

    def states(self, which: Mask) -> Mask:
        """Return a mask of rows from a mask of state rows.

        Args:
            which: One element per state row, in the order of `state`.
        """
        rows = np.zeros(self.rows.num_rows, np.bool_)
        rows[self.state[which]] = True
        return rows

    @cached_property
    def timestamp(self) -> Ints:
        return self.by_row(self.placed.timestamp)

    @cached_property
    def now(self) -> Ints:
        """The time of each record's partition including the record."""
        return self.by_row(np.maximum(self.placed.before, self.placed.timestamp))

    def causes(self, rows: Ints) -> Ints:
        """Return the cause of emissions that are emitted with these records: `first_by` of the row, or the
        row itself.

        Args:
            rows: Row numbers of records.
        """
        place = self.place[rows]
        # emissions of the record that advances time come first at that instant (`ordering`)
        return np.where(self.placed.timestamp[place] > self.placed.before[place], FIRST - rows, rows)

    @cached_property
    def times(self) -> Times:
        """The times of the lines."""
        return Times(self, self.placed.before)

    @cached_property
    def silences(self) -> Times:
        """The times of the lines, if a record comes after the timers that it is beyond."""
        return Times(self, np.maximum(self.placed.before, self.placed.timestamp - 1))

    def batch_ends(self, row: Ints, requested: Mask) -> Ints:
        """Return the time of rows' partitions at the end of the batch; where `requested` is False, the least
        of all.

        Args:
            row: Row numbers.
            requested: Per element of `row`, whether its own partition counts.
        """
        ends = np.full(len(row), self.batch.least_end)
        if self.batch.ends:
            # only of requested rows: a look-up of each row's topic-partition is a loop in Python
            columns = (self.values(name, row[requested]).to_pylist() for name in ("topic", "partition"))
            homes = zip(*columns, strict=True)
            ends[requested] = [self.batch.end_of(home) for home in homes]
        return ends

    def lines_with(self, rows: Mask) -> Mask:
        """Return per row whether its line contains any of these rows."""
        lines = np.zeros(self.line[-1] + 1, np.bool_)
        lines[self.line[rows]] = True
        return lines[self.line]

    def repeated(self) -> Mask:
        """Return the records that the state of their key already contains."""
        # without state nothing was applied before; this mask is all False, too
        if not len(self.state):
            return self.is_state
        state = last_where(pa.array(self.is_state), self._starts)
        columns = {name: self.column(name) for name in ("topic", "partition", "offset")}
        return mask(already_applied(pa.RecordBatch.from_pydict(columns), state)) & ~self.is_state

    def at_rest(self) -> Mask:
        """Return the rows that are not the state of an entry which holds records back or was in windows."""
        busy = np.logical_or.reduce([self.stored(name) != 0 for name in _BUSY_COLUMNS])
        return ~self.states(busy)

    def begun(self) -> Mask:
        """Return the state rows of entries that hold records back."""
        return self.states(self.stored("pending") > 0)

    def superseded(self) -> Mask:
        """Return the state rows behind another row of their key: it has more than one state row."""
        follows = np.ones(self.rows.num_rows, np.bool_)
        follows[self.first] = False
        return self.is_state & follows

    def duplicates(self, stage: Stage) -> Iterator[Mask]:
        """Rows that are not the first to tell of an entry without a window, or of a record.

        Args:
            stage: Its `deduplicate` says whether a record can be a repetition.
        """
        yield self.superseded()
        if stage.deduplicate == "offset":
            yield self.repeated()

    def before_epoch(self) -> Mask:
        """The rows of before 1970; state may have no timestamp, which is -1."""
        # state without a timestamp has -1, as a record just before 1970 has
        timestamp = self.placed.timestamp
        return self.by_row((timestamp < 0) & ~(self.placed.is_state & (timestamp == -1)))

    def tombstones(self) -> Mask:
        """The records without a value."""
        return self.by_row(mask(self.rows.column("value").is_null())) & ~self.is_state


def accumulated(ufunc: np.ufunc, values: npt.NDArray[_Number], keys: Keys) -> npt.NDArray[_Number]:
    """Return each key's values folded up to each row, one after the other: doubles add up as in a loop.

    Args:
        ufunc: A function of two values, such as `np.add`.
        values: One value per row.
    """
    out = np.empty_like(values)
    # infinite values are legal: no warnings about them
    with np.errstate(all="ignore"):
        # `accumulate` has no way to begin anew at each key
        for start, end in zip(keys.first.tolist(), keys.end.tolist(), strict=True):
            ufunc.accumulate(values[start:end], out=out[start:end])
    return out


def parted(
    rows: pa.RecordBatch, keys: Keys, special: Sequence[Mask]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows of lines without special rows, and the rows of all other lines.

    `rows` are in the order of lines, which `keys` keeps: it brings rows together only within a line.

    Args:
        special: Masks of rows that are not plain.
    """
    # whole lines: the keys of a line share a buffer, so none of them is decided alone
    apart = keys.lines_with(np.logical_or.reduce(special))
    if not apart.any():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(~apart)), rows.filter(pa.array(apart))


class Times:
    """Two steps per row in which timers fire: step 2i is before the row at place i, step 2i + 1 after it.

    At a state row no time has come yet. `ascend` says per row whether time has not gone back since the row
    before, as it does if a key's records are in several partitions. `reached` requires lines without that.
    """

    def __init__(self, keys: Keys, before: Ints) -> None:
        """`before`: per place, the time that fires timers before the record is applied."""
        # not `keys`, which has these times: a cycle would keep their memory until Python looks for cycles
        self._number, self._line, self._place = keys.number, keys.line, keys.place
        self._lines = keys.lines
        at = np.empty((keys.rows.num_rows, 2), np.int64)
        at[:, 0] = before
        np.maximum(at[:, 0], keys.placed.timestamp, out=at[:, 1])
        records = at[~keys.placed.is_state] if len(keys.state) else at
        self._low = int(records[:, 0].min()) - 1 if len(records) else 0
        self._high = int(records[:, 1].max()) if len(records) else 0
        # below all times, so that no timer fires at a state row
        at[keys.placed.is_state] = self._low
        self.at: Ints = at.ravel()
        """Per step, the time in epoch ms."""
        # more than any two times differ by: lines that are shifted by it do not overlap
        self._span = self._high - self._low + 2
        self._line_end: Ints = np.cumsum(np.bincount(keys.line))

    def last(self, row: Ints) -> Ints:
        """Return the step after the last one of the rows' lines."""
        last: Ints = 2 * self._line_end[self._line[row]]
        return last

    @property
    def ascend(self) -> Mask:
        """Whether time does not go back at each row; all False if lines and times exceed 62 bits."""
        if self._span * len(self._line_end) >= 2**62:
            return np.zeros(len(self._line), np.bool_)
        ascend = np.ones(len(self._line), np.bool_)
        ascend[1:] = self.at[2::2] >= self.at[1:-1:2]
        # the row before a line's first one is of another line
        ascend[self._line_end[:-1]] = True
        return ascend if self._lines is None else ascend[self._place]

    def reached(self, due: Ints) -> Ints:
        """Return per place the first step after it in which its line's time is at least `due`.

        If there is none, it is the step after the line's last one. Places are searched in order, so that each
        query is near the one before: several times as fast in a long array as by row.

        Args:
            due: Per place, the time of a timer that is set there, in epoch ms.
        """
        steps, queries = self.at, np.clip(due, self._low + 1, self._high + 1)
        if len(self._line_end) > 1:
            # per row, but the same per place
            shift = self._line * self._span  # so that one line's times come after the other's
            steps = (steps.reshape(-1, 2) + shift[:, np.newaxis]).ravel()
            queries += shift
        # one search for all lines, as if they were one ascending line
        step = np.searchsorted(steps, queries)
        # a timer does not fire before the row that sets it
        return np.maximum(step, np.arange(1, len(steps), 2), out=step)

    def row_at(self, step: Ints) -> Ints:
        """Return per row the first row of its key, or else of the next key, that comes after the step.

        Args:
            step: Per row, a step.
        """
        places = (step + 1) // 2
        if self._lines is None:
            return places
        # (key, place) as one ascending number: the search stays within the row's key
        keys = self._number * (len(places) + 1)
        places += keys
        keys += self._place
        return np.searchsorted(keys, places)


def by_key(rows: pa.RecordBatch, batch: Batch) -> Keys:
    """Return the keys of each partition in the order of their texts; each key's rows keep their order.

    Args:
        rows: Rows of whole topic-partitions, sorted as `rows.BY_PARTITION`.
    """
    # these rows are sorted by topic-partition, so each change begins a line
    moved = pc.or_(starts(rows.column("topic")), starts(rows.column("partition")))
    line = np.cumsum(mask(moved)) - 1
    rank, keys = _ranks(rows.column("key"))
    # NumPy sorts small integers by radix, which is much faster
    small = np.min_scalar_type((int(line[-1]) + 1) * keys)
    number = line.astype(small) * small.type(keys) + rank.astype(small)
    order = np.argsort(number, kind="stable")
    number = number[order]
    begins = np.append(True, number[1:] != number[:-1])
    return Keys(rows, batch, begins, Lines(line, order))


def _ranks(keys: pa.StringArray) -> tuple[Ints, int]:
    """Return per row the number of texts that sort before its own, and the number of distinct texts."""
    encoded = keys.dictionary_encode()
    # sorts the distinct texts only: a partition has many more rows than keys
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()], len(rank)
