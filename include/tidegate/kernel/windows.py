"""The windows of a record, and when they are over. All times are in ms; DESIGN, "Windows"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tidegate.kernel.options import BadOption, Delay, Duration, HasOptions, option

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


_DURATION = re.compile(r"(?P<count>[0-9]{1,15})(?P<unit>ms|s|m|h|d)")


def parse_duration(written: str) -> int | None:
    """Return a duration in milliseconds; None if the text is not one.

    >>> parse_duration("10m"), parse_duration("10 min")
    (600000, None)
    """
    match = _DURATION.fullmatch(written)
    return int(match["count"]) * UNITS[match["unit"]] if match else None


def write_duration(milliseconds: int) -> str:
    """Return a duration as a file has it, with the largest unit that gives a whole number.

    >>> write_duration(90_000)
    '90s'
    """
    if milliseconds == 0:
        return "0ms"
    unit = next(unit for unit, size in UNITS.items() if milliseconds % size == 0)
    return f"{milliseconds // UNITS[unit]}{unit}"


Span = tuple[int, int]
"""[start, end) of a tumbling or hopping window; [first, last] timestamps of a session."""


MAX_WINDOWS = 10_000
"""The largest number of windows of a record: for each one the record becomes a row, and so does the state."""


class Window(Protocol):
    """A kind of window: its options, and the rule that assigns records to windows."""

    merges: ClassVar[bool]
    """Whether a record can extend a window, or join several into one."""

    @property
    def aligned_ms(self) -> int | None:
        """The size of windows that lie side by side from the epoch; None for other windows."""
        ...

    @property
    def grace_ms(self) -> int:
        """The time for which a window accepts records after its end, in milliseconds."""
        ...

    @property
    def open_ms(self) -> int:
        """The time from its start, or a session's last record, to the close of a window, in milliseconds."""
        ...

    @property
    def windows_per_record(self) -> int:
        """The largest number of windows that a record is in."""
        ...

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first; of a session, that of a record that follows no
        other.

        Args:
            timestamp: Epoch ms, not before 1970.
        """
        ...

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over: no record joins it any more.

        Args:
            span: A window that `spans` has returned, or a session that records have extended.
        """
        ...

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for a window, or for the session that it would make.

        Args:
            span: The record's window.
            now: The time of its partition, with the record.
        """
        ...

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a record belongs to a window that merges.

        Args:
            span: A window of the record's key.
            timestamp: The record's.
        """
        ...


_GRACE = "How long after its end a window still accepts records."


def _leaves_no_gaps(every_ms: int, options: Mapping[str, Any]) -> None:
    size_ms = options.get("size_ms")
    if size_ms is not None and every_ms > size_ms:
        size = write_duration(size_ms)
        what = f"windows of {size} every {write_duration(every_ms)} leave gaps between them"
        raise BadOption(what, f"Write at most `every: {size}`.")
    if size_ms is not None and size_ms > every_ms * MAX_WINDOWS:
        what = f"each record would be in {-(-size_ms // every_ms):,} windows"
        least = write_duration(-(-size_ms // MAX_WINDOWS))
        raise BadOption(what, f"Write at least `every: {least}`: {MAX_WINDOWS:,} windows are the most.")


class _Fixed(HasOptions):
    """Windows of one size, which is known before any record arrives."""

    merges: ClassVar[bool] = False
    size_ms: int
    grace_ms: int

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of a window, in milliseconds."""
        return self.size_ms + self.grace_ms

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over.

        Example: `(0, 10)` with a grace of 5 closes at 15.
        """
        return span[1] + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for a window.

        Example: for `(0, 10)` with a grace of 5, a record at 15 is late, and at 14 it is not.
        """
        return self.close(span) <= now

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a timestamp is in a window."""
        return span[0] <= timestamp < span[1]


@dataclass(frozen=True)
class Tumbling(_Fixed):
    """Windows of the same size, side by side, aligned to the epoch."""

    size_ms: Duration = option("The windows' size.", "tumbling: 1h", written="tumbling")
    grace_ms: Delay = option(_GRACE, "grace: 10m", default=0, written="grace")

    @property
    def aligned_ms(self) -> int | None:
        """The windows' size."""
        return self.size_ms

    @property
    def windows_per_record(self) -> int:
        """One: the windows do not overlap."""
        return 1

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the one window of a timestamp.

        Example: size 10 gives `((0, 10),)` for timestamp 7.
        """
        start = timestamp - timestamp % self.size_ms
        return ((start, start + self.size_ms),)


@dataclass(frozen=True)
class Hopping(_Fixed):
    """Windows of the same size, one of which starts every `every`, aligned to the epoch. They can overlap."""

    size_ms: Duration = option("The windows' size.", "hopping: 1h", written="hopping")
    every_ms: Duration = option(
        "The time between the starts of two windows.", "every: 10m", written="every", check=_leaves_no_gaps
    )
    grace_ms: Delay = option(_GRACE, "grace: 10m", default=0, written="grace")

    @property
    def aligned_ms(self) -> int | None:
        """None: the windows can overlap."""
        return None

    @property
    def windows_per_record(self) -> int:
        """The windows that start within one size."""
        return -(-self.size_ms // self.every_ms)

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first; none starts before the epoch.

        Example: size 10 and every 5 give `((0, 10), (5, 15))` for timestamp 7.
        """
        every, size = self.every_ms, self.size_ms
        # the first multiple of `every` whose window still contains the timestamp
        first = max(0, timestamp - size + every) // every * every
        return tuple((start, start + size) for start in range(first, timestamp + 1, every))


@dataclass(frozen=True)
class Session(HasOptions):
    """A window that lasts as long as records follow each other within the gap."""

    gap_ms: Duration = option(
        "The gap: a record after a longer pause begins another window.", "session: 30m", written="session"
    )
    grace_ms: Delay = option(_GRACE, "grace: 10m", default=0, written="grace")
    merges: ClassVar[bool] = True

    @property
    def aligned_ms(self) -> int | None:
        """None: a session begins with a record."""
        return None

    @property
    def open_ms(self) -> int:
        """The time from its last record to the close of a window, in milliseconds."""
        return self.gap_ms + self.grace_ms

    @property
    def windows_per_record(self) -> int:
        """One: a record that is near two sessions joins them."""
        return 1

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the window of a record that follows no other.

        Example: `((7, 7),)` for timestamp 7.
        """
        return ((timestamp, timestamp),)

    def close(self, span: Span) -> int:
        """Return the stream time at which the session is over: no record joins it any more.

        Example: `(3, 7)` with a gap of 10 and a grace of 5 closes at 22.
        """
        return span[1] + self.gap_ms + self.grace_ms

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for the session that it would make; at the limit it does
        not.
        """
        return self.close(span) < now

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a record belongs to a session.

        Example: with a gap of 10, `(20, 30)` is joined by timestamps from 10 to 40.
        """
        return span[0] - self.gap_ms <= timestamp <= span[1] + self.gap_ms


WINDOWS: tuple[type[Window], ...] = (Tumbling, Hopping, Session)
"""The kinds of windows. The first option of each names the kind in a file."""
