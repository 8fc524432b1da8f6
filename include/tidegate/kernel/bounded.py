"""Bounded buffers on whole columns: find the entries that a full buffer emits early.

While a buffer has room, nothing depends on its bound, and sums tell how full it gets. Only a partition whose
buffer overflows is traversed, not record by record, but from the begin of one holding to the next: records in
between change neither the number of holdings nor which of them is emitted first.

`max_bytes` is left to `loop`: there each record changes how full the buffer is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from typing import Any, Literal

import numpy as np

from tidegate.errors import BufferFull
from tidegate.kernel.columns import Keys
from tidegate.kernel.counts import Counts
from tidegate.kernel.options import BadOption, Count, HasOptions, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.rows import Ints, Mask, view
from tidegate.kernel.state import Entry


@dataclass(frozen=True)
class Bound(HasOptions):
    """The bound of a buffer per topic-partition, in keys or in bytes of keys and values, and what
    happens beyond it.
    """

    max_records: Count | None = option(
        "The most keys (and windows) in the buffer, per topic-partition.", "max_records: 1000", default=None
    )
    max_bytes: Count | None = option(
        "The most bytes of key and value, per topic-partition.", "max_bytes: 10_000_000", default=None
    )
    when_full: Literal["emit_early", "shut_down", "spill"] = option(
        "The oldest value is emitted, the batch fails with `BufferFull`, or there is no bound.",
        "when_full: shut_down",
        default="emit_early",
    )

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Any) -> Mapping[str, Any]:
        """Return the options. Raises BadOption if there is no bound."""
        unlimited = options["max_records"] is None and options["max_bytes"] is None
        if options["when_full"] != "spill" and unlimited:
            fix = "Write `max_records: 1000` or `max_bytes: 10_000_000`; without a buffer there is no bound."
            raise BadOption("the buffer has no bound", fix)
        return options


class Buffer:
    """The entries of a topic-partition that hold records back, with their bytes if they count."""

    def __init__(self, bound: Bound, values: Values, counts: Counts) -> None:
        self._bound = bound
        self._values = values
        self._counts = counts
        self._pending: dict[Entry, int] = {}
        self._bytes = 0
        self._peak_records = 0
        self._peak_bytes = 0

    def begin(self) -> None:
        """Start to count peaks, behind the state, whose superseded rows may have been larger."""
        self._peak_records, self._peak_bytes = len(self._pending), self._bytes

    def update(self, entry: Entry) -> None:
        """Count an entry anew after a record, a flush or a roll-back; an entry without pending records is not
        counted.

        Args:
            entry: An entry of the topic-partition whose buffer this is.
        """
        # Without `max_bytes` an entry counts as one, however many records it holds.
        if self._bound.max_bytes is None and entry.pending and entry in self._pending:
            return
        # the old size first: the entry may have grown, shrunk or been emptied
        self._bytes -= self._pending.pop(entry, 0)
        if entry.pending:
            self._pending[entry] = size = self._size(entry) if self._bound.max_bytes is not None else 0
            self._bytes += size
            self._peak_records = max(self._peak_records, len(self._pending))
            self._peak_bytes = max(self._peak_bytes, self._bytes)

    def savepoint(self) -> Callable[[], None]:
        """Return a function that restores the present peaks; the caller counts changed entries anew."""
        peaks = self._peak_records, self._peak_bytes

        def roll_back() -> None:
            self._peak_records, self._peak_bytes = peaks

        return roll_back

    def _size(self, entry: Entry) -> int:
        return len(entry.key.encode()) + self._values.size(entry.accumulator)

    @property
    def is_full(self) -> bool:
        """Whether the buffer holds more than its bound."""
        most, bytes_ = self._bound.max_records, self._bound.max_bytes
        # a buffer at its bound is not full yet: only the next entry makes it overflow
        return (most is not None and len(self._pending) > most) or (
            bytes_ is not None and self._bytes > bytes_
        )

    def require_early(self) -> None:
        """Raises BufferFull if the stage may not emit early."""
        if self._bound.when_full == "shut_down":
            raise buffer_full(self._bound, len(self._pending), self._bytes)

    def clear(self) -> None:
        """Report the peaks of a partition that is finished, and start anew."""
        self._counts.include({"suppression-buffer-records-max": self._peak_records})
        if self._bound.max_bytes is not None:
            self._counts.include({"suppression-buffer-bytes-max": self._peak_bytes})
        self._pending.clear()
        self._bytes = self._peak_bytes = self._peak_records = 0


def buffer_full(bound: Bound, records: int, bytes_: int = 0) -> BufferFull:
    """Return the error for a buffer that would have to hold this many records (and bytes).

    Args:
        records: The number of entries, with the one that exceeds the bound.
        bytes_: The bytes of their keys and values; only used if the bound counts bytes.
    """
    bounds = {"max_records": bound.max_records, "max_bytes": bound.max_bytes}
    described = ", ".join(f"`{name}: {most}`" for name, most in bounds.items() if most is not None)
    return BufferFull(
        f"A buffer would have to hold {records} records"
        + (f" with {bytes_} bytes" if bound.max_bytes is not None else "")
        + f", more than {described}",
        "Nothing was written and no offset moved. Raise `max_records` or `max_bytes`, or use "
        "`when_full: spill`.",
    )


_PEAK = "suppression-buffer-records-max"


@dataclass(frozen=True)
class Holdings:
    """Runs of a key's rows that are held back together, one element per run.

    `first` and `end`: the run's first row, and the row after its last. `evictor`: the row of the record that
    evicts it early, or -1.
    """

    first: Ints
    end: Ints
    evictor: Ints


@dataclass(frozen=True)
class Natural:
    """The end of a holding that begins at a row, if there is room for it.

    `due`: per place, the time of its timer in epoch ms. `step`: per row, the step in which the timer fires.
    `end`: per row, the row after the holding's last.
    """

    due: Ints
    step: Ints
    end: Ints


def suits(bound: Bound) -> bool:
    """Return whether column kernels support the bound.

    Example: `suits(Bound(max_records=1000))` is True, `suits(Bound(max_bytes=1000))` is False.
    """
    return bound.max_bytes is None


def overfull(bound: Bound, keys: Keys) -> Mask:
    """Return the rows of partitions whose stored state exceeds the bound, because the bound was larger
    before.

    Args:
        keys: The rows of whole partitions, with their state.
    """
    pending = np.bincount(keys.line[keys.begun()], minlength=int(keys.line[-1]) + 1)
    rows: Mask = (pending > _max_records(bound))[keys.line]
    return rows


def require_room(bound: Bound, keys: Keys, first: Ints, step: Ints, counts: Counts) -> None:
    """Count how full buffers get that never emit early. Raises BufferFull if one exceeds its bound.

    `first` is the first row of each holding, `step` the step in which its timer fires.

    Args:
        keys: The rows of whole partitions.
        counts: Gets the peak of the buffers.
    """
    occupancy = _Occupancy(keys, first, step)
    above = occupancy.lines_above(_max_records(bound))
    if above.any():
        # record by record, the batch would stop at the first entry beyond the bound
        raise buffer_full(bound, _max_records(bound) + 1)
    counts.include({_PEAK: occupancy.peak(~above)})


def within(bound: Bound, keys: Keys, natural: Natural, first: Ints, counts: Counts) -> Holdings:
    """Return the holdings in buffers with this bound, key by key. Raises BufferFull if the bound forbids
    early emission and a buffer exceeds it.

    `first` is the first row of each holding without a bound.

    Args:
        natural: Where holdings end if there is room for them.
        counts: Gets the peak of the buffers.
    """
    if bound.when_full == "shut_down":
        require_room(bound, keys, first, natural.step[first], counts)
        return Holdings(first, natural.end[first], np.full(len(first), -1))
    most = _max_records(bound)
    occupancy = _Occupancy(keys, first, natural.step[first])
    above = occupancy.lines_above(most)
    counts.include({_PEAK: occupancy.peak(~above)})
    if not above.any():
        return Holdings(first, natural.end[first], np.full(len(first), -1))
    # a record is in the buffer for a moment before it evicts another one
    counts.include({_PEAK: most + 1})
    line = keys.line[first]
    buffers = _FullBuffers(keys, natural, first[~above[line]])
    # only a key's first holding is certain: evictions decide where the next ones begin
    opens = np.diff(keys.number[first], prepend=-1) != 0
    for number in np.flatnonzero(above).tolist():
        buffers.go_through(first[opens & (line == number)], most)
    return buffers.holdings()


def _max_records(bound: Bound) -> int:
    assert bound.max_records is not None
    return bound.max_records


class _Occupancy:
    """The number of entries that hold records back, whenever one more does; nothing is emitted early."""

    def __init__(self, keys: Keys, first: Ints, step: Ints) -> None:
        # `Times` has two steps per place: 2i before the record, 2i + 1 after it
        begins = np.sort(2 * keys.place[first])
        releases = np.sort(step)  # those of a line come before the begins of the next one
        number = np.arange(1, len(first) + 1)
        # the holdings that have begun, without those whose timers have fired before
        self._with_record = number - np.searchsorted(releases, begins, side="right")
        self._after_record = number - np.searchsorted(releases, begins + 1, side="right")
        self._line = keys.line[begins // 2]
        self._lines = int(keys.line[-1]) + 1

    def peak(self, lines: Mask) -> int:
        """Return the largest number in these lines before a record's own time fires timers."""
        return int(self._with_record[lines[self._line]].max(initial=0))

    def lines_above(self, most: int) -> Mask:
        """Return per line whether more than `most` holdings are left after a record."""
        above = np.zeros(self._lines, np.bool_)
        above[self._line[self._after_record > most]] = True
        return above


class _FullBuffers:
    """Partitions whose buffers overflow, one after the other.

    A key either waits for its next record or has a holding; so two heaps contain all that can happen next. A
    holding in a heap is one number, made of due time and row: pairs would be slower to compare. `roomy` are
    the first rows of the holdings of all other partitions.
    """

    def __init__(self, keys: Keys, natural: Natural, roomy: Ints) -> None:
        self._beyond = rows = keys.rows.num_rows
        """A place that no record has."""
        self._bits = rows.bit_length()
        self._place = keys.place
        self._row = keys.by_place(np.arange(rows))
        self._timer = (_ranked(natural.due, self._bits) << self._bits) + self._row
        """Per place, due time and row of a holding that begins there; rows have the order of keys."""
        self._follows: Ints = np.append(keys.place, rows)
        """Per row, its place, if there are rows of its key before it."""
        self._follows[keys.first] = rows
        self._step = natural.step
        self._end = natural.end.copy()
        self._evictor = np.full(rows, -1)
        """Per first row of a holding that goes out early, the place of the record that it goes out for."""
        self._is_first = np.zeros(rows, np.bool_)
        self._is_first[roomy] = True

    def go_through(self, opening: Ints, most: int) -> None:
        """Find the holdings of a partition. `opening` is the first row of the first holding of each key."""
        timer, follows, step = view(self._timer), view(self._follows), view(self._step)
        end, evictor, is_first = view(self._end), view(self._evictor), view(self._is_first)
        row_bits = (1 << self._bits) - 1
        # `_beyond` ends the loop: it comes after every record
        begins = [*self._place[opening].tolist(), self._beyond]
        heapify(begins)
        pending: list[int] = []
        while True:
            place = begins[0]
            if pending and step[pending[0] & row_bits] <= 2 * place:
                # its timer fires before the next record: its key waits for that key's own next record
                row = heappop(pending) & row_bits
                heappush(begins, follows[end[row]])
            elif place == self._beyond:
                return
            elif len(pending) < most:
                heappush(pending, timer[heappop(begins)])
                continue
            else:  # no room for the record: evict what is due first, unless its time has come anyway
                row = heappushpop(pending, timer[place]) & row_bits
                if step[row] > 2 * place + 1:
                    evictor[row] = place
                    # the evicted holding has its key's rows up to this record
                    end[row] = bisect_right(follows, place, row + 1, end[row])
                heapreplace(begins, follows[end[row]])
            is_first[row] = True

    def holdings(self) -> Holdings:
        """Return all holdings, key by key."""
        first = np.flatnonzero(self._is_first)
        place = self._evictor[first]
        return Holdings(first, self._end[first], np.where(place < 0, -1, self._row[place]))


def _ranked(due: Ints, bits: int) -> Ints:
    """Return numbers in the order of due times that leave `bits` bits free."""
    least = int(due.min())
    if (int(due.max()) - least).bit_length() + bits < 63:
        return due - least
    # times too far apart to share 64 bits with a row: their ranks have the same order
    return np.unique(due, return_inverse=True)[1]
