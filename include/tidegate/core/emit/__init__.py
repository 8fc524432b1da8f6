"""Emit strategies, which decide when a value is emitted. One file each; `docs/strategies.md` shows how to add
one.
"""

from tidegate.core.emit.change import Change
from tidegate.core.emit.in_sequence import InSequence
from tidegate.core.emit.interval import Interval
from tidegate.core.emit.once import Once
from tidegate.core.emit.strategy import Emit, Sameness
from tidegate.core.emit.threshold import Threshold
from tidegate.core.emit.time_limit import TimeLimit
from tidegate.core.emit.update import Update
from tidegate.core.emit.window_close import WindowClose

__all__ = [
    "Change",
    "Emit",
    "InSequence",
    "Interval",
    "Once",
    "Sameness",
    "Threshold",
    "TimeLimit",
    "Update",
    "WindowClose",
]
