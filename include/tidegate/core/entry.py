"""The state of one key, or of one window of a key, while its records are applied."""

from __future__ import annotations

from typing import Any

from tidegate.core.sources import Position
from tidegate.core.windows import Span

NEVER = 2**63 - 1
"""The due time of an entry without a timer."""


class Entry:
    """The state of a (key, window). All times in epoch ms.

    `accumulator`, `emitted`: what its records are folded into, and what last went out, as references that the
    stage's reduce understands (`reduce.Values`); None: nothing. `row`: the row that last changed it, a record
    or its own state row: its position is the entry's. `pending`: how many records are held back, `since` the
    time from which they wait (`Emit.starts_at`), `bytes` their size where it is counted. `removed`: it is
    over, and only a state row that says so is still to be written.
    """

    __slots__ = (
        "accumulator",
        "bytes",
        "changed",
        "close",
        "due",
        "emitted",
        "emitted_timestamp",
        "fence",
        "fence_row",
        "flushed_at",
        "group",
        "key",
        "pending",
        "removed",
        "row",
        "since",
        "stored",
        "stored_bytes",
        "stored_live",
        "stored_pending",
        "timestamp",
        "window",
    )

    def __init__(self, key: str, window: Span | None, close: int, row: int) -> None:
        self.key = key
        self.window = window
        self.close = close
        """When its window is over; NEVER without a window."""
        self.row = row
        self.accumulator: Any = None
        self.timestamp = -1
        """The largest timestamp that is folded into the accumulator; -1: none is."""
        self.emitted: Any = None
        self.emitted_timestamp: int | None = None
        self.flushed_at: int | None = None
        self.pending = 0
        self.since = -1
        self.bytes = 0
        self.due = NEVER
        self.fence: Position | None = None
        """The position at or before which records are repetitions; None: there is none."""
        self.group: Position | None = None
        """The record that set the fence: what was exploded from it is no repetition."""
        self.fence_row: int | None = None
        """The state row whose position it keeps, whatever row changes it; None: `row` has its position."""
        self.stored = False
        """Whether a state row tells of it."""
        self.stored_live = False
        """Whether that row is a live one."""
        self.stored_pending = 0
        self.stored_bytes = 0
        self.changed = False
        self.removed = False

    @property
    def live(self) -> bool:
        """Whether anything is left of it: an accumulator, what it last emitted, a timer, or its last flush.

        The one place that says so: it is written into the state row, and read from there.
        """
        remembers = self.accumulator is not None or self.emitted is not None or self.flushed_at is not None
        return not self.removed and (remembers or bool(self.pending) or self.due != NEVER)

    @property
    def position_row(self) -> int:
        """The row whose position its state row gets."""
        return self.row if self.fence_row is None else self.fence_row

    def slots(self) -> list[Any]:
        """All that is known of it, for `reset`."""
        return [getattr(self, name) for name in self.__slots__]

    def reset(self, slots: list[Any]) -> None:
        """All as it was. What `accumulator` refers to is the caller's to restore."""
        for name, value in zip(self.__slots__, slots, strict=True):
            setattr(self, name, value)

    def empty(self) -> None:
        """Nothing is held back any more."""
        self.pending = 0
        self.since = -1
        self.bytes = 0
