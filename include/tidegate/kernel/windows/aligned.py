"""Windows that begin at steps of a clock: tumbling, hopping and cumulating ones.

`window: {tumbling: 1h}` · `window: {hopping: 1h, every: 10m}` · `window: {cumulating: 1d, every: 1h}`

They begin at multiples of a step since 1970, in UTC or by a local clock. Steps of a time zone that divide an
hour begin whenever the local clock shows a multiple of them: a day of 25 hours has 25 steps of an hour.
Longer steps begin where the clock shows the multiple for the first time: of two steps of 12 hours, the first
one of that day has 13 hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tidegate.kernel.options import BadOption, Delay, Duration, option
from tidegate.kernel.windows.window import (
    GRACE,
    UNITS,
    Ints,
    Span,
    Window,
    leaves_no_gaps,
    write_duration,
)
from tidegate.kernel.windows.zones import LocalClock, TimeZone, Zone

ZONE = "The time zone whose clock the windows follow: days of 23 and 25 hours. Null: UTC."
OFFSET = "How long after midnight (or after a multiple of the step) the windows begin."

_HOUR, _DAY = UNITS["h"], UNITS["d"]


def check_offset(offset_ms: int, options: Mapping[str, Any]) -> None:
    """Check that windows can begin so long after the others would. Raises BadOption.

    Args:
        offset_ms: The offset.
        options: Has the windows' size.
    """
    size_ms = options.get("size_ms")
    if size_ms is not None and offset_ms >= size_ms:
        size, offset = write_duration(size_ms), write_duration(offset_ms)
        what = f"windows of {size} cannot begin {offset} later: another window begins before that"
        raise BadOption(what, f"Write less than {size}: `offset: {write_duration(offset_ms % size_ms)}`.")


def check_zone(timezone: TimeZone | None, options: Mapping[str, Any]) -> None:
    """Check that a local clock can show where windows begin: every whole number of days, or by a part of a
    day. Raises BadOption.

    Args:
        timezone: The time zone, or None.
        options: Has the windows' size, and the time between two of them if it is another.
    """
    if timezone is None:
        return
    for field in ("size_ms", "every_ms"):
        step_ms = options.get(field, _DAY)
        if step_ms % _DAY and _DAY % step_ms:
            step = write_duration(step_ms)
            what = f"the local times at which windows of {step} begin differ from day to day"
            fix = "With `timezone`, use days (`1d`, `7d`) or parts of a day (`1h`, `12h`)."
            raise BadOption(what, fix)


@dataclass(frozen=True)
class Steps:
    """Steps of one length, one after the other without gaps.

    Args:
        step_ms: The length; by a local clock, if its hours are not set.
        offset_ms: How long after each multiple of the length a step begins.
        zone: The time zone; None: UTC.
    """

    step_ms: int
    offset_ms: int = 0
    zone: TimeZone | None = None

    @cached_property
    def _clock(self) -> LocalClock | None:
        return None if self.zone is None else self.zone.clock

    @cached_property
    def _divides_an_hour(self) -> bool:
        return _HOUR % self.step_ms == 0

    @property
    def longest_ms(self) -> int:
        """The length of the longest step."""
        return self.step_ms + (0 if self._clock is None else self._clock.longest_repetition_ms)

    def start(self, instant: int) -> int:
        """Return when the step began that an instant is in."""
        step, offset, clock = self.step_ms, self.offset_ms, self._clock
        if clock is None:
            return instant - (instant - offset) % step
        local = clock.local(instant)
        if self._divides_an_hour:
            # no step contains a change of the clock
            return max(clock.begins[clock.period(instant)], instant - (local - offset) % step)
        label = local - (local - offset) % step
        while clock.instant(label) > instant:
            label -= step
        while clock.instant(label + step) <= instant:
            label += step
        return clock.instant(label)

    def end(self, start: int) -> int:
        """Return the end of the step that begins at an instant."""
        clock = self._clock
        if clock is None or not self._divides_an_hour:
            return self.later(start, self.step_ms)
        place = clock.period(start)
        local = clock.local(start) - self.offset_ms
        end = start + self.step_ms - local % self.step_ms
        return min(end, clock.begins[place + 1]) if place + 1 < len(clock.begins) else end

    def later(self, start: int, duration_ms: int) -> int:
        """Return the instant that is so long after the start of a step, by the local clock if it shows it."""
        clock = self._clock
        if clock is None or _HOUR % duration_ms == 0:
            return start + duration_ms
        if self._divides_an_hour:
            return clock.instant(clock.local(start) + duration_ms)
        # the step may begin later than its local time, if the clock leaves that time out
        local = clock.local(start)
        return clock.instant(local - (local - self.offset_ms) % self.step_ms + duration_ms)

    def back_from(self, instant: int) -> Iterator[int]:
        """Yield the starts of steps, backwards, from the step that an instant is in."""
        start = self.start(instant)
        while True:
            yield start
            start = self.start(start - 1)

    def bounds(self, instants: Ints) -> tuple[Ints, Ints]:
        """Return the start and the end of the step of each instant."""
        step, offset, clock = self.step_ms, self.offset_ms, self._clock
        if clock is None:
            start: Ints = instants - (instants - offset) % step
            return start, start + step
        local = clock.local_times(instants)
        label = local - (local - offset) % step
        if self._divides_an_hour:
            periods, begins = clock.periods(instants), np.array([*clock.begins, 2**62])
            start = instants - (local - label)
            return np.maximum(start, begins[periods]), np.minimum(start + step, begins[periods + 1])
        while (early := clock.instants(label) > instants).any():
            label = label - step * early
        while (late := clock.instants(label + step) <= instants).any():
            label = label + step * late
        return clock.instants(label), clock.instants(label + step)


def overlapping(steps: Steps, size_ms: int, timestamp: int) -> tuple[Span, ...]:
    """Return the windows that contain a timestamp, oldest first, of which one begins with each step.

    Args:
        steps: The steps.
        size_ms: The windows' size.
        timestamp: Epoch ms.
    """
    spans = []
    # a window whose start the clock shows twice may end after one that began later
    first = timestamp - size_ms - (steps.longest_ms - steps.step_ms)
    for start in steps.back_from(timestamp):
        if start <= first:
            break
        end = steps.later(start, size_ms)
        if end > timestamp:
            spans.append((start, end))
    return tuple(reversed(spans))


class Aligned(Window):
    """Windows of one size, which begin where the steps of UTC or of a local clock do."""

    size_ms: int
    timezone: TimeZone | None
    offset_ms: int

    @property
    def step_ms(self) -> int:
        """The time between the starts of two windows."""
        return self.size_ms

    @cached_property
    def steps(self) -> Steps:
        """The steps with which windows begin."""
        return Steps(self.step_ms, self.offset_ms, self.timezone)

    @property
    def open_ms(self) -> int:
        """The time from its start to the close of the longest window, in milliseconds."""
        return self.size_ms + self.steps.longest_ms - self.step_ms + self.grace_ms


@dataclass(frozen=True)
class Tumbling(Aligned):
    """Windows of the same size, side by side, aligned to the epoch or to a local clock."""

    size_ms: Duration = option("The windows' size.", "tumbling: 1h", written="tumbling")
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)
    lie_side_by_side: ClassVar[bool] = True

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the one window of a timestamp.

        Example: size 10 gives `((0, 10),)` for timestamp 7.
        """
        start = self.steps.start(timestamp)
        return ((start, self.steps.end(start)),)

    def bounds(self, timestamps: Ints) -> tuple[Ints, Ints]:
        return self.steps.bounds(timestamps)


@dataclass(frozen=True)
class Hopping(Aligned):
    """Windows of the same size, one of which starts every `every`, aligned to the epoch or to a local clock.
    They can overlap.
    """

    size_ms: Duration = option("The windows' size.", "hopping: 1h", written="hopping")
    every_ms: Duration = option(
        "The time between the starts of two windows.", "every: 10m", written="every", check=leaves_no_gaps
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)

    @property
    def step_ms(self) -> int:
        return self.every_ms

    @property
    def windows_per_record(self) -> int:
        """The windows that start within one size; one more starts where a clock is changed."""
        longest = self.size_ms + self.steps.longest_ms - self.every_ms
        return -(-longest // self.every_ms) + (self.timezone is not None)

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, oldest first; none starts before the epoch, unless it is moved.

        Example: size 10 and every 5 give `((0, 10), (5, 15))` for timestamp 7.
        """
        if self.timezone is not None or self.offset_ms:
            return overlapping(self.steps, self.size_ms, timestamp)
        every, size = self.every_ms, self.size_ms
        # the first multiple of `every` whose window still contains the timestamp
        first = max(0, timestamp - size + every) // every * every
        return tuple((start, start + size) for start in range(first, timestamp + 1, every))


def _divides(every_ms: int, options: Mapping[str, Any]) -> None:
    leaves_no_gaps(every_ms, options)
    size_ms = options.get("size_ms")
    if size_ms is not None and size_ms % every_ms:
        size, every = write_duration(size_ms), write_duration(every_ms)
        raise BadOption(
            f"{size} is not a multiple of {every}", f"Write a part of {size}, such as `every: {size}`."
        )


@dataclass(frozen=True)
class Cumulating(Aligned):
    """Windows that begin together and become longer by `every`, until the longest one has the size."""

    size_ms: Duration = option("The longest windows' size.", "cumulating: 1d", written="cumulating")
    every_ms: Duration = option(
        "The time between the ends of two windows.", "every: 1h", written="every", check=_divides
    )
    grace_ms: Delay = option(GRACE, "grace: 10m", default=0, written="grace")
    timezone: Zone | None = option(ZONE, "timezone: Europe/Berlin", default=None, check=check_zone)
    offset_ms: Delay = option(OFFSET, "offset: 6h", default=0, written="offset", check=check_offset)
    accumulates: ClassVar[bool] = True
    only_aggregates: ClassVar[bool] = True

    @property
    def windows_per_record(self) -> int:
        """The windows that begin with the longest one."""
        return -(-self.steps.longest_ms // self.every_ms)

    @cached_property
    def _parts(self) -> Steps:
        return Steps(self.every_ms, self.offset_ms, self.timezone)

    def spans(self, timestamp: int) -> tuple[Span, ...]:
        """Return the windows of a timestamp, the shortest first.

        Example: size 30 and every 10 give `((0, 20), (0, 30))` for timestamp 17.
        """
        start = self.steps.start(timestamp)
        last = self.steps.end(start)
        ends = []
        end = self._parts.end(self._parts.start(timestamp))
        while end < last:
            ends.append(end)
            end = self._parts.end(end)
        return tuple((start, end) for end in (*ends, last))
