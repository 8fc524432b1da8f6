"""Write maintenance's notes to the ledger, with a stream's lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.errors import LeaseHeld
from tidegate.ledger import LeasedLedger, Stream

_HOLDER = "maintenance"
Noted = TypeVar("Noted")


def note_in_ledger(app: App, stream: Stream, note: Callable[[LeasedLedger], Noted]) -> Noted | None:
    """Call `note` with the stream's lease and return its result; None if a run is at work, since maintenance
    does not wait and comes again.

    `note` decides what it writes under the lease, because a run may have ended just before. Raises Fenced,
    LedgerUnavailable.
    """
    try:
        with leased(app, stream, _HOLDER) as lease:
            result = note(lease)
            lease.release()
    except LeaseHeld:
        return None
    return result
