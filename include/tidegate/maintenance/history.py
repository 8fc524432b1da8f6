"""What leaves the ledger: all of a batch but its commit and its run, once its state can be read no more.

The one home of the rule; its reasons are in docs/decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tidegate.app.root import App
from tidegate.ledger import Snapshot, Stream

BATCHES_AT_ONCE = 500
"""A transaction with more would keep a step waiting that writes at the same time."""


def remove_history(app: App, stream: Stream, now: float, safe_age: timedelta, dry_run: bool = False) -> int:
    """Remove what the ledger has of batches before the oldest state that can be read; says of how many.

    `now`: epoch seconds. State counts as given up after `safe_age`: whoever read it then has ended. Safe
    beside running batches, which write to the head's row and to those after it, and after a crash anywhere:
    what is left is removed the next time. Raises LedgerUnavailable.
    """
    oldest = oldest_readable(app.ledger.snapshots(stream), now - safe_age.total_seconds())
    if dry_run or not oldest:
        return app.ledger.removable_batches(stream, oldest)
    removed = 0
    while batches := app.ledger.remove_batches(stream, oldest, BATCHES_AT_ONCE):
        removed += batches
    return removed


def oldest_readable(snapshots: Iterable[Snapshot], until: float) -> int:
    """The batch before whose state nothing is read any more, since it was given up at `until` (epoch seconds)
    or earlier; 0: all is."""
    return max(
        (snapshot.seq for snapshot in snapshots if snapshot.given_up_at and snapshot.given_up_at <= until),
        default=0,
    )
