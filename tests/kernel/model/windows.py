"""Which windows a record falls into, and when they close; all times in ms."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from tests.kernel.model.grammar import WindowSettings
from tests.kernel.model.records import Window

_HOUR, _DAY = 3_600_000, 86_400_000
WATCHED_MS = 300_000
"""How often a clock is watched: offsets and steps of the tests are multiples of five minutes."""


def windows_at(settings: WindowSettings, timestamp: int) -> list[Window]:
    """Quote: every s that is a multiple of `every`, s >= 0, s <= ts < s+size, ascending

    (`tumbling` is `hopping` with `every` = size). With an offset or a time zone, s may be
    below 0.
    """
    if settings.kind == "cumulating":
        # as Flink's CUMULATE: all windows of one start, each longer by `every`, that do not end before ts
        ((start, last),) = windows_at(
            replace(settings, kind="tumbling", every_ms=settings.size_ms), timestamp
        )
        steps = replace(settings, kind="tumbling", size_ms=settings.every_ms)
        ends, at = [], timestamp
        while not ends or ends[-1] < last:
            ends.append(at := windows_at(steps, at)[0][1])
        return [(start, min(end, last)) for end in ends]
    if settings.timezone is not None:
        return _local_windows(settings, timestamp)
    every, offset = settings.every_ms, settings.offset_ms
    first = (timestamp - settings.size_ms - offset) // every * every + offset  # the earlier ones are over
    return [
        (start, start + settings.size_ms)
        for start in range(first if offset else max(0, first), timestamp + 1, every)
        if start <= timestamp < start + settings.size_ms
    ]


def _local_windows(settings: WindowSettings, timestamp: int) -> list[Window]:
    """Watch the clock. A step that divides an hour begins when the clock shows a multiple of
    it, or was changed; a longer one when the clock shows the multiple, or more, for the first time.
    """
    days = settings.size_ms // _DAY + 2
    clock = _watched(settings.timezone, timestamp // _DAY, days)
    starts, latest = [], clock[0][1]
    for (_, before), (instant, local) in pairwise(clock):
        changed = local - before != WATCHED_MS
        label = (local - settings.offset_ms) // settings.every_ms * settings.every_ms + settings.offset_ms
        is_short = _HOUR % settings.every_ms == 0
        if (label == local or changed) if is_short else latest < label:
            starts.append((instant, local if is_short else label))
        latest = max(latest, local)
    windows = []
    for (start, label), (following, _) in pairwise(starts):
        end = following
        if settings.kind == "hopping":
            until = label + settings.size_ms
            passed = (instant for instant, local in clock if instant > start and local >= until)
            end = start + settings.size_ms if _HOUR % settings.size_ms == 0 else next(passed, 2**62)
        if start <= timestamp < end:
            windows.append((start, end))
    return windows


@lru_cache(maxsize=64)
def _watched(zone: str | None, day: int, days: int) -> list[tuple[int, int]]:
    """Moments of the days around a day, with the local time that the clock shows."""
    assert zone is not None
    info, epoch = ZoneInfo(zone), datetime(1970, 1, 1, tzinfo=timezone.utc)
    moments = []
    for instant in range((day - days) * _DAY, (day + days) * _DAY, WATCHED_MS):
        shown = (epoch + timedelta(milliseconds=instant)).astimezone(info).replace(tzinfo=timezone.utc)
        moments.append((instant, (shown - epoch) // timedelta(milliseconds=1)))
    return moments


def closes_at(settings: WindowSettings, window: Window) -> int:
    """A window expires at end + grace, a session at last + gap + grace.

    At that very instant a session is over for what is already in it, but a record that is alone in its
    session is not late yet, see `is_late`: so do Kafka Streams' session store and its `suppress`.
    """
    gap_ms = settings.size_ms if settings.kind == "session" else 0
    return window[1] + gap_ms + settings.grace_ms


def is_late(settings: WindowSettings, window: Window, now: int) -> bool:
    """Quote: A record is late for a window when `end + grace ≤ stream time`
    (session: `end + gap + grace < stream time`)
    """
    if settings.kind == "session":
        return window[1] + settings.size_ms + settings.grace_ms < now
    return window[1] + settings.grace_ms <= now


def reaches(settings: WindowSettings, session: Window, timestamp: int) -> bool:
    """Quote: live sessions of k that overlap [ts-gap, ts+gap]"""
    return session[0] <= timestamp + settings.size_ms and session[1] >= timestamp - settings.size_ms


def union(sessions: list[Window], timestamp: int) -> Window:
    """Quote: merged = union with [ts, ts]"""
    bounds = [timestamp, *(bound for session in sessions for bound in session)]
    return (min(bounds), max(bounds))
