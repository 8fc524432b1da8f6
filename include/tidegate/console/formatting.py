"""Numbers, sizes, durations and instants as pages show them."""

from __future__ import annotations

import time
from datetime import datetime, timezone

NOTHING = "-"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def number(value: float | None) -> str:
    """Return a number without a fraction, with separators of thousands.

    Example: `number(12345.0)` is `12,345`.
    """
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a number a second, with more digits the smaller it is.

    Example: `rate(1234.5)` is `1,234`, `rate(0.0333)` is `0.033`.
    """
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def size(value: float | None) -> str:
    """Return a number of bytes in a decimal unit.

    Example: `size(1_234_567)` is `1.2 MB`.
    """
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def seconds(value: float | None) -> str:
    """Return seconds with one digit behind the point, without a unit.

    Example: `seconds(0.42)` is `0.4`.
    """
    return NOTHING if value is None else f"{value:,.1f}"


def duration(value_s: float | None) -> str:
    """Return seconds in the largest unit of which there are at least two.

    Example: `duration(90)` is `90 s`, `duration(129_600)` is `36 h`.
    """
    if value_s is None:
        return NOTHING
    for length, unit in _UNITS:
        # From two of a unit on, rounding changes the value by at most a quarter.
        if abs(value_s) >= 2 * length:
            return f"{value_s / length:,.0f} {unit}"
    return f"{value_s:,.1f} s"


def instant(epoch_ms: float | None) -> str:
    """Return an instant in UTC; its number of milliseconds if Python has no such year.

    Example: `instant(0)` is `1970-01-01 00:00:00`.
    """
    if epoch_ms is None:
        return NOTHING
    try:
        at = datetime.fromtimestamp(epoch_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return f"{epoch_ms:.0f} ms"
    return at.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def age(epoch_ms: float | None) -> str:
    """Return how long ago an instant was; 0 if it is in the future, by a clock that is ahead."""
    return NOTHING if epoch_ms is None else duration(max(0.0, time.time() - epoch_ms / 1000))
