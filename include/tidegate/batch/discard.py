"""Records in quarantine that nobody will use: by whom it was decided, and why, stays in the ledger."""

from __future__ import annotations

from uuid import uuid4

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.batch.resolve import ResolutionRequest, Skipped, written_resolution
from tidegate.ledger import Stream


def discard_records(app: App, stream: Stream, request: ResolutionRequest) -> tuple[int, Skipped]:
    """Discard the open records that are asked for; says how many, and how many were decided of before.

    Nothing is deleted: they stay readable as long as quarantine is kept. Raises LeaseHeld while a run is at
    work, Fenced, and what `written_resolution` raises.
    """
    with leased(app, stream, f"discard__{uuid4().hex[:12]}") as lease:
        resolution, skipped = written_resolution(app, lease, request, None)
        if resolution is not None:
            lease.add_resolution(resolution)
        lease.release()
    return (0 if resolution is None else resolution.manifest.file_rows), skipped
