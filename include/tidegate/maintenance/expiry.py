"""Expire quarantine: `quarantine: {keep: …}` of the newest batch's pipeline says how long it is kept."""

from __future__ import annotations

from datetime import timedelta

from tidegate.app.root import App
from tidegate.ledger import LeasedLedger, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.maintenance.notes import note_in_ledger


def expire_quarantine(
    app: App, stream: Stream, now: float, safe_age: timedelta, dry_run: bool = False
) -> int | None:
    """Note up to which batch quarantine is read no more, and return that batch; None if nothing has changed.

    Files are removed a safe age after this note; until then no newer note is made. If a run is at work, the
    note is made the next time. Raises Fenced, LedgerUnavailable, PlanUnreadable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream.
        now: epoch seconds.
        safe_age: no reader takes longer.
        dry_run: return what would be noted, and do nothing.
    """

    def note(lease: LeasedLedger) -> int | None:
        # asked again under the lease: a replay may have been planned since
        last = _newly_expired(app, stream, now, safe_age)
        if last is not None:
            lease.expire_quarantine(last)
        return last

    due = _newly_expired(app, stream, now, safe_age)
    if due is None or dry_run:
        return due
    return note_in_ledger(app, stream, note)


def _newly_expired(app: App, stream: Stream, now: float, safe_age: timedelta) -> int | None:
    """Return the batch up to which quarantine expires now; None if nothing changes."""
    expired, last = app.ledger.expired_quarantine(stream), _last_unneeded(app, stream, now)
    if last <= expired.seq or (expired.seq and expired.at > now - safe_age.total_seconds()):
        return None
    return last


def _last_unneeded(app: App, stream: Stream, now: float) -> int:
    """Return the last batch whose quarantine is not needed any more; 0 if there is none.

    Quarantine is needed while it is younger than `keep`, while it is not yet sent to its topic, and while a
    batch that is not decided replays records of it: if that batch is dropped, they are open again.
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
