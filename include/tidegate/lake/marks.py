"""Marks in a stream's folder: which ledger it belongs to, and which batch that has committed last.

A mark is a small file that is put only if it is absent and never changed. The mark of batch 0 names the
ledger that has begun the stream, and stays. Of the others the two newest stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tidegate.errors import LakeDamaged
from tidegate.failpoints import failpoint
from tidegate.lake.store import Store

FORMAT = 1
"""Of a mark; raised whenever what is written changes its meaning."""

_NAME = re.compile(r"(\d{10,})\.json")


@dataclass(frozen=True)
class StreamMark:
    """The attempt that a ledger, by its identity, has committed as batch `seq`; of batch 0 that is ""."""

    ledger: str
    seq: int
    attempt: str


@dataclass(frozen=True)
class Marks:
    """The marks in the folder `folder`."""

    store: Store
    folder: str

    def newest(self) -> StreamMark | None:
        """Return the mark of the last batch that has one; None before the first use of the stream's folder.

        Raises LakeDamaged, LakeUnavailable.
        """
        with failpoint("marks.read"):
            seq = max(self._seqs(), default=None)
            try:
                return None if seq is None else self._read(seq)
            except LakeDamaged:
                if seq == max(self._seqs(), default=None):
                    raise
        return self.newest()  # two batches were committed meanwhile, and the mark was removed

    def put(self, mark: StreamMark) -> None:
        """Write a mark, unless its batch has one, and remove those that nobody needs after it.

        Raises LakeUnavailable.
        """
        with failpoint("marks.put"):
            content = json.dumps({"format": FORMAT} | asdict(mark)).encode()
            self.store.put_if_absent(self.path(mark.seq), content)
        for seq in self._seqs():
            if 0 < seq < mark.seq - 1:
                with failpoint("marks.remove"):
                    self.store.delete(self.path(seq))

    def path(self, seq: int) -> str:
        """Return where the mark of a batch is."""
        return f"{self.folder}/{seq:010d}.json"

    def _seqs(self) -> Iterator[int]:
        for file in self.store.listed(self.folder):
            if match := _NAME.fullmatch(file.path.rpartition("/")[-1]):
                yield int(match[1])

    def _read(self, seq: int) -> StreamMark:
        path = self.path(seq)
        try:
            document = json.loads(self.store.read(path))
            if document.pop("format") == FORMAT:
                return StreamMark(**document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(path) from error
        raise _unreadable(path)


def _unreadable(path: str) -> LakeDamaged:
    return LakeDamaged(
        f"The lake's file {path}, which says whose the folder is, cannot be read",
        "Restore it from a backup, or use the version of tidegate that wrote it.",
    )
