"""`deduplicate: {columns, keep}`, which is a stage of its own in front of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Sameness
from tidegate.core.entry import NEVER, Entry


@dataclass(frozen=True)
class Once(Emit):
    """The first record of a key goes out; the next ones do not, for `keep_ms` from its timestamp."""

    keep_ms: int
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    suppressed: ClassVar[str] = "repeated"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Only when nothing is remembered, or that was too long ago."""
        over = entry.emitted is None or timestamp >= (entry.emitted_timestamp or 0) + self.keep_ms
        return "new" if over else None

    def due(self, entry: Entry) -> int:
        """When it is forgotten."""
        return NEVER if entry.emitted_timestamp is None else entry.emitted_timestamp + self.keep_ms
