"""One emission of a job, as the comparison of two jobs sees it, and the classes into which it falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.formats.decoded import Explained
from tidegate.kernel.rows import Position

Window = tuple[int, int | None]
"""The start of a window, and the end of a session: other windows of a stage differ by their starts."""
Entry = tuple[str, Window | None]
"""A key, with its window if both jobs say which window an emission is of."""


@dataclass(frozen=True)
class SentEmission:
    """An emission that a job sent, or would send.

    Args:
        window: epoch ms; None: it has no window, or the other job does not say which.
        value: the compared and the ignored columns; None: a deletion.
        timestamp: epoch ms.
        at: when it happened by the clock of the stage, epoch ms; for the other job the same as `timestamp`.
        source: the position of the record that caused it; None: nobody knows it.
        sent: the position of the record that has it in the other job's topic; None: it is tidegate's.
    """

    key: str
    window: Window | None
    value: Mapping[str, Any] | None
    timestamp: int
    at: int
    source: Position | None
    sent: Position | None = None

    @property
    def entry(self) -> Entry:
        """The key and the window."""
        return self.key, self.window


class ShadowClass(Explained):
    """The class of an emission when two jobs are compared."""

    EQUAL = "equal", "Both jobs have it."
    LATE = (
        "late",
        "Both jobs have the value; the other job has it in another place, or later by more than `--within`.",
    )
    DIFFERENT = "different", "Both jobs have an emission in the same place, with other values."
    MISSING = "missing", "Only tidegate would send it."
    EXTRA = "extra", "Only the other job sent it."
    SUPERSEDED = (
        "superseded",
        "An intermediate result that only tidegate would send; a later emission of its key replaces it.",
    )
    UNREADABLE = "unreadable", "The record of the other job does not match its format or columns."
    BEFORE_START = "before_start", "It is from before what the two jobs have in common."
    NOT_YET = "not_yet_comparable", "One of the jobs has not read that far."


DIFFERENCES = (
    ShadowClass.LATE,
    ShadowClass.DIFFERENT,
    ShadowClass.MISSING,
    ShadowClass.EXTRA,
    ShadowClass.UNREADABLE,
)
"""The classes that make two jobs differ."""


def last_hop(chain: str | None) -> Position | None:
    """Return the newest position of a source chain; None if there is none.

    Example: `last_hop("orders/0/7;totals/1/3")` is `("totals", 1, 3)`.
    """
    topic, _, rest = (chain or "").rpartition(";")[2].rpartition("/")[0].rpartition("/")
    offset = (chain or "").rpartition("/")[2]
    if not topic or not rest.isdecimal() or not offset.isdecimal():
        return None
    return topic, int(rest), int(offset)
