"""The time zone of a schedule, and the start of its first interval."""

from __future__ import annotations

import re
from datetime import datetime, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from tidegate.spec.mistakes import did_you_mean, mistake, shown

UTC = "UTC"
_DAY_OR_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?")


def check_timezone(name: str) -> str:
    """Return `name` if it is a name of the IANA time zone database. Raises a mistake otherwise.

    Example: `check_timezone("Europe/Berlin")`
    """
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # zoneinfo: unknown, not a valid name, or a folder of zones
        otherwise = "Write a name such as `Europe/Berlin`, or `UTC`."
        raise mistake(
            f"{name!r} is not a time zone", did_you_mean(name, available_timezones(), otherwise)
        ) from None
    return name


def read_start_date(written: Any, zone: str) -> datetime | None:
    """Return the start in UTC of a day in the time zone `zone`, or an instant that has a zone itself.

    Args:
        written: A day such as `2026-01-31`, an ISO 8601 instant, or None.
        zone: The schedule's time zone, in which a day begins at midnight.

    Raises a mistake if it is neither.
    """
    if written is None:
        return None
    # `fromisoformat` reads more forms in newer Pythons; a file must mean the same in all of them.
    is_legible = isinstance(written, str) and _DAY_OR_INSTANT.fullmatch(written)
    try:
        start = datetime.fromisoformat(written.replace("Z", "+00:00") if is_legible else "")
    except ValueError:
        fix = "Write a day such as `2026-01-31`, or an instant with its zone: `2026-01-31T08:00:00Z`."
        raise mistake(f"{shown(written)} is not a day to start on", fix) from None
    if start.tzinfo is None:
        start = start.replace(tzinfo=_zone(zone))
    try:
        return start.astimezone(timezone.utc)
    except OverflowError:  # Python's years are 1 to 9999, in UTC too
        fix = "Write a day after 0001-01-01, such as `2026-01-31`."
        raise mistake(f"{shown(written)} is outside of the years 1 to 9999 in UTC", fix) from None


def _zone(name: str) -> tzinfo:
    """Return a time zone. UTC needs no time zone database, which small container images may lack."""
    return timezone.utc if name == UTC else ZoneInfo(name)
