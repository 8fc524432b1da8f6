"""Time zones, from the package `tzdata` and never from the machine's own database: see decision 101."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, InstanceOf, WithJsonSchema

from tidegate.kernel.windows.zones import TimeZone
from tidegate.model.mistakes import did_you_mean, mistake, shown

_FIRST, _LAST = 0, 4_102_444_800
"""1970 and 2100, in seconds: from then on, the last offset counts."""
_DAYS_ALIKE = 6 * 86_400
"""No zone has changed its offset twice within so many seconds since 1970."""


@cache
def names() -> tuple[str, ...]:
    """Return the names of all time zones."""
    return tuple((resources.files("tzdata") / "zones").read_text().split())


@lru_cache(maxsize=64)
def time_zone(name: str) -> TimeZone:
    """Return a time zone with its rules as `tzdata` has them now.

    Args:
        name: One of `names()`.
    """
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        zone = ZoneInfo.from_file(file, name)

    def offset(second: int) -> int:
        local = datetime.fromtimestamp(second, timezone.utc).astimezone(zone).utcoffset()
        assert local is not None
        return int(local.total_seconds())

    begin, current = _FIRST, offset(_FIRST)
    rules = [f"{begin}{current:+d}"]
    for end in range(_FIRST + _DAYS_ALIKE, _LAST, _DAYS_ALIKE):
        if (later := offset(end)) != current:
            before, after = begin, end
            while after - before > 1:
                middle = (before + after) // 2
                before, after = (middle, after) if offset(middle) == current else (before, middle)
            rules.append(f"{after}{later:+d}")
            current = later
        begin = end
    return TimeZone(name, " ".join(rules))


def suggested_zone(name: str) -> str:
    """Return the fix for a name that is no time zone.

    `CEST` is no misspelt `EST`: names without a place are not suggested, but for `UTC`.
    """
    places = [zone for zone in names() if "/" in zone or zone == "UTC"]
    return did_you_mean(name, places, "Write a name such as `Europe/Berlin`, or `UTC`.")


def _read_zone(written: Any) -> TimeZone:
    if not isinstance(written, str) or written not in names():
        raise mistake(f"{shown(written)} is not a time zone", suggested_zone(str(written)))
    return time_zone(written)


Zone = Annotated[InstanceOf[TimeZone], BeforeValidator(_read_zone), WithJsonSchema({"type": "string"})]
"""A time zone, which a file has by its name."""
