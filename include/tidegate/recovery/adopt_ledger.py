"""Remedy `adopt-ledger`: put this ledger's identity on a folder that a copy of it has written."""

from __future__ import annotations

from tidegate.app.owner import check_owner, claim_folder, claim_promotions
from tidegate.errors import LedgerMismatch
from tidegate.lake import LedgerMark
from tidegate.recovery.remedy import Proposal
from tidegate.recovery.situation import Situation


class AdoptLedger:
    """Let a ledger that has all batches of a folder own it, such as one that was moved."""

    name = "adopt-ledger"

    def propose(self, situation: Situation) -> Proposal | None:
        """Where the folder names another ledger, and its newest batch is this ledger's, too.

        Raises LedgerMismatch where the folder has a batch that this ledger does not have.
        """
        try:
            check_owner(situation.app, situation.stream)
        except LedgerMismatch as error:
            mark = _adoptable(situation, error)
        else:
            return None
        stream, own = situation.stream, _identity(situation)
        has = f"batch {mark.number}" if mark.number else "no batch"
        cause = f"The folder of {stream} belongs to the ledger {mark.ledger}, and this is the ledger {own}."
        effects = (
            f"The folder has {has}, as this ledger does; from then on it belongs to this ledger.",
            f"Every process that still uses the ledger {mark.ledger} halts.",
        )
        return Proposal(self.name, cause, effects, lambda: _adopt(situation))


def _adoptable(situation: Situation, error: LedgerMismatch) -> LedgerMark:
    """The newest mark of another ledger, which this one can take over. Raises LedgerMismatch."""
    mark = situation.app.marks(situation.stream).newest()
    if mark is None or mark.ledger == _identity(situation):
        raise LedgerMismatch(
            error.what,
            "Restore the newest backup of the ledger. What later batches have read stands only in the lost "
            "part, and their emissions may be sent: without that part, begin with a new `generation`, which "
            "sends again only if that is asked for.",
        ) from error
    committed = situation.ledger.committed_batch(situation.stream, mark.number)
    is_same = committed is not None and committed.attempt == mark.name
    promotion = situation.app.promotion_marks(situation.stream.pipeline).newest()
    promotions = situation.ledger.charge(situation.stream.pipeline).promotions
    is_promoted = promotion is None or (promotion.number, promotion.name) in [
        (made.number, str(made.stream)) for made in promotions
    ]
    if not is_same or not is_promoted or (not mark.number and situation.head.seq):
        raise LedgerMismatch(
            f"The folder of {situation.stream} has batch {mark.number} of the ledger {mark.ledger}, and this "
            f"ledger, whose last batch is {situation.head.seq}, lacks what it has, and cannot take over",
            "Set TIDEGATE_LEDGER to that ledger, or TIDEGATE_LAKE to another place.",
        ) from error
    return mark


def _adopt(situation: Situation) -> tuple[str, ...]:
    app, stream, own = situation.app, situation.stream, _identity(situation)
    app.marks(stream).adopt(own)
    app.promotion_marks(stream.pipeline).adopt(own)
    claim_folder(app, stream)
    claim_promotions(app, stream.pipeline)
    return (f"The folder of {stream} belongs to the ledger {own}.",)


def _identity(situation: Situation) -> str:
    batch = situation.ledger.committed_batch(situation.stream, 0)
    assert batch is not None, "batch 0 is committed in every ledger"
    return batch.ledger
