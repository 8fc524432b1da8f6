"""How long what is in quarantine is kept: `quarantine: {keep: …}` of the newest batch's pipeline says."""

from __future__ import annotations

from datetime import timedelta

from tidegate.app.root import App
from tidegate.ledger import LeasedLedger, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.maintenance.notes import note_in_ledger


def expire_quarantine(
    app: App, stream: Stream, now: float, safe_age: timedelta, dry_run: bool = False
) -> int | None:
    """Note up to which batch quarantine is read no more; None: nothing has changed.

    `now`: epoch seconds. Files go when that was noted a safe age ago; until then it is not noted anew. Where
    a run is at work, it is noted the next time. Raises Fenced, LedgerUnavailable, PlanUnreadable.
    """

    def note(lease: LeasedLedger) -> int | None:
        last = _newly_expired(app, stream, now, safe_age)  # again: a replay may be planned since
        if last is not None:
            lease.expire_quarantine(last)
        return last

    due = _newly_expired(app, stream, now, safe_age)
    if due is None or dry_run:
        return due
    return note_in_ledger(app, stream, note)


def _newly_expired(app: App, stream: Stream, now: float, safe_age: timedelta) -> int | None:
    """Return the batch up to which quarantine is to expire now; None if nothing changes."""
    expired, last = app.ledger.expired_quarantine(stream), _last_unneeded(app, stream, now)
    if last <= expired.seq or (expired.seq and expired.at > now - safe_age.total_seconds()):
        return None
    return last


def _last_unneeded(app: App, stream: Stream, now: float) -> int:
    """The last batch whose quarantine is older than it is kept, is out where it goes to a topic, and has no
    records that a batch replays which is not decided: dropped, it would leave them open. 0: there is none.
    """
    head = app.ledger.head(stream).seq
    plan = app.ledger.plan(stream, head) if head else None
    rule = planned_pipeline(plan).quarantine if plan is not None else None
    if rule is None or rule.keep_ms is None:
        return 0
    replayed = (made.first_batch for made in app.ledger.resolutions(stream) if (made.seq or 0) > head)
    return min(
        app.ledger.head_at(stream, now - rule.keep_ms / 1000),
        app.ledger.newest_publication(stream) - 1,
        *(first - 1 for first in replayed),
    )
