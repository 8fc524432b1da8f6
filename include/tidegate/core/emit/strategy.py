"""The decisions of a strategy: whether a value is emitted with its record, and when its timer fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.core.entry import NEVER, Entry

Time = TypeVar("Time", int, npt.NDArray[np.int64])
"""A time in epoch ms, or many."""

Sameness = Callable[[Any, Any, int, int], bool]
"""Returns whether two outputs are the same to the stage: (last emitted, now, timestamp of each)."""


Marker = Callable[[Any, int], str]
"""Returns the mark that is stored in place of an output, from the output and its timestamp."""


class Emit:
    """A strategy. It has only settings: all state of a key is in the `Entry`.

    A strategy that emits values at once implements `on_record`; one that holds them back sets `holds`, and
    implements `due` and `on_time`.
    """

    holds: ClassVar[bool] = False
    """Whether values are held back until a timer fires or a buffer is full."""
    empties: ClassVar[bool] = False
    """Whether emitted records are no longer part of the value."""
    drains: ClassVar[bool] = True
    """Whether a drain may emit values that are held back before their time."""
    expires: ClassVar[bool] = False
    """Whether an entry expires when its timer has fired, with or without a window."""
    forgets_suppressed: ClassVar[bool] = False
    """Whether a record that is not emitted leaves no trace in state (unless the value is an aggregate)."""
    marks: ClassVar[bool] = False
    """Whether it only forwards or suppresses records: it stores a mark of the last emission, and no value."""
    suppressed: ClassVar[str] = "suppressed"
    """The fate of a record that is not emitted."""
    timer_reason: ClassVar[str] = ""
    """The reason of emissions when the timer fires."""

    @property
    def remembers_flush(self) -> bool:
        """Whether the next flush depends on the time of the last one, for which an emptied entry is kept."""
        return False

    @property
    def waits_from_arrival(self) -> bool:
        """Whether values wait from the time of their partition, and not from a timestamp."""
        return False

    @property
    def repeats_by_clock(self) -> bool:
        """Whether a timer repeats an emitted value that nothing holds back."""
        return False

    @property
    def sets_timers(self) -> bool:
        """Whether entries without a window have timers."""
        return self.holds or self.expires or self.repeats_by_clock

    @property
    def late_after_ms(self) -> int | None:
        """The distance behind its partition's time at which a record is late; None: the window decides."""
        return None

    def may_be_late(self, entry: Entry) -> bool:
        """Return whether `late_after_ms` applies to a record of the entry, as the entry is before
        the record.
        """
        return True

    def marker(self, field: Callable[[str], Callable[[Any], Any]]) -> Marker:
        """Return the function that makes the mark of an emission, for a strategy that `marks`.

        `field` takes a column and returns the function that reads it from an output. By default a mark only
        says that something was emitted.
        """
        return lambda output, timestamp: "seen"

    def repeats(self, last: str, now: str) -> bool:
        """Return whether an output repeats the last one, by their marks or hashes."""
        return last == now

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """Return for people what is stored of the last emission."""
        return {"emitted": remembered}

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return the reason why a record triggers an emission of the entry's value, or None.

        `now` is the value, None for a deletion; `entry.emitted` is what was emitted last. For a strategy that
        holds values back, `entry` already contains the record.
        """
        return None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        """Return whether the values of a key's entries do not fit into one text together, or not with one
        more event of `event_bytes`.
        """
        return False

    @property
    def full_at(self) -> int | None:
        """The number of held-back records that fills a buffer; None: any number fits."""
        return None

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """Return the time from which values wait, by the first record's timestamp and its partition's time
        with it.
        """
        return timestamp

    def due_since(self, since: Time) -> Time:
        """Return when values that wait from `since` are emitted by the timer."""
        return since * 0 + NEVER  # an array for an array

    def due(self, entry: Entry) -> int:
        """Return the time at which the entry's timer fires as things are; NEVER if it has none."""
        return entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for an emission when the timer fires; None if only the entry's window is over."""
        return None


def first_seen(entry: Entry, now: Any) -> str | None:
    """Return the reason for an emission without comparison; a deletion only if consumers have
    seen the key.
    """
    if now is None:
        return "deleted" if entry.emitted is not None else None
    return "changed" if entry.emitted is not None else "new"
