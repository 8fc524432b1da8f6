"""What a strategy decides: whether a value goes out with its record, and when its timer fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.core.entry import NEVER, Entry

Time = TypeVar("Time", int, npt.NDArray[np.int64])
"""A time in epoch ms, or many."""

Sameness = Callable[[Any, Any, int, int], bool]
"""Whether two outputs are the same to the stage: (last emitted, now, their timestamps)."""


Marker = Callable[[Any, int], str]
"""What is remembered in place of an output, of that and its timestamp."""


class Emit:
    """A strategy. Settings only: what it knows of a key is in the `Entry`.

    A strategy that lets values out at once answers `on_record`; one that holds them back sets `holds`, and
    answers `due` and `on_time`.
    """

    holds: ClassVar[bool] = False
    """Whether values are held back until a timer fires or something is full."""
    empties: ClassVar[bool] = False
    """Whether what has gone out is no longer part of the value."""
    drains: ClassVar[bool] = True
    """Whether what is held back may go out before its time, when asked to."""
    expires: ClassVar[bool] = False
    """Whether an entry is gone when its timer has fired, window or not."""
    forgets_suppressed: ClassVar[bool] = False
    """Whether a record that does not go out leaves no trace (as far as the value is not an aggregate)."""
    marks: ClassVar[bool] = False
    """Whether it only lets records through or not: of what went out it remembers a mark, and no value."""
    suppressed: ClassVar[str] = "suppressed"
    """What becomes of a record that does not go out."""
    timer_reason: ClassVar[str] = ""
    """Why what is held back goes out when its timer fires."""

    @property
    def remembers_flush(self) -> bool:
        """Whether the next flush depends on when the last one was: an emptied entry stays for that."""
        return False

    @property
    def waits_from_arrival(self) -> bool:
        """Whether what is held back waits from the time of its partition, and not from a timestamp."""
        return False

    @property
    def repeats_by_clock(self) -> bool:
        """Whether a timer emits a value that has gone out already, and that nothing holds back."""
        return False

    @property
    def sets_timers(self) -> bool:
        """Whether entries without a window have timers."""
        return self.holds or self.expires or self.repeats_by_clock

    @property
    def late_after_ms(self) -> int | None:
        """How far behind its partition's time a record is late; None: as late as its window says."""
        return None

    def may_be_late(self, entry: Entry) -> bool:
        """Whether that counts for a record of the entry, as it is before the record."""
        return True

    def marker(self, field: Callable[[str], Callable[[Any], Any]]) -> Marker:
        """Of a strategy that `marks`: only that something went out. `field`: a column -> what reads it of an
        output."""
        return lambda output, timestamp: "seen"

    def repeats(self, last: str, now: str) -> bool:
        """Whether an output says nothing new, by what is remembered in place of the last one and of it."""
        return last == now

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """For people: what is remembered of what last went out."""
        return {"emitted": remembered}

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """The reason why a record lets the entry's value go out, or None.

        `now` is that value, None for a deletion; `entry.emitted` is what last went out. For a strategy that
        holds back, the record is already counted in `entry`.
        """
        return None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        """Whether what entries of a key hold has no room in one text, or not beside an event of such size."""
        return False

    @property
    def full_at(self) -> int | None:
        """How many records held back are as many as there may be; None: any number."""
        return None

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """The time from which what is held back waits, by its first record's timestamp and its partition's
        time with that record."""
        return timestamp

    def due_since(self, since: Time) -> Time:
        """When what is held back goes out by itself, by the time from which it waits."""
        return since * 0 + NEVER  # so many as were asked for

    def due(self, entry: Entry) -> int:
        """The time at which the entry's timer fires, as things are; NEVER if it has none."""
        return entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """The reason why the value goes out when the timer fires, or None: the entry's window is over."""
        return None


def first_seen(entry: Entry, now: Any) -> str | None:
    """The reason for a value that goes out whatever it is; a deletion only if consumers have seen the key."""
    if now is None:
        return "deleted" if entry.emitted is not None else None
    return "changed" if entry.emitted is not None else "new"
