"""Bounded buffers: the limit of what a topic-partition may hold back, and what happens beyond it."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.errors import BufferFull
from tidegate.kernel.counts import Counts
from tidegate.kernel.entry import Entry
from tidegate.kernel.strategy import Bound
from tidegate.kernel.values import Values


class Buffer:
    """The entries of one topic-partition that hold records back, with their bytes if the bound
    counts them.
    """

    def __init__(self, bound: Bound, values: Values, counts: Counts) -> None:
        self._bound = bound
        self._values = values
        self._counts = counts
        self._pending: dict[Entry, int] = {}
        self._bytes = 0
        self._peak_records = 0
        self._peak_bytes = 0

    def begin(self) -> None:
        """Start to count peaks: all state is restored. Superseded state rows before this may have been
        larger.
        """
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
        """Return a function that restores the peaks of this moment. The caller counts changed entries anew
        itself.
        """
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
