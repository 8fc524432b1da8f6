"""Decide which state rows the kernel does not need any more: compaction leaves them out."""

from __future__ import annotations

from tidegate.kernel.stage import Stage


def live_rows_suffice(stage: Stage) -> bool:
    """Return whether rows that are not live may be left out of a snapshot, if nothing older is read beside
    it.

    Such a row has no value and no timer. If entries expire (windows, repeated values, deletions under a
    sequence), the kernel drops it at once when it reads it: the time of its partition says whether a record
    is late, not a row. Otherwise it is a deleted key, or a key whose content was all emitted, and only its
    position is left: that is below the head, where no record is read again. With `deduplicate: root` the
    position is one of another topic, whose earlier records may come at any time.

    Example: it is False for a stage with `deduplicate: root` and neither a window nor entries that expire.
    """
    return stage.window is not None or stage.emit.expires or stage.deduplicate != "root"
