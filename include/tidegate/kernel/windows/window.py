"""What a kind of window is, and what kinds of a fixed size share: see docs/semantics.md, "Windows". All times
are in ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.kernel.options import BadOption, HasOptions

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


Ints = npt.NDArray[np.int64]

Span = tuple[int, int]
"""[start, end) of a tumbling or hopping window; [first, last] timestamps of a session."""

MAX_WINDOWS = 10_000
"""The largest number of windows of a record: for each one the record becomes a row, and so does the state."""

GRACE = "How long after its end a window still accepts records."


class Window(HasOptions):
    """A kind of window: its options, and the rule that assigns records to windows."""

    merges: ClassVar[bool] = False
    """Whether a record can extend a window, or join several into one."""
    lie_side_by_side: ClassVar[bool] = False
    """Whether each record is in exactly one window, so that `bounds` decides whole columns."""
    accumulates: ClassVar[bool] = False
    """Whether a window contains the shorter ones with its start: its final result is emitted only if it
    differs from theirs.
    """
    slides: ClassVar[bool] = False
    """Whether the records of a key define its windows (`windows.sliding`)."""
    only_aggregates: ClassVar[bool] = False
    """Whether it needs a value that stays in its state when it is emitted, and that one record cannot
    replace.
    """
    pairs: ClassVar[bool] = False
    """Whether an entry is one record, which is paired with others (`strategies.join`): its span only tells it
    apart, and no emission has it.
    """
    grace_ms: int

    @property
    def open_ms(self) -> int:
        """The time from its start, or a session's last record, to the close of a window, in milliseconds."""
        raise NotImplementedError

    @property
    def windows_per_record(self) -> int:
        """The largest number of windows that a record is in."""
        return 1

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first; of a session, that of a record that follows no
        other.

        Args:
            timestamp: Epoch ms, not before 1970.
        """
        raise NotImplementedError

    def bounds(self, timestamps: Ints) -> tuple[Ints, Ints]:
        """Return the start and the end of the window of each timestamp, for windows that lie side by side.

        Args:
            timestamps: Epoch ms, not before 1970.
        """
        raise NotImplementedError

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over: no record joins it any more.

        Example: `(0, 10)` with a grace of 5 closes at 15.

        Args:
            span: A window that `spans` has returned, or a session that records have extended.
        """
        return span[1] + self.grace_ms

    def forget(self, span: Span) -> int:
        """Return the stream time from which the contents of a window are no longer needed."""
        return self.close(span)

    def is_late(self, span: Span, now: int) -> bool:
        """Return whether a record comes too late for a window, or for the session that it would make.

        Example: for `(0, 10)` with a grace of 5, a record at 15 is late, and at 14 it is not.

        Args:
            span: The record's window.
            now: The time of its partition, with the record.
        """
        return self.close(span) <= now

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a record belongs to a window that merges.

        Args:
            span: A window of the record's key.
            timestamp: The record's.
        """
        return span[0] <= timestamp < span[1]

    def described(self, span: Span) -> Mapping[str, Any]:
        """Return an entry's window for people."""
        return {"window": span}


def leaves_no_gaps(every_ms: int, options: Mapping[str, Any]) -> None:
    """Check that windows cover all times, and that a record is not in too many. Raises BadOption.

    Args:
        every_ms: The time between the starts of two windows.
        options: Has their size.
    """
    size_ms = options.get("size_ms")
    if size_ms is not None and every_ms > size_ms:
        size = write_duration(size_ms)
        what = f"windows of {size} every {write_duration(every_ms)} leave gaps between them"
        raise BadOption(what, f"Write at most `every: {size}`.")
    if size_ms is not None and size_ms > every_ms * MAX_WINDOWS:
        what = f"each record would be in {-(-size_ms // every_ms):,} windows"
        least = write_duration(-(-size_ms // MAX_WINDOWS))
        raise BadOption(what, f"Write at least `every: {least}`: {MAX_WINDOWS:,} windows are the most.")
