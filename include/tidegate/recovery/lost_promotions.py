"""Promotions that were decided after the backup from which a ledger was restored.

The pipeline's folder has a mark of each, with the decision, so the ledger can have them again. A promotion
that the ledger has decided since it was restored holds: a person has decided it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidegate.app import App
from tidegate.app.owner import claim_promotions, unknown_promotions
from tidegate.errors import LedgerMismatch
from tidegate.lake import LedgerMark
from tidegate.ledger import Charge, Promotion, Stream
from tidegate.recovery.remedy import Proposal
from tidegate.recovery.situation import Situation


def adopt_promotions(remedy: str, situation: Situation, unknown: Sequence[LedgerMark]) -> Proposal:
    """Return the proposal to note the promotions of unknown marks, or to remove the marks where this ledger
    has decided other promotions since.

    Raises LedgerMismatch where a mark is missing between them.
    """
    app, pipeline = situation.app, situation.stream.pipeline
    charge = app.ledger.charge(pipeline)
    newest = unknown[-1]
    cause = (
        f"Promotion {newest.number} of {pipeline} has put {newest.name} in charge, and this ledger has "
        f"{len(charge.promotions)} promotions: it was restored from a backup."
    )
    if _has_decided_since(charge, unknown):
        effects = _effects_of_removal(charge.promotions[-1], unknown)
    else:
        effects = _effects(_lost(app, charge, unknown))
    return Proposal(remedy, cause, tuple(effects), lambda: _adopt(app, pipeline))


def _effects_of_removal(own: Promotion, unknown: Sequence[LedgerMark]) -> Iterator[str]:
    yield f"This ledger has put {own.stream} in charge since, by its promotion {own.number}: that holds."
    for mark in unknown:
        yield f"The mark of promotion {mark.number}, of {mark.name}, is removed."
    yield "What was sent under those promotions stays in the sinks."


def _effects(lost: Sequence[Promotion]) -> Iterator[str]:
    for made in lost:
        approved = f", as {made.approved_by} has approved" if made.approved_by else ""
        yield f"The ledger notes promotion {made.number}, which puts {made.stream} in charge{approved}."
    newest = lost[-1]
    yield (
        f"{newest.stream} publishes its batches from {newest.first_seq} on. What its sinks have of them is "
        "not sent again."
    )
    yield (
        "Every other generation withholds what it decides. To put another one in charge then: "
        "`tidegate generation rollback`, or `tidegate generation promote`."
    )


def _has_decided_since(charge: Charge, unknown: Sequence[LedgerMark]) -> bool:
    return unknown[0].number <= len(charge.promotions)


def _lost(app: App, charge: Charge, unknown: Sequence[LedgerMark]) -> list[Promotion]:
    """Return the promotions of marks as this ledger has to note them."""
    first = len(charge.promotions) + 1
    decisions = [Promotion(**mark.decision) for mark in unknown if mark.decision is not None]
    if [made.number for made in decisions] != list(range(first, first + len(unknown))):
        raise LedgerMismatch(
            f"The marks of promotions from number {first} on are not all there",
            "Restore a newer backup of the ledger, or the pipeline's folder in the lake.",
        )
    promotions = [*charge.promotions, *decisions]
    return [_as_far_as_known(app, made, promotions[made.number - 2]) for made in decisions]


def _as_far_as_known(app: App, made: Promotion, before: Promotion) -> Promotion:
    """Return a lost promotion, limited to the batches that this ledger has.

    Batches of the previous generation that are decided from now on are not published. A batch of net
    differences was decided with its promotion, so it is lost, too: the batches after the ledger's last one
    are published.
    """
    replaced_seq = min(made.replaced_seq, app.ledger.head(before.stream).seq)
    if not made.is_net:
        return replace(made, replaced_seq=replaced_seq)
    first_seq = min(made.first_seq, app.ledger.head(made.stream).seq + 1)
    return replace(made, replaced_seq=replaced_seq, first_seq=first_seq, is_net=False)


def _adopt(app: App, pipeline: str) -> tuple[str, ...]:
    """Look again, and note or remove what is unknown then.

    It takes no lease: a run takes none before its stream's folder fits the ledger, and nothing is published
    while the pipeline's folder has unknown promotions.
    """
    charge, unknown = app.ledger.charge(pipeline), unknown_promotions(app, pipeline)
    done = []
    if unknown and _has_decided_since(charge, unknown):
        for mark in reversed(unknown):  # the newest first: what is left is still unknown
            app.promotion_marks(pipeline).remove(mark.number)
            done.append(f"The mark of promotion {mark.number}, of {mark.name}, is removed.")
    elif unknown:
        lost = _lost(app, charge, unknown)
        app.ledger.add_promotions(lost)
        done = [f"The ledger has promotion {made.number}, of {made.stream}." for made in lost]
    claim_promotions(app, pipeline)
    in_charge = app.ledger.charge(pipeline).generation
    return (*done, f"{Stream(pipeline, in_charge or 1)} is in charge.")
