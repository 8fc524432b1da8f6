"""`sequence`, a stage of its own in front of the others: changes that come too late have no effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Marker, Sameness
from tidegate.core.entry import NEVER, Entry

CHANGE, DELETION = "+", "-"
"""How a mark begins; its change's sequence follows."""
SEPARATOR = "\x00"
"""Between the parts of a sequence: it sorts before all that a part can have."""


def mark(sequence: str, deleted: bool) -> str:
    """What is remembered of a key's newest change. `sequence` is a text that sorts as the sequences do."""
    return (DELETION if deleted else CHANGE) + sequence


def described_mark(text: str) -> dict[str, Any]:
    """A mark for people: the parts of the sequence, and whether the change is a deletion."""
    sequence = {"sequence": ", ".join(text[1:].split(SEPARATOR))}
    return {**sequence, "deleted": True} if text[0] == DELETION else sequence


@dataclass(frozen=True)
class InSequence(Emit):
    """A change goes out whose sequence is later than that of its key's last one; the others do not.

    Which go out depends on the order in the log; which is the last one does not. A key that is there is
    remembered for as long as it is. One that was deleted is for `keep_ms` from its deletion's timestamp,
    None: for ever; a change that is `keep_ms` or more after that begins it anew. So a record of a key that is
    not there is late where it is `keep_ms` or more behind its partition's time: a deletion that came after it
    may be forgotten. Of one partition none comes back that is deleted.
    """

    keep_ms: int | None = None
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    marks: ClassVar[bool] = True
    suppressed: ClassVar[str] = "outdated"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """`new` for the first of a key, `later` for a later one; None for what is not later, and for a
        record without a sequence, which follows a deletion that has one. `same`: whether it is not later.
        """
        assert same is not None, "sequences are compared"
        if now is None:
            return None
        if entry.emitted is None:
            return "new"
        deleted_at = entry.emitted_timestamp or 0
        begins_anew = (
            self.keep_ms is not None and _is_deleted(entry) and timestamp >= deleted_at + self.keep_ms
        )
        return "later" if begins_anew or not same(entry.emitted, now, deleted_at, timestamp) else None

    @property
    def late_after_ms(self) -> int | None:
        """So far behind, what is not there may have been deleted since."""
        return self.keep_ms

    def may_be_late(self, entry: Entry) -> bool:
        """Of a key that is there, the sequence tells."""
        return entry.emitted is None or _is_deleted(entry)

    def due(self, entry: Entry) -> int:
        """When a deletion is forgotten: every change that it would have kept out is late by then."""
        if self.keep_ms is None or entry.emitted_timestamp is None or not _is_deleted(entry):
            return NEVER
        return entry.emitted_timestamp + 2 * self.keep_ms

    def marker(self, field: Callable[[str], Callable[[Any], Any]]) -> Marker:
        """Of a change's columns `sequence` and `deleted`."""
        sequence, deleted = field("sequence"), field("deleted")
        return lambda output, timestamp: mark(sequence(output), deleted(output))

    def repeats(self, last: str, now: str) -> bool:
        """Whether it is not later; how marks begin does not count."""
        return now[1:] <= last[1:]

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """The key's newest sequence, and whether that is of a deletion."""
        return described_mark(remembered)


def _is_deleted(entry: Entry) -> bool:
    return bool(entry.emitted is not None and entry.emitted[0] == DELETION)
