"""Which windows a record falls into, and when they close; all times in ms."""

from __future__ import annotations

from tests.kernel.model.grammar import WindowSettings
from tests.kernel.model.records import Window


def windows_at(settings: WindowSettings, timestamp: int) -> list[Window]:
    """Quote: every s that is a multiple of `every`, s >= 0, s <= ts < s+size, ascending

    (`tumbling` is `hopping` with `every` = size).
    """
    every = settings.every_ms
    first = max(0, (timestamp - settings.size_ms) // every * every)  # the earlier ones are over
    return [
        (start, start + settings.size_ms)
        for start in range(first, timestamp + 1, every)
        if start <= timestamp < start + settings.size_ms
    ]


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
