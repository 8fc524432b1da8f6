"""Marks in a folder: the ledger that owns the folder, and its last decision.

In a stream's folder a mark has the number of a committed batch and the name of its attempt; the mark of batch
0 names the ledger that began the stream. That mark stays, and the two newest of the others. In a pipeline's
folder a mark has the number of a promotion, the generation that was put in charge, and the decision itself.
All of these stay: a ledger that was restored learns from them what it has lost. A mark is a small file that
is put only if it is absent. Only a ledger that takes over a folder replaces its marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidegate.errors import LakeDamaged
from tidegate.failpoints import failpoint
from tidegate.storage.store import Store

FORMAT = 1
"""The format of a mark; raise it when the meaning of what is written changes."""

_NAME = re.compile(r"(\d{10,})\.json")


@dataclass(frozen=True)
class LedgerMark:
    """A decision of the ledger with the identity `ledger`: a number, and the name that it has in that ledger.

    `decision` is the row of a promotion; None: the mark is of a batch. Two marks with one number and name are
    of the same decision.
    """

    ledger: str
    number: int
    name: str
    decision: Mapping[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Marks:
    """The marks in the folder `folder`. `keeps_all`: none is removed when a newer one is put."""

    store: Store
    folder: str
    keeps_all: bool = False

    def newest(self) -> LedgerMark | None:
        """Return the mark with the highest number; None before the first one.

        Raises LakeDamaged, LakeUnavailable.
        """
        with failpoint("marks.read"):
            number = max(self._numbers(), default=None)
            try:
                return None if number is None else self._read(number)
            except LakeDamaged:
                if number == max(self._numbers(), default=None):
                    raise
        # two newer marks were put since the listing, and this one was removed: look again
        return self.newest()

    def put(self, mark: LedgerMark) -> None:
        """Write a mark, unless its number has one, and remove the marks of batches that nobody needs after
        it.

        Raises LakeUnavailable.
        """
        with failpoint("marks.put"):
            self.store.put_if_absent(self.path(mark.number), _content(mark))
        for number in () if self.keeps_all else self._numbers():
            # A reader that listed the folder before `put` may still open the last but one.
            if 0 < number < mark.number - 1:
                self.remove(number)

    def remove(self, number: int) -> None:
        """Remove the mark of a number. Raises LakeUnavailable."""
        with failpoint("marks.remove"):
            self.store.delete(self.path(number))

    def adopt(self, ledger: str) -> None:
        """Write another ledger's identity into all marks.

        The newest mark says which ledger owns the folder, so it is written last: until then the folder is not
        taken over, and a takeover that was killed begins again. Raises LakeDamaged, LakeUnavailable.
        """
        # In ascending order: the newest mark is the last one.
        for mark in self.all():
            with failpoint("marks.adopt"):
                self.store.replace(self.path(mark.number), _content(replace(mark, ledger=ledger)))

    def all(self) -> list[LedgerMark]:
        """Return all marks, by number. Raises LakeDamaged, LakeUnavailable."""
        return [self._read(number) for number in sorted(self._numbers())]

    def path(self, number: int) -> str:
        """Return the path of the mark with a number."""
        return f"{self.folder}/{number:010d}.json"

    def _numbers(self) -> Iterator[int]:
        for file in self.store.listed(self.folder):
            if match := _NAME.fullmatch(file.path.rpartition("/")[-1]):
                yield int(match[1])

    def _read(self, number: int) -> LedgerMark:
        path = self.path(number)
        try:
            document = json.loads(self.store.read(path))
            if document.pop("format") == FORMAT:
                return LedgerMark(**document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(path) from error
        raise _unreadable(path)


def _content(mark: LedgerMark) -> bytes:
    fields = {name: value for name, value in asdict(mark).items() if value is not None}
    return json.dumps({"format": FORMAT} | fields).encode()


def _unreadable(path: str) -> LakeDamaged:
    return LakeDamaged(
        f"The lake's file {path}, which names the ledger that owns the folder, cannot be read",
        "Restore it from a backup, or use the version of tidegate that wrote it.",
    )
