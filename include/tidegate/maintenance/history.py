"""Remove from the ledger all but commit and run of a batch whose state can be read no more.

This is the only place of the rule; docs/decisions has its reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tidegate.app.root import App
from tidegate.ledger import Snapshot, Stream

BATCHES_AT_ONCE = 500
"""The batches that one transaction removes; a larger one would keep a step waiting that writes at the same
time.
"""


def remove_history(app: App, stream: Stream, now: float, safe_age: timedelta, dry_run: bool = False) -> int:
    """Remove what the ledger has of batches before the oldest readable state, and return the number of
    batches.

    It is safe beside running batches, which write to the head's row and to those after it. After a crash, the
    next call removes the rest. Raises LedgerUnavailable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream.
        now: epoch seconds.
        safe_age: state counts as given up after this time, when all its readers have ended.
        dry_run: count the batches, and remove nothing.
    """
    oldest = oldest_readable(app.ledger.snapshots(stream), now - safe_age.total_seconds())
    if dry_run or not oldest:
        return app.ledger.removable_batches(stream, oldest)
    removed = 0
    while batches := app.ledger.remove_batches(stream, oldest, BATCHES_AT_ONCE):
        removed += batches
    return removed


def oldest_readable(snapshots: Iterable[Snapshot], until: float) -> int:
    """Return the batch of the oldest state that is still read; 0 if all state is.

    State before a snapshot is read no more if it was given up at `until` (epoch seconds) or earlier.
    """
    return max(
        (snapshot.seq for snapshot in snapshots if snapshot.given_up_at and snapshot.given_up_at <= until),
        default=0,
    )
