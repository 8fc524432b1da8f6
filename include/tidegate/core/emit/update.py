"""`on: update`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.core.emit.strategy import Emit, Sameness, first_seen
from tidegate.core.entry import Entry


@dataclass(frozen=True)
class Update(Emit):
    """Emits every value; a deletion only if consumers have seen the key."""

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new`, `changed` or `deleted`; None only for the deletion of a key that
        consumers never saw.
        """
        return first_seen(entry, now)
