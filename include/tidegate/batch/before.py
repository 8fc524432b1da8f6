"""What a batch starts from: all that the committed batches before it have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.app.manifests import state_after
from tidegate.app.root import App
from tidegate.batch.lookups import pinned_tables
from tidegate.ledger import LedgerReader, Plan

if TYPE_CHECKING:
    from tidegate.engine.batch import Before


def left_before(app: App, ledger: LedgerReader, plan: Plan) -> Before:
    """State, times and counts after the batch before `plan`'s, and what its lookups read.

    Raises StateGivenUp when that is no longer kept, LakeDamaged, LakeUnavailable.
    """
    from tidegate.engine.batch import Before  # late: only this needs Spark

    stream = plan.stream
    last = ledger.attempt(stream, plan.seq - 1) if plan.seq > 1 else None
    return Before(
        state=state_after(app, stream, ledger.state_manifests(stream, plan.seq - 1)),
        times=last.times if last is not None else {},
        counts=last.counts if last is not None else {},
        lookups=pinned_tables(app, ledger, plan),
    )
