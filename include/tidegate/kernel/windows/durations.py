"""Durations as a pipeline file has them: `10m`."""

from __future__ import annotations

import re

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
