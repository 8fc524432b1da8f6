"""`sequence`, a pass before the stages: changes that come too late have no effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.emit.strategy import Emit, Marker, Sameness
from tidegate.core.entry import NEVER, Entry

CHANGE, DELETION = "+", "-"
"""The first character of a mark; the change's sequence follows."""
SEPARATOR = "\x00"
"""Separates the parts of a sequence: it sorts before any character that a part can contain."""


def mark(sequence: str, deleted: bool) -> str:
    """Return the mark of a key's newest change. `sequence` is a text that sorts as the sequences do.

    Example: `mark("0007", deleted=True)` is `-0007`.
    """
    return (DELETION if deleted else CHANGE) + sequence


def described_mark(text: str) -> dict[str, Any]:
    """Return a mark for people: the parts of the sequence, and whether the change is a deletion."""
    sequence = {"sequence": ", ".join(text[1:].split(SEPARATOR))}
    return {**sequence, "deleted": True} if text[0] == DELETION else sequence


@dataclass(frozen=True)
class InSequence(Emit):
    """Emits a change whose sequence is later than that of its key's last change; others have no effect.

    Which changes are emitted depends on the order in the log; the last one does not. An existing key is
    remembered as long as it exists. A deleted key is remembered for `keep_ms` from its deletion's timestamp
    (None: for ever); a change `keep_ms` or more after that begins the key anew. So a record of a key that
    does not exist is late if it is `keep_ms` or more behind its partition's time: a deletion that came after
    it may be forgotten. Within one partition, a deleted key never comes back.
    """

    keep_ms: int | None = None
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    marks: ClassVar[bool] = True
    suppressed: ClassVar[str] = "outdated"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new` for the first change of a key, `later` for a later one; else None.

        None is also returned for a record without a sequence, which follows a deletion with one. `same` says
        whether the change is not later.
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
        """The distance behind the partition's time at which a key that does not exist may have been deleted
        since.
        """
        return self.keep_ms

    def may_be_late(self, entry: Entry) -> bool:
        """Return False for an existing key: its sequence decides."""
        return entry.emitted is None or _is_deleted(entry)

    def due(self, entry: Entry) -> int:
        """Return when a deletion is forgotten: every change that it would suppress is late then."""
        if self.keep_ms is None or entry.emitted_timestamp is None or not _is_deleted(entry):
            return NEVER
        return entry.emitted_timestamp + 2 * self.keep_ms

    def marker(self, field: Callable[[str], Callable[[Any], Any]]) -> Marker:
        """Return the function that makes marks of a change's columns `sequence` and `deleted`."""
        sequence, deleted = field("sequence"), field("deleted")
        return lambda output, timestamp: mark(sequence(output), deleted(output))

    def repeats(self, last: str, now: str) -> bool:
        """Return whether a change is not later; the first characters of marks do not count."""
        return now[1:] <= last[1:]

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """Return the key's newest sequence, and whether it is that of a deletion."""
        return described_mark(remembered)


def _is_deleted(entry: Entry) -> bool:
    return bool(entry.emitted is not None and entry.emitted[0] == DELETION)
