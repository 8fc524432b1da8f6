"""Schedules: cron with five fields, as Airflow reads it, and Airflow's six presets."""

from __future__ import annotations

import re
from datetime import timedelta

PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Name, smallest and largest number, and the words for the numbers from the smallest on.
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    # Both 0 and 7 are Sunday.
    ("day of the week", 0, 7, _DAYS),
)
_PRESET_GAPS = dict(zip(PRESETS, (1 / 24, 1, 7, 31, 92, 366), strict=True))
"""The longest time between two runs of each preset, in days."""
# February has 29 days: a schedule for the 29th runs every four years, which is valid.
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_PART = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[0-9]{1,4}))?")


def cron_mistake(text: str) -> str | None:
    """Return the mistake in a schedule; None if it is valid. It may have `*`, numbers, names, ranges, steps,
    lists.

    >>> cron_mistake("61 * * * *")
    "'61' cannot be the minute (0 to 59)"
    """
    if text in PRESETS:
        return None
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return f"a schedule has 5 fields, this has {len(parts)}"
    values: list[set[int]] = []
    for (name, least, most, words), part in zip(_FIELDS, parts, strict=True):
        numbers = _numbers(part.lower(), least, most, words)
        if numbers is None:
            return f"{part!r} cannot be the {name} ({least} to {most})"
        values.append(numbers)
    # With a weekday, cron runs if either day matches, so such a schedule does run.
    if parts[4] == "*" and min(values[2]) > max(_LONGEST.get(month, 31) for month in values[3]):
        return "that day does not exist in that month"
    return None


def longest_gap(text: str) -> timedelta:
    """Return an upper bound of the time between two runs of a valid schedule.

    It is exact for schedules that restrict only minutes and hours; otherwise it is the length of the largest
    unit that the schedule restricts.

    >>> longest_gap("*/5 * * * *")
    datetime.timedelta(seconds=300)
    """
    if text in PRESETS:
        return timedelta(days=_PRESET_GAPS[text])
    minutes, hours, days, months, weekdays = (
        _numbers(part.lower(), least, most, words) or set()
        for (_, least, most, words), part in zip(_FIELDS, text.split(), strict=True)
    )
    # From the largest unit down: a restricted month bounds the gap, whatever the smaller units are.
    if len(months) < 12:
        return timedelta(days=366)
    if len(days) < 31:
        return timedelta(days=62)
    if len({day % 7 for day in weekdays}) < 7:
        return timedelta(days=7)
    if len(hours) < 24:
        return timedelta(hours=_longest_step(hours, 24) - 1, minutes=_longest_step(minutes, 60))
    return timedelta(minutes=_longest_step(minutes, 60))


def longest_wait(cron: str | None, or_after_ms: int | None = None) -> timedelta | None:
    """Return the longest time that records wait for a run, by a schedule's times and its `on_data.or_after`;
    None if it has neither.
    """
    gaps = [longest_gap(cron)] if cron else []
    if or_after_ms is not None:
        gaps.append(timedelta(milliseconds=or_after_ms))
    return min(gaps, default=None)


def _longest_step(numbers: set[int], size: int) -> int:
    """Return the longest distance from one number to the next, on a clock face with `size` numbers."""
    ordered = sorted(numbers)
    return max(
        after - before for before, after in zip(ordered, [*ordered[1:], ordered[0] + size], strict=True)
    )


def _numbers(text: str, least: int, most: int, words: tuple[str, ...]) -> set[int] | None:
    """Return the numbers that a field matches; None if it cannot be read."""
    result: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if not match:
            return None
        first, last = (least, most) if match["all"] else _range(match, least, most, words)
        step = int(match["step"] or 1)
        if not least <= first <= last <= most or not 1 <= step <= most:
            return None
        result.update(range(first, last + 1, step))
    return result


def _range(match: re.Match[str], least: int, most: int, words: tuple[str, ...]) -> tuple[int, int]:
    """Return the first and last number of `a`, `a-b` or `a/step`; -1 for an unknown word."""
    first = _number(match["first"], least, words)
    if match["last"]:
        return first, _number(match["last"], least, words)
    # `5/10` means from 5 on, as in croniter, which Airflow uses.
    return first, most if match["step"] else first


def _number(text: str, least: int, words: tuple[str, ...]) -> int:
    if text in words:
        return words.index(text) + least
    return int(text) if re.fullmatch(r"[0-9]{1,2}", text) else -1
