"""Detect repetitions: a record at or before the position that changed an entry last (DESIGN,
"Deduplicate").
"""

from __future__ import annotations

from typing import Literal

from tidegate.kernel.columns import Columns
from tidegate.kernel.entry import Entry
from tidegate.kernel.sources import repeats


class Fences:
    """The fence of each entry, by the records' own positions (`offset`) or by those they came from (`root`).

    By offset, only an earlier batch can have had a record: within a batch, no offset comes twice. In a replay
    no record is a repetition, and fences stay where they are (`core.stage.Batch`).
    """

    def __init__(self, by: Literal["offset", "root", "none"], columns: Columns, is_replay: bool) -> None:
        self._by = by
        self._columns = columns
        self._is_replay = is_replay

    def restore(self, entry: Entry, row: int) -> None:
        """Set the entry's fence to its state row.

        Args:
            entry: An entry that is restored.
            row: Its state row.
        """
        entry.group = None  # all parts of an exploded record are in one batch
        entry.fence_row = row if self._is_replay and self._by == "root" else None
        if self._by == "offset":
            entry.fence = self._columns.position(row)
        elif self._by == "root":
            entry.fence = self._columns.root(row)

    def advance(self, entry: Entry, row: int) -> None:
        """Move the entry's fence to a record of this batch.

        Args:
            row: The record that has changed the entry.
        """
        if self._by == "root":
            entry.fence, entry.group = self._columns.root(row), self._columns.position(row)

    def repeats(self, entry: Entry, row: int) -> bool:
        """Return whether the entry has had the record.

        Args:
            entry: An entry with a fence.
            row: A record of its key.
        """
        assert entry.fence is not None
        if self._is_replay:
            return False
        if self._by == "offset":
            # the cheap test first: usually a record is past the fence
            later = self._columns.offset[row] > entry.fence[2]
            return not later and repeats(self._columns.position(row), entry.fence)
        # parts that are exploded from one record have one root: they do not repeat each other
        position = self._columns.position(row)
        return repeats(self._columns.root(row), entry.fence) and entry.group != position
