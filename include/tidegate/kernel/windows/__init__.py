"""The windows of a record, and when they are over. All times are in ms."""

from __future__ import annotations

from tidegate.kernel.windows.aligned import Cumulating, Hopping, Tumbling
from tidegate.kernel.windows.session import Session
from tidegate.kernel.windows.sliding import Sliding
from tidegate.kernel.windows.window import UNITS, Span, Window, parse_duration, write_duration

WINDOWS: tuple[type[Window], ...] = (Tumbling, Hopping, Sliding, Cumulating, Session)
"""The kinds of windows. The first option of each names the kind in a file."""

__all__ = (
    "UNITS",
    "WINDOWS",
    "Cumulating",
    "Hopping",
    "Session",
    "Sliding",
    "Span",
    "Tumbling",
    "Window",
    "parse_duration",
    "write_duration",
)
