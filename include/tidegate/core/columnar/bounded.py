"""Bounded buffers on whole columns: which entries a full one lets out early.

As long as a buffer has room, nothing in it depends on the bound, and sums tell how full it gets. Only a
partition in which it gets too full is gone through, and not record by record, but from one holding's begin
to the next: what lies between changes neither how many there are nor which of them goes first.

`max_bytes` is left to `folding`: there each record changes how full the buffer is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heappushpop, heapreplace

import numpy as np

from tidegate.core.bounded import buffer_full
from tidegate.core.columnar.keys import Ints, Keys, Mask
from tidegate.core.counts import Counts
from tidegate.core.stage import Bound

_PEAK = "suppression-buffer-records-max"


@dataclass(frozen=True)
class Holdings:
    """What is held back, one element each. `first`, `end`: its first row, and the row after its last.
    `evictor`: the row of the record for which it goes out early, or -1.
    """

    first: Ints
    end: Ints
    evictor: Ints


@dataclass(frozen=True)
class Natural:
    """Per row, how a holding ends that begins there, if there is room for it: its timer's `due` time in epoch
    ms, the `step` in which that fires, and the row after the holding's last, `end`."""

    due: Ints
    step: Ints
    end: Ints


def suits(bound: Bound) -> bool:
    """Whether such a bound is kept on columns."""
    return bound.max_bytes is None


def overfull(bound: Bound, keys: Keys) -> Mask:
    """The rows of partitions of which state has more than there may be: the bound was a larger one."""
    pending = np.bincount(keys.line, keys.begun())
    rows: Mask = (pending > _max_records(bound))[keys.line]
    return rows


def require_room(bound: Bound, keys: Keys, first: Ints, step: Ints, counts: Counts) -> None:
    """Count how full buffers get that let nothing out early. Raises BufferFull.

    `first`, `step`: the first row of each holding, and the step in which its timer fires.
    """
    occupancy = _Occupancy(keys, first, step)
    above = occupancy.lines_above(_max_records(bound))
    if above.any():
        raise buffer_full(bound, _max_records(bound) + 1)
    counts.include({_PEAK: occupancy.peak(~above)})


def within(bound: Bound, keys: Keys, natural: Natural, first: Ints, counts: Counts) -> Holdings:
    """The holdings in buffers with this bound, key by key. `first`: the first row of each without a bound."""
    if bound.when_full == "shut_down":
        require_room(bound, keys, first, natural.step[first], counts)
        return Holdings(first, natural.end[first], np.full(len(first), -1))
    occupancy = _Occupancy(keys, first, natural.step[first])
    above = occupancy.lines_above(_max_records(bound))
    line = keys.line[first]
    roomy = first[~above[line]]
    counts.include({_PEAK: occupancy.peak(~above)})
    parts = [Holdings(roomy, natural.end[roomy], np.full(len(roomy), -1))]
    for number in np.flatnonzero(above).tolist():
        partition = _Partition(keys, natural, first[line == number], _max_records(bound))
        parts.append(partition.holdings())
        counts.include({_PEAK: partition.peak})
    return _key_by_key(parts)


def _max_records(bound: Bound) -> int:
    assert bound.max_records is not None
    return bound.max_records


def _key_by_key(parts: list[Holdings]) -> Holdings:
    first, end, evictor = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "end", "evictor")
    )
    order = np.argsort(first)
    return Holdings(first[order], end[order], evictor[order])


class _Occupancy:
    """How many entries hold something back whenever one more does, if nothing goes out early."""

    def __init__(self, keys: Keys, first: Ints, step: Ints) -> None:
        begins = np.sort(2 * keys.place[first])
        releases = np.sort(step)  # those of a line come before the begins of the next one
        number = np.arange(1, len(first) + 1)
        self._with_record = number - np.searchsorted(releases, begins, side="right")
        self._after_record = number - np.searchsorted(releases, begins + 1, side="right")
        self._line = keys.line[begins // 2]
        self._lines = int(keys.line[-1]) + 1

    def peak(self, lines: Mask) -> int:
        """The most of any of these lines, before a record's own time lets anything out."""
        return int(self._with_record[lines[self._line]].max(initial=0))

    def lines_above(self, most: int) -> Mask:
        """Per line, whether more than so many are left after a record."""
        above = np.zeros(self._lines, np.bool_)
        above[self._line[self._after_record > most]] = True
        return above


class _Partition:
    """A partition whose buffer gets too full. Rows and places count from its first one.

    An entry waits for its next record, or it is held: so two heaps have all that can happen next. A held one
    is a single number, due time and row: pairs would be slower to compare.
    """

    def __init__(self, keys: Keys, natural: Natural, first: Ints, most: int) -> None:
        line = keys.line[first[0]]
        low, high = np.searchsorted(keys.line, [line, line + 1]).tolist()
        self._low, self._rows, self._most = low, high - low, most
        place = keys.place[low:high] - low
        row = np.empty(self._rows, np.int64)
        row[place] = np.arange(self._rows)
        key_end = keys.end[keys.number[low:high]] - low
        # few rows are looked up, so these are cheaper than lists of all
        self._place, self._row, self._key_end = _view(place), _view(row), _view(key_end)
        self._due = _view(natural.due[low:high])
        self._step = _view(natural.step[low:high] - 2 * low)
        self._end = _view(natural.end[low:high] - low)
        of_keys = first[np.diff(keys.number[first], prepend=-1) != 0] - low
        self._begins: list[int] = [*place[of_keys].tolist(), self._rows]  # the last is beyond all records
        heapify(self._begins)
        self._pending: list[int] = []
        """Due time and first row as one number. The order of rows is that of the keys."""
        self._holdings: list[int] = []
        """Of one after the other: the first row, the row after the last, the evictor's row or -1."""
        self.peak = 0

    def holdings(self) -> Holdings:
        """All of them, in the order in which they end."""
        begins, pending, rows, step = self._begins, self._pending, self._rows, self._step
        while True:
            while pending and step[pending[0] % rows] <= 2 * begins[0]:
                self._fire(heappop(pending) % rows)
            place = begins[0]
            if place == rows:
                break
            if len(pending) == self._most:
                self._relieve(place)
            else:
                row = self._row[heappop(begins)]
                heappush(pending, self._due[row] * rows + row)
                self.peak = max(self.peak, len(pending))
        first, end, evictor = np.array(self._holdings, np.int64).reshape(-1, 3).T
        return Holdings(first + self._low, end + self._low, np.where(evictor < 0, -1, evictor + self._low))

    def _fire(self, row: int) -> None:
        """The timer of the holding with this first row fires."""
        end = self._end[row]
        self._holdings += (row, end, -1)
        if end < self._key_end[row]:
            heappush(self._begins, self._place[end])

    def _relieve(self, place: int) -> None:
        """Take a record that is too much; let out what its time has reached, or else what is due first."""
        pending, rows, step = self._pending, self._rows, self._step
        self.peak = self._most + 1
        evictor = self._row[place]
        row = heappushpop(pending, self._due[evictor] * rows + evictor) % rows
        if step[row] > 2 * place + 1:
            end = bisect_right(self._place, place, row + 1, self._end[row])
            self._holdings += (row, end, evictor)
            if end < self._key_end[row]:
                heapreplace(self._begins, self._place[end])
            else:
                heappop(self._begins)
            return
        heappop(self._begins)
        self._fire(row)
        while pending and step[pending[0] % rows] <= 2 * place + 1:
            self._fire(heappop(pending) % rows)


def _view(numbers: Ints) -> memoryview[int]:
    return memoryview(np.ascontiguousarray(numbers, np.int64))  # type: ignore[arg-type]  # a buffer it is
