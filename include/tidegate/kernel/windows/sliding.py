"""`window: {sliding: 10m}`, with the windows of Kafka Streams' `SlidingWindows`.

A record at `t` belongs to the windows that contain it. It adds the window that ends with it; the one that
begins just after the record before it; and the one that begins just after itself, if later records are in
it (as in KStreamSlidingWindowAggregate). A new window begins with the contents of one that has the same
records so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tidegate.kernel.options import Delay, Duration, option
from tidegate.kernel.windows.window import GRACE, Span, Window

if TYPE_CHECKING:
    from tidegate.kernel.state import Entry

Copy = Callable[[Any], Any]
"""Returns an accumulator that does not change with another one."""
Contents = tuple[Any, int]
"""An accumulator, and the largest timestamp in it."""
_NOTHING: Contents = (None, -1)


@dataclass(frozen=True)
class Sliding(Window):
    """Windows of one size that the records of a key define: one ends with each record, and one begins just
    after each record that others follow within the size. Both ends belong to a window.
    """

    size_ms: Duration = option(
        "The largest distance of two records in a window.", "sliding: 10m", written="sliding"
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    slides: ClassVar[bool] = True
    only_aggregates: ClassVar[bool] = True

    @property
    def open_ms(self) -> int:
        return self.size_ms + self.grace_ms + 1

    @property
    def windows_per_record(self) -> int:
        """The windows that one more record adds."""
        return 2

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the window that ends with a record; near 1970, the first one of the size.

        Example: size 10 gives `((7, 17),)` for timestamp 17, and `((0, 10),)` for timestamp 7.
        """
        return (self.from_start(max(0, timestamp - self.size_ms)),)

    def from_start(self, start: int) -> Span:
        """Return the window that begins at an instant."""
        return (start, start + self.size_ms)

    def close(self, span: Span) -> int:
        """Return the stream time at which the window is over: its end belongs to it.

        Example: `(0, 10)` with a grace of 5 closes at 16.
        """
        return span[1] + self.grace_ms + 1

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether a timestamp is in a window.

        Example: `(0, 10)` has the timestamps from 0 to 10.
        """
        return span[0] <= timestamp <= span[1]

    def forget(self, span: Span) -> int:
        """Return the stream time from which no later window can begin with the contents of this one."""
        return self.close(span) + self.size_ms + 1

    def changes(self, entries: Sequence[Entry], timestamp: int, copy: Copy) -> list[WindowChange]:
        """Return the windows that a record changes and adds, in the order in which Kafka Streams emits them.

        Args:
            entries: The entries of the record's key, in any order. They are not changed.
            timestamp: The record's.
            copy: Copies an accumulator, before the caller changes the one that it is taken from.
        """
        first = max(0, timestamp - 2 * self.size_ms)
        spans = [(entry.window, entry) for entry in entries if entry.window is not None]
        near = {span[0]: entry for span, entry in spans if first <= span[0] <= timestamp + 1}
        kind = _Early if timestamp < self.size_ms else _Usual
        return list(kind(self, near, timestamp, copy).changes())


@dataclass(frozen=True)
class WindowChange:
    """A window that a record changes or adds.

    Args:
        window: Its bounds.
        contents: What it begins with, if it is added; None: what it has.
        has_record: Whether the record is in it.
    """

    window: Span
    contents: Contents | None = None
    has_record: bool = True


class _Windows:
    def __init__(self, window: Sliding, near: dict[int, Entry], timestamp: int, copy: Copy) -> None:
        self.window, self.near, self.timestamp, self.copy = window, near, timestamp, copy
        self.containing = [start for start in sorted(near) if start <= timestamp <= start + window.size_ms]

    def right_of(self, before: int) -> WindowChange:
        """Return the window that begins just after the record before."""
        return WindowChange(self.window.from_start(before + 1))

    def own_right(self, entry: Entry | None) -> Iterator[WindowChange]:
        """Yield the window just after the record, if another one shows that later records are in it."""
        is_missing = self.timestamp + 1 not in self.near
        if is_missing and entry is not None and entry.timestamp > self.timestamp:
            contents = (self.copy(entry.accumulator), entry.timestamp)
            yield WindowChange(self.window.from_start(self.timestamp + 1), contents, has_record=False)

    def changed(self, starts: Sequence[int]) -> Iterator[WindowChange]:
        """Yield windows that exist."""
        for start in starts:
            yield WindowChange(self.window.from_start(start))


class _Usual(_Windows):
    """The windows of a record whose left window begins in 1970 or later."""

    def changes(self) -> Iterator[WindowChange]:
        """Yield the windows that contain the record, the latest first, then those that it adds."""
        timestamp, left = self.timestamp, self.timestamp - self.window.size_ms
        yield from self.changed(self.containing[::-1])
        own = self.near.get(left)
        if own is not None and own.timestamp >= timestamp:
            return  # a record at the same time has added them
        earlier = [start for start in self.near if start < left]
        previous = self.near[max(earlier)] if earlier else own
        if previous is not None and previous.timestamp + 1 not in self.near:
            following = self.right_of(previous.timestamp)
            if following.window[1] >= timestamp:
                yield following
        if own is None:
            # Kafka Streams emits it twice if it is also the one just after the record before: so does this
            contents = _NOTHING
            if previous is not None and left <= previous.timestamp:
                contents = (self.copy(previous.accumulator), previous.timestamp)
            yield WindowChange(self.window.from_start(left), contents)
        after = [start for start in self.containing if start > left]
        yield from self.own_right(self.near[after[-1]] if after else None)


class _Early(_Windows):
    """The windows of a record near 1970, whose left window is `[0, size]`."""

    def changes(self) -> Iterator[WindowChange]:
        """Yield the windows that contain the record, the earliest first, then those that it adds."""
        later = [start for start in self.containing if start > 0]
        yield from self.changed(later)
        whole = self.near.get(0)
        yield from self.own_right(self.near[later[-1]] if later else whole)
        before = whole.timestamp if whole is not None and whole.timestamp < self.timestamp else None
        if before is not None and before + 1 not in self.near:
            yield self.right_of(before)
        yield WindowChange(self.window.from_start(0))
