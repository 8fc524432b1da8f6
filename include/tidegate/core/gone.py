"""Which state rows tell of nothing that the kernel would ever miss: compaction leaves them out."""

from __future__ import annotations

from tidegate.core.emit import Change, Update
from tidegate.core.reduce import Latest
from tidegate.core.stage import Stage


def forgets_the_gone(stage: Stage) -> bool:
    """Whether the row of an entry that is gone may be left out of a snapshot, where nothing older is read.

    Such a row holds and remembers no value, and has no timer. Where entries expire (windows, repeated values)
    the kernel drops it as soon as it has read it: whether a record is late, its partition's time tells, not a
    row. Without windows it is a deleted key, of which only the position is left: below the head, where no
    record is read again. A root's position is another topic's: what lies before it may come at any time.
    """
    if stage.window is not None or stage.emit.expires:
        return True
    passes_on = isinstance(stage.reduce, Latest) and isinstance(stage.emit, (Change, Update))
    return passes_on and stage.deduplicate != "root"
