"""`on: update`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.core.emit.strategy import Emit, Sameness, first_seen
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class Update(Emit):
    """Every value goes out; a deletion only of a key that consumers have seen."""

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """`new`, `changed` or `deleted`; None only for the deletion of what consumers never saw."""
        return first_seen(entry, now)
