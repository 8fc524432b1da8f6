"""`deduplicate: {columns, keep}`, a pass before the stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategies.at_once import FIRST_SEEN
from tidegate.kernel.strategy import Emit, Sameness


@dataclass(frozen=True)
class Once(Emit):
    """Emits the first record of a key, and no other one for `keep_ms` from its timestamp.

    A record `keep_ms` or more behind its partition's time is late: its key may be forgotten. So a record that
    is not late may be up to `keep_ms` older than that time, and a key is remembered for `keep_ms` longer than
    its repetitions are suppressed. Within one partition, a repetition is never taken for a new record.
    """

    keep_ms: int
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "new": FIRST_SEEN["new"],
        "repeated": "dropped: was applied before",
    }
    suppressed: ClassVar[str] = "repeated"

    @property
    def marks(self) -> bool:
        """True: a mark says that the key was emitted."""
        return True

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new` if the key is not remembered, or was emitted `keep_ms` or more before; else None."""
        over = entry.emitted is None or timestamp >= (entry.emitted_timestamp or 0) + self.keep_ms
        return "new" if over else None

    @property
    def late_after_ms(self) -> int:
        """The distance behind the partition's time at which a record may repeat one that is forgotten."""
        return self.keep_ms

    def due(self, entry: Entry) -> int:
        """Return when the key is forgotten: every record that could repeat it is late then."""
        return NEVER if entry.emitted_timestamp is None else entry.emitted_timestamp + 2 * self.keep_ms
