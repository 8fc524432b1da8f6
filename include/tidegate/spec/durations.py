"""Durations: whole numbers with a unit, such as `15ms`, `30s`, `10m`, `1h`, `2d`.

The model has milliseconds.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tidegate.spec.mistakes import mistake, shown

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile(r"(?P<count>[0-9]{1,15})(?P<unit>ms|s|m|h|d)")
_LONGEST_MS = 2**45
_FIX = "Write a whole number and a unit: `15ms`, `30s`, `10m`, `1h` or `2d`."


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


def _read(written: Any) -> int:
    milliseconds = parse_duration(written) if isinstance(written, str) else None
    if milliseconds is None:
        raise mistake(f"{shown(written)} is not a duration", _FIX)
    if milliseconds > _LONGEST_MS:
        raise mistake(f"{written} is too long", "Write less than a thousand years.")
    return milliseconds


def _positive(milliseconds: int) -> int:
    if milliseconds == 0:
        raise mistake("it has no length", _FIX)
    return milliseconds


_WRITTEN = WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,15}(ms|s|m|h|d)$"})

Grace = Annotated[int, BeforeValidator(_read), _WRITTEN]
"""Milliseconds, 0 or more."""
Duration = Annotated[int, BeforeValidator(_read), AfterValidator(_positive), _WRITTEN]
"""Milliseconds, more than 0."""
