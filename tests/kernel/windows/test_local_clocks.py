"""Windows by the clock of a time zone, on days on which it is changed, and on columns as row by row."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.model.grammar import WindowSettings
from tests.kernel.model.windows import windows_at
from tidegate.kernel.windows import Hopping, Tumbling
from tidegate.kernel.windows.zones import TimeZone
from tidegate.model.zones import time_zone

HOUR = 3_600_000
DAY = 24 * HOUR
ZONES = (
    *("Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("Africa/Casablanca", "Asia/Beirut", "Pacific/Apia"),
)
SPRING, AUTUMN = "2026-03-29", "2026-10-25"
"""In Berlin, days of 23 and 25 hours."""


def tumbling(size_ms: int, zone: str = "Europe/Berlin", offset_ms: int = 0) -> Tumbling:
    return Tumbling(size_ms, 0, time_zone(zone), offset_ms)


def hopping(size_ms: int, every_ms: int, zone: str = "Europe/Berlin", offset_ms: int = 0) -> Hopping:
    return Hopping(size_ms, every_ms, 0, time_zone(zone), offset_ms)


def instant(written: str, zone: str = "Europe/Berlin") -> int:
    return int(datetime.fromisoformat(written).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def hours_of(window: Tumbling, day: str) -> list[float]:
    """The lengths of the windows of a day, in hours."""
    at = instant(day)
    lengths, end = [], tumbling(DAY).spans(at)[0][1]
    while at < end and len(lengths) < 99:
        ((begin, at),) = window.spans(at)
        lengths.append((at - begin) / HOUR)
    return lengths


@pytest.mark.parametrize(
    ("size", "spring", "autumn"),
    [
        (DAY, [23], [25]),
        (12 * HOUR, [11, 12], [13, 12]),
        (6 * HOUR, [5, 6, 6, 6], [7, 6, 6, 6]),
        (HOUR, [1] * 23, [1] * 25),
        (HOUR // 2, [0.5] * 46, [0.5] * 50),
    ],
)
def test_windows_follow_a_clock_that_is_changed(size: int, spring: list[float], autumn: list[float]) -> None:
    assert hours_of(tumbling(size), SPRING) == spring
    assert hours_of(tumbling(size), AUTUMN) == autumn


def test_offset_moves_the_start_of_local_days() -> None:
    ((start, end),) = tumbling(DAY, offset_ms=6 * HOUR).spans(instant(f"{SPRING} 02:00"))
    assert (start, end) == (instant("2026-03-28 06:00"), instant(f"{SPRING} 06:00"))
    assert end - start == 23 * HOUR


def test_weeks_begin_on_mondays_with_an_offset() -> None:
    ((start, end),) = tumbling(7 * DAY, offset_ms=4 * DAY).spans(instant(AUTUMN))
    assert (start, end) == (instant("2026-10-19"), instant("2026-10-26"))


def test_offset_without_a_zone_moves_the_epoch() -> None:
    assert Tumbling(10, offset_ms=3).spans(12) == ((3, 13),)
    assert Tumbling(10, offset_ms=3).spans(1) == ((-7, 3),)
    assert Hopping(10, 5, offset_ms=2).spans(12) == ((7, 17), (12, 22))


def test_hour_windows_begin_with_local_hours() -> None:
    half_past = int(datetime(2026, 1, 1, 12, 30, tzinfo=timezone.utc).timestamp() * 1000)
    assert tumbling(HOUR, "Asia/Kolkata").spans(half_past) == ((half_past, half_past + HOUR),)


def test_hopping_days_end_at_the_same_local_time() -> None:
    noon = instant(f"{AUTUMN} 12:00")
    windows = hopping(DAY, 6 * HOUR).spans(noon - 1)
    assert [(end - start) / HOUR for start, end in windows] == [25, 25, 25, 24]
    assert windows[-1][0] == instant(f"{AUTUMN} 06:00")


def settings_of(window: Tumbling | Hopping) -> WindowSettings:
    kind = "tumbling" if isinstance(window, Tumbling) else "hopping"
    return WindowSettings(
        kind, window.size_ms, window.step_ms, 0, window.offset_ms, window.timezone and window.timezone.name
    )


@st.composite
def times(draw: st.DrawFn, zone: str) -> int:
    """An instant near a change of the clock, if the zone has changes."""
    changes = [begin for begin in time_zone(zone).clock.begins[1:] if begin < 2**41]
    at = draw(st.sampled_from(changes or [1_700_000_000_000]))
    return at + draw(st.integers(-26 * 60, 26 * 60)) * 60_000 + draw(st.sampled_from([0, 1, 59_999]))


@examples(40)
@given(st.data(), st.sampled_from(ZONES))
def test_windows_are_those_of_a_watched_clock(data: st.DataObject, zone: str) -> None:
    every = data.draw(st.sampled_from([HOUR // 4, HOUR, 2 * HOUR, 6 * HOUR, DAY]))
    offset = data.draw(st.sampled_from([0, every // 3 // 300_000 * 300_000]))
    timestamp = data.draw(times(zone))
    window = tumbling(every, zone, offset)
    assert list(window.spans(timestamp)) == windows_at(settings_of(window), timestamp)
    size = every * data.draw(st.sampled_from([1, 2, 4]))
    if size % DAY == 0 or DAY % size == 0:
        overlapping = hopping(size, every, zone, offset)
        assert list(overlapping.spans(timestamp)) == windows_at(settings_of(overlapping), timestamp)
        assert len(overlapping.spans(timestamp)) <= overlapping.windows_per_record


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("size", [HOUR // 4, HOUR, 12 * HOUR, DAY])
def test_columns_have_the_windows_of_single_records(zone: str, size: int) -> None:
    window = tumbling(size, zone, size // 3 // 60_000 * 60_000)
    changes = np.array(time_zone(zone).clock.begins[1:][-40:] or [2**40])
    near = np.concatenate([changes + shift * HOUR // 2 for shift in (-3, -2, -1, 0, 1, 2, 3)])
    timestamps = np.concatenate([near - 1, near, near + 1])
    starts, ends = window.bounds(timestamps)
    spans = [window.spans(at) for at in timestamps.tolist()]
    assert spans == [((start, end),) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    covered = sorted({span for (span,) in spans})
    assert all(before[1] <= after[0] for before, after in pairwise(covered))


def test_a_window_follows_the_rules_it_has() -> None:
    """A plan has the rules that it was made with."""
    rules = " ".join(time_zone("Europe/Berlin").rules.split()[:-200])
    planned = Tumbling(DAY, 0, TimeZone("Europe/Berlin", rules))
    assert planned == tumbling(DAY)
    assert planned.spans(instant("2090-07-01")) != tumbling(DAY).spans(instant("2090-07-01"))
