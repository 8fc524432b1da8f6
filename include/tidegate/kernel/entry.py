"""The state of one key, or of one window of a key, while its records are applied."""

from __future__ import annotations

from typing import Any

from tidegate.kernel.sources import Position
from tidegate.kernel.windows import Span

NEVER = 2**63 - 1
"""The due time of an entry without a timer."""


class Entry:
    """The state of a (key, window). All times are in epoch ms.

    `accumulator` and `emitted` are the fold of its records and the last emission, as references that the
    stage's reduce understands (`reduce.Values`); None: nothing. `row` is the row that changed it last, a
    record or its own state row: that row's position is the entry's. `pending` is the number of records held
    back, `since` the time from which they wait (`Emit.starts_at`), `bytes` their size if it is counted.
    `removed`: it is over, and only a state row that says so remains to be written.
    """

    # slots keep entries small, and name all attributes that a savepoint restores
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
        """The state row whose position the entry keeps, whichever row changes it; None: it has the position
        of `row`.
        """
        self.stored = False
        """Whether the entry has a state row."""
        self.stored_live = False
        """Whether that row is live."""
        self.stored_pending = 0
        self.stored_bytes = 0
        self.changed = False
        self.removed = False

    @property
    def live(self) -> bool:
        """Whether anything is left of the entry: an accumulator, its last emission, a timer, or its last
        flush.

        Only this property decides it: the result is written into the state row, and read from there.
        """
        remembers = self.accumulator is not None or self.emitted is not None or self.flushed_at is not None
        return not self.removed and (remembers or bool(self.pending) or self.due != NEVER)

    @property
    def position_row(self) -> int:
        """The row whose position the state row gets."""
        return self.row if self.fence_row is None else self.fence_row

    def slots(self) -> list[Any]:
        """Return all attributes, for `reset`."""
        return [getattr(self, name) for name in self.__slots__]

    def reset(self, slots: list[Any]) -> None:
        """Restore all attributes. The caller restores what `accumulator` refers to.

        Args:
            slots: What `slots` returned for this entry.
        """
        for name, value in zip(self.__slots__, slots, strict=True):
            setattr(self, name, value)

    def empty(self) -> None:
        """Note that nothing is held back any more."""
        self.pending = 0
        self.since = -1
        self.bytes = 0
