"""What maintenance notes in the ledger, with a stream's lease."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.errors import LeaseHeld
from tidegate.ledger import LeasedLedger, Stream

_HOLDER = "maintenance"


def note_in_ledger(app: App, stream: Stream, note: Callable[[LeasedLedger], None]) -> bool:
    """Let `note` write. False where a run is at work: maintenance comes again, and does not wait.

    Raises Fenced, LedgerUnavailable.
    """
    try:
        with leased(app.ledger, stream, _HOLDER) as lease:
            note(lease)
            lease.release()
    except LeaseHeld:
        return False
    return True
