"""`on: window_close`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.emit.strategy import Emit
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class WindowClose(Emit):
    """Emits the final value of a key and window once, when the window is over: never early."""

    holds: ClassVar[bool] = True
    drains: ClassVar[bool] = False

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason: the only timer is the window's end."""
        return "window_close"
