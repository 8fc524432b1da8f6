"""Remedy `adopt-ledger`: let this ledger own folders that a copy of it has written, as far as it has them."""

from __future__ import annotations

from tidegate.app.owner import check_owner, claim_folder, claim_promotions, unknown_promotions
from tidegate.errors import LedgerMismatch
from tidegate.lake import LedgerMark
from tidegate.recovery.lost_promotions import adopt_promotions
from tidegate.recovery.remedy import Proposal
from tidegate.recovery.situation import Situation


class AdoptLedger:
    """Let a ledger that has all batches of a folder own it, such as one that was moved; and let one that was
    restored learn the promotions that were decided after its backup.
    """

    name = "adopt-ledger"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if a folder names another ledger but has only batches of this one, or if a
        pipeline's folder has promotions that this ledger lacks.

        Raises LedgerMismatch if the folder has a batch that this ledger does not have.
        """
        owner = _other_owner(situation)
        if owner is not None:
            return self._take_over(situation, owner)
        unknown = unknown_promotions(situation.app, situation.stream.pipeline)
        if unknown:
            return adopt_promotions(self.name, situation, unknown)
        _require_known_batches(situation)
        return None

    def _take_over(self, situation: Situation, owner: str) -> Proposal:
        _require_adoptable(situation, owner)
        mark = situation.app.marks(situation.stream).newest()
        stream, own = situation.stream, _identity(situation)
        has = f"batch {mark.number}" if mark is not None and mark.number else "no batch"
        cause = f"The folder of {stream} belongs to the ledger {owner}, and this is the ledger {own}."
        effects = (
            f"The folder has {has}, as this ledger does; from then on it belongs to this ledger.",
            f"Every process that still uses the ledger {owner} halts.",
        )
        return Proposal(self.name, cause, effects, lambda: _adopt(situation))


def _other_owner(situation: Situation) -> str | None:
    """Return the other ledger that owns the stream's folder, or the pipeline's; None if both belong to this
    one.
    """
    app, stream, own = situation.app, situation.stream, _identity(situation)
    newest = (app.marks(stream).newest(), app.promotion_marks(stream.pipeline).newest())
    return next((mark.ledger for mark in newest if mark is not None and mark.ledger != own), None)


def _require_known_batches(situation: Situation) -> None:
    try:
        check_owner(situation.app, situation.stream)
    except LedgerMismatch as error:
        raise LedgerMismatch(
            error.what,
            "Restore the newest backup of the ledger. What later batches have read stands only in the lost "
            "part, and their emissions may be sent: without that part, begin with a new `generation`, which "
            "sends again only if that is asked for.",
        ) from error


def _require_adoptable(situation: Situation, owner: str) -> None:
    """Raise LedgerMismatch if this ledger lacks the newest batch or promotion of the folders."""
    app, stream = situation.app, situation.stream
    mark, promotion = app.marks(stream).newest(), app.promotion_marks(stream.pipeline).newest()
    promotions = [
        (made.number, str(made.stream)) for made in situation.ledger.charge(stream.pipeline).promotions
    ]
    is_promoted = promotion is None or (promotion.number, promotion.name) in promotions
    if not _has_batch(situation, mark) or not is_promoted:
        number = mark.number if mark is not None else 0
        raise LedgerMismatch(
            f"The folder of {stream} has batch {number} of the ledger {owner}, and this "
            f"ledger, whose last batch is {situation.head.seq}, lacks what it has, and cannot take over",
            "Set TIDEGATE_LEDGER to that ledger, or TIDEGATE_LAKE to another place.",
        )


def _has_batch(situation: Situation, mark: LedgerMark | None) -> bool:
    """Return whether the batch of the folder's newest mark is this ledger's, too."""
    if mark is None or not mark.number:
        return not situation.head.seq
    committed = situation.ledger.committed_batch(situation.stream, mark.number)
    return committed is not None and committed.attempt == mark.name


def _adopt(situation: Situation) -> tuple[str, ...]:
    """Make the folders this ledger's. The stream's folder is last, so that a killed remedy is proposed
    again.
    """
    app, stream, own = situation.app, situation.stream, _identity(situation)
    app.promotion_marks(stream.pipeline).adopt(own)
    app.marks(stream).adopt(own)
    claim_folder(app, stream)
    claim_promotions(app, stream.pipeline)
    return (f"The folder of {stream} belongs to the ledger {own}.",)


def _identity(situation: Situation) -> str:
    batch = situation.ledger.committed_batch(situation.stream, 0)
    assert batch is not None, "batch 0 is committed in every ledger"
    return batch.ledger
