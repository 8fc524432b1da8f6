"""Which state rows tell of nothing that the kernel would ever miss: compaction leaves them out."""

from __future__ import annotations

from tidegate.core.stage import Stage


def live_rows_suffice(stage: Stage) -> bool:
    """Whether rows that are not live may be left out of a snapshot, where nothing older is read.

    Such a row holds and remembers no value, and has no timer. Where entries expire (windows, repeated values,
    deletions under a sequence) the kernel drops it as soon as it has read it: whether a record is late, its
    partition's time tells, not a row. Otherwise it is a deleted key, or one whose content has all gone out,
    of which only the position is left: below the head, where no record is read again. A root's position is
    another topic's: what lies before it may come at any time.
    """
    return stage.window is not None or stage.emit.expires or stage.deduplicate != "root"
