"""Compaction: the changelogs since the last snapshot are folded into a new one. Safe beside running batches.

Whoever reads state reads the newest snapshot and the changelogs after it; what they tell is the same before
and after. Nothing is removed here: see `steps.cleaning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.lake import OnDisk, on_disk, snapshot_name
from tidegate.ledger import Snapshot, Stream
from tidegate.spec.kernel import state_names
from tidegate.steps.app import App, planned_pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_CHANGELOGS = 100
"""With more than this, a batch opens too many files to find its state, however small they are."""


@dataclass(frozen=True)
class Compaction:
    """What the state after batch `seq` took on disk in all stages, and takes now. `note` says why nothing was
    done, or what was."""

    stream: Stream
    seq: int
    note: str
    before: OnDisk
    after: OnDisk
    snapshot: str | None = None


def compact_state(
    app: App,
    stream: Stream,
    open_session: Callable[[], SparkSession],
    only_if_due: bool = False,
    dry_run: bool = False,
) -> Compaction:
    """Fold the state after the head into a snapshot, if it is not one already.

    It takes no lease. Of two at once one is noted; the other's files are dead. Raises LakeUnavailable,
    LedgerUnavailable, and what Spark raises.
    """
    snapshots = app.ledger.snapshots(stream)
    base = snapshots[-1] if snapshots else None
    after = base.seq if base is not None else 0
    head = app.ledger.head(stream).seq
    attempts = app.ledger.state_attempts(stream, head)
    now = size_of(app, stream, attempts)
    folded = size_of(app, stream, [base.name]) if base is not None else OnDisk(0, 0, 0)
    why_not = _why_not(head, after, now, folded, only_if_due)
    if why_not or dry_run:
        return Compaction(stream, head, why_not or "would be compacted", now, now)
    name = snapshot_name(head)
    app.fold(stream, planned_pipelines(app, stream), attempts, name, open_session)
    if not app.ledger.add_snapshot(Snapshot(stream, head, name), after):
        return Compaction(stream, head, "another compaction was faster", now, now)
    return Compaction(stream, head, "compacted", now, size_of(app, stream, [name]), name)


def _why_not(head: int, after: int, now: OnDisk, folded: OnDisk, only_if_due: bool) -> str | None:
    """Why there is nothing to do; None: there is.

    A snapshot is due when the changelogs since the last one have as many rows as that has: then what is
    written is at most twice what has changed.
    """
    if head == after:
        return "is compacted already" if head else "no batch is committed yet"
    changed = now.rows - folded.rows
    if only_if_due and changed < max(folded.rows, 1) and head - after <= MOST_CHANGELOGS:
        return f"not due: {changed} rows changed since a snapshot of {folded.rows}"
    return None


def size_of(app: App, stream: Stream, attempts: Sequence[str]) -> OnDisk:
    """What these attempts of the state take, all stages together."""
    lake = app.lake(stream)
    sizes = [on_disk(lake.state(step), attempts) for step in state_names(planned_pipelines(app, stream))]
    return OnDisk(*(sum(each) for each in zip(*sizes, strict=True))) if sizes else OnDisk(0, 0, 0)
