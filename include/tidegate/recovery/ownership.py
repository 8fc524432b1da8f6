"""Remedies for the owner of folders: let this ledger own what a copy of it has written (`adopt-ledger`), and
remove a retired pipeline from ledger and lake (`forget`).

A ledger that was restored from a backup lacks the promotions that were decided after it. The pipeline's
folder has a mark of each, with the decision, so the ledger can have them again. A promotion that the ledger
has decided since it was restored holds: a person has decided it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from uuid import uuid4

from tidegate.app import App, leased
from tidegate.app.lease import (
    check_owner,
    claim_folder,
    claim_promotions,
    forget_promotions,
    is_marked_dropped,
    mark_dropped,
    unknown_promotions,
)
from tidegate.batch import streams_without_file
from tidegate.batch.publish import lacking_batches
from tidegate.errors import Halted, LedgerMismatch
from tidegate.generations.lifecycle import files_of, remove_files, require_not_looked_up
from tidegate.ledger import Charge, Promotion, Stream
from tidegate.numerals import counted
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.storage import LedgerMark


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
        # First the owner: promotions of another ledger mean nothing to this one.
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
        return Proposal(self.name, cause, effects, lambda: _take_over_folders(situation))


def _other_owner(situation: Situation) -> str | None:
    """Return the other ledger that owns the stream's folder, or the pipeline's; None if both belong to this
    one.
    """
    app, stream, own = situation.app, situation.stream, _identity(situation)
    # The newest mark alone says who owns a folder: a take-over replaces it last.
    newest = (app.marks(stream).newest(), app.promotion_marks(stream.pipeline).newest())
    return next((mark.ledger for mark in newest if mark is not None and mark.ledger != own), None)


def _require_known_batches(situation: Situation) -> None:
    if situation.ledger.is_dropped(situation.stream):
        return  # its batches have left the ledger, and its folder has their marks
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
    # An older copy lacks the newest batch or promotion, and would decide it a second time.
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
        # Only the mark of batch 0, or none: the folder has nothing, so the ledger must have nothing, either.
        return not situation.head.seq
    committed = situation.ledger.committed_batch(situation.stream, mark.number)
    return committed is not None and committed.attempt == mark.name


def _take_over_folders(situation: Situation) -> tuple[str, ...]:
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
        effects = _effects_of_notes(_lost_promotions(app, charge, unknown))
    return Proposal(remedy, cause, tuple(effects), lambda: _adopt_promotions(app, pipeline))


def _effects_of_removal(own: Promotion, unknown: Sequence[LedgerMark]) -> Iterator[str]:
    yield f"This ledger has put {own.stream} in charge since, by its promotion {own.number}: that holds."
    for mark in unknown:
        yield f"The mark of promotion {mark.number}, of {mark.name}, is removed."
    yield "What was sent under those promotions stays in the sinks."


def _effects_of_notes(lost: Sequence[Promotion]) -> Iterator[str]:
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


def _lost_promotions(app: App, charge: Charge, unknown: Sequence[LedgerMark]) -> list[Promotion]:
    """Return the promotions of marks as this ledger has to note them."""
    first = len(charge.promotions) + 1
    decisions = [Promotion(**mark.decision) for mark in unknown if mark.decision is not None]
    # A hole cannot be filled: nothing else says what that promotion has decided.
    if [made.number for made in decisions] != list(range(first, first + len(unknown))):
        raise LedgerMismatch(
            f"The marks of promotions from number {first} on are not all there",
            "Restore a newer backup of the ledger, or the pipeline's folder in the lake.",
        )
    adopted = charge
    for made in decisions:
        adopted = Charge((*adopted.promotions, _as_far_as_decided(app, made, adopted)))
    return list(adopted.promotions[len(charge.promotions) :])


def _as_far_as_decided(app: App, made: Promotion, before: Charge) -> Promotion:
    """Return a lost promotion, limited to the batches that this ledger has. `before`: the ones before it.

    Batches of the previous generation that are decided from now on are not published. A batch of net
    differences was decided with its promotion, so it is lost, too: the batches after the ledger's last one
    are published.
    """
    # Batches beyond the restored head no longer exist: their numbers will be used again.
    replaced_seq = made.replaced_seq
    if before.generation is not None:
        replaced = Stream(made.pipeline, before.generation)
        replaced_seq = min(replaced_seq, app.ledger.head(replaced).seq)
    # All that comes after the span before goes out: with the lost number, new batches up to it never would.
    last = app.ledger.head(made.stream).seq if made.is_net else before.released(made.generation)
    first_seq = min(made.first_seq, last + 1)
    return replace(made, replaced_seq=replaced_seq, first_seq=first_seq, is_net=False)


def _adopt_promotions(app: App, pipeline: str) -> tuple[str, ...]:
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
        lost = _lost_promotions(app, charge, unknown)
        app.ledger.add_promotions(lost)
        done = [f"The ledger has promotion {made.number}, of {made.stream}." for made in lost]
    claim_promotions(app, pipeline)
    in_charge = app.ledger.charge(pipeline).generation
    return (*done, f"{Stream(pipeline, in_charge or 1)} is in charge.")


class Forget:
    """Remove all generations of a pipeline that has no pipeline file. Its sinks keep what they have."""

    name = "forget"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if no generation of the pipeline has a file.

        Raises Halted if the remedy is chosen and a generation has a file.
        """
        app, pipeline = situation.app, situation.stream.pipeline
        streams, left = _streams(app, pipeline), _left_streams(app, pipeline)
        if not streams and not left:
            return None
        with_file = [stream for stream in streams if stream not in streams_without_file(app)]
        if with_file:
            if not situation.is_chosen(self.name):
                return None
            raise Halted(
                f"{', '.join(map(str, with_file))} has a pipeline file, so {pipeline} is not retired",
                "Remove its pipeline files first.",
            )
        cause = f"No pipeline file has {pipeline}: it is retired."
        if left:
            names = ", ".join(map(str, left))
            cause += f" {names} has left the ledger already, and the lake still has files of it."
        effects = tuple(_effects(app, streams, left))
        return Proposal(self.name, cause, effects, lambda: _forget(app, pipeline))


def _streams(app: App, pipeline: str) -> list[Stream]:
    return [stream for stream in app.ledger.streams() if stream.pipeline == pipeline]


def _left_streams(app: App, pipeline: str) -> list[Stream]:
    """Return the generations that have left the ledger but not the lake, since a process was killed in
    between.
    """
    # Without a mark or with files, `_forget` was killed after the ledger's transaction.
    dropped = app.ledger.dropped_streams(pipeline)
    return [stream for stream in dropped if files_of(app, stream) or not is_marked_dropped(app, stream)]


def _effects(app: App, streams: list[Stream], left: list[Stream]) -> list[str]:
    effects = [
        f"{counted(len(files_of(app, stream)), 'file')} of {stream} will be deleted from the lake."
        for stream in left
    ]
    for stream in streams:
        files = files_of(app, stream)
        size = sum(file.bytes for file in files)
        batches = app.ledger.head(stream).seq
        effects.append(
            f"{stream} leaves the ledger, with {counted(batches, 'batch')}. "
            f"{counted(len(files), 'file')}, {size:,} bytes, will be deleted from "
            f"{app.lake(stream).base} in the lake {app.settings.lake}."
        )
        effects += [
            f"Batch {plan.seq} of {stream}, which is decided, is never published."
            for plan in lacking_batches(app.ledger, app.ledger.head(stream))
        ]
    return [*effects, "What was published stays in the sinks. The numbers of its generations stay used."]


def _forget(app: App, pipeline: str) -> tuple[str, ...]:
    """Remove the rows first, then the files: nobody reads files of a stream that the ledger lacks.

    A second call completes what a killed one has left.
    """
    streams, run_id = _streams(app, pipeline), f"recover__{uuid4().hex[:8]}"
    with ExitStack() as stack:
        # All leases at once: no generation plans a batch while the rows of the others go.
        leases = [stack.enter_context(leased(app, stream, run_id)).lease for stream in streams]
        for stream in streams:
            require_not_looked_up(app, stream)
        if streams:
            app.ledger.forget(pipeline, leases)
    forget_promotions(app, pipeline)
    forgotten = app.ledger.dropped_streams(pipeline)
    # Marks stay after the files: an older copy of the ledger must find them, and halt.
    for stream in forgotten:
        mark_dropped(app, stream)
    removed = sum(remove_files(app, stream) for stream in forgotten)
    return (f"{pipeline} has left the ledger, and {counted(removed, 'file')} the lake.",)
