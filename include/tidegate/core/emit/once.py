"""`deduplicate: {columns, keep}`, which is a stage of its own in front of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Sameness
from tidegate.core.entry import NEVER, Entry


@dataclass(frozen=True)
class Once(Emit):
    """The first record of a key goes out; the next ones do not, for `keep_ms` from its timestamp.

    A record `keep_ms` or more behind its partition's time is late: its key may be forgotten. So what is not
    late may still be up to `keep_ms` older than that time, and a key is remembered for as long after the
    time in which its repetitions count. Of one partition nothing can be taken for new that is not.
    """

    keep_ms: int
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    marks: ClassVar[bool] = True
    suppressed: ClassVar[str] = "repeated"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """`new` where the key is not remembered, or went out `keep_ms` or more before; else None."""
        over = entry.emitted is None or timestamp >= (entry.emitted_timestamp or 0) + self.keep_ms
        return "new" if over else None

    @property
    def late_after_ms(self) -> int:
        """What is so far behind may be a repetition of what is forgotten."""
        return self.keep_ms

    def due(self, entry: Entry) -> int:
        """When it is forgotten: every record that could repeat it is late by then."""
        return NEVER if entry.emitted_timestamp is None else entry.emitted_timestamp + 2 * self.keep_ms
