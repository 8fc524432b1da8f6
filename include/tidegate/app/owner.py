"""Whose a stream's folder is: that of the ledger that began it, as far as that ledger has come.

Each committed batch leaves a mark in the folder before anything of it is sent, and before the next one is
planned. A process whose ledger does not have the batch of the newest mark works with another ledger, or with
one that was restored from a backup: it halts before it reads, removes or sends anything.
"""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.errors import LakeDamaged, LedgerMismatch
from tidegate.lake import StreamMark
from tidegate.ledger import Stream


def claim_folder(app: App, stream: Stream) -> None:
    """Make sure that the stream's folder is this ledger's, and mark it with the head if that has no mark yet.

    It needs no lease: every process of one ledger writes the same mark for a batch, and of two ledgers one
    finds the mark of the other. Raises LedgerMismatch, LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    marks, missing = app.marks(stream), check_owner(app, stream)
    while missing is not None:
        marks.put(missing)
        missing = check_owner(app, stream)


def check_owner(app: App, stream: Stream) -> StreamMark | None:
    """Return the mark that the stream's folder lacks for this ledger's head; None if it has it. Writes
    nothing.

    Raises LedgerMismatch where the folder is another ledger's, or has a batch that this one does not have;
    LakeDamaged where it has no mark, and the ledger has batches; LakeUnavailable, LedgerUnavailable.
    """
    newest = app.marks(stream).newest()
    head = _committed_mark(app, stream)  # after the marks: a batch is committed before it has one
    assert head is not None, "batch 0 is committed in every ledger"
    if newest is None:
        if head.seq:
            raise _without_mark(app, stream, head.seq)
        return head
    if newest.ledger != head.ledger:
        raise _of_another_ledger(app, stream, newest.ledger, head.ledger)
    if newest != (head if newest.seq == head.seq else _committed_mark(app, stream, newest.seq)):
        raise _unknown_batch(stream, newest, head.seq)
    return head if newest.seq < head.seq else None


def check_ledger(app: App, stream: Stream) -> None:
    """Raise LedgerMismatch if the stream's folder is another ledger's, however far the two have come."""
    newest, own = app.marks(stream).newest(), _committed_mark(app, stream, 0)
    if newest is not None and own is not None and newest.ledger != own.ledger:
        raise _of_another_ledger(app, stream, newest.ledger, own.ledger)


def _committed_mark(app: App, stream: Stream, seq: int | None = None) -> StreamMark | None:
    batch = app.ledger.committed_batch(stream, seq)
    return None if batch is None else StreamMark(*batch)


def _of_another_ledger(app: App, stream: Stream, owner: str, own: str) -> LedgerMismatch:
    return LedgerMismatch(
        f"The folder of {stream} in the lake {app.settings.lake} belongs to the ledger {owner}, and "
        f"TIDEGATE_LEDGER is the ledger {own}",
        "Set TIDEGATE_LEDGER to the ledger that has written it, or TIDEGATE_LAKE to another place.",
    )


def _unknown_batch(stream: Stream, newest: StreamMark, head: int) -> LedgerMismatch:
    instead = f"its last batch is {head}" if newest.seq > head else "it has another attempt"
    return LedgerMismatch(
        f"The lake has batch {newest.seq} of {stream} as attempt {newest.attempt}, which this ledger has not "
        f"committed: {instead}. It was restored from a backup, or another copy of it is in use",
        "Use the newest copy of the ledger, or restore a newer backup.",
    )


def _without_mark(app: App, stream: Stream, head: int) -> LakeDamaged:
    return LakeDamaged(
        f"The folder of {stream} in the lake {app.settings.lake} has no mark, and the ledger has {head} "
        "batches: it is not the folder that they were written to, or its generation was dropped since",
        "Point TIDEGATE_LAKE at the lake that was written to, or restore the newest backup of the ledger.",
    )
