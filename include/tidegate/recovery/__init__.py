"""Repair a stream that cannot continue: find the cause, show what would be done, do it, and record that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.app import App, stream_of
from tidegate.errors import PipelineInvalid, SettingsInvalid, TidegateError
from tidegate.ledger import Recovery, Stream
from tidegate.recovery.move import Move
from tidegate.recovery.next_batch import AcceptGap, DropPlan, LowerClock
from tidegate.recovery.ownership import AdoptLedger, Forget
from tidegate.recovery.remedy import Proposal, Remedy, Situation
from tidegate.recovery.sinks import RestoreProgress, SendAgain
from tidegate.recovery.unsent import GiveUp, Promote

REMEDIES: tuple[Remedy, ...] = (
    *(AcceptGap(), DropPlan(), LowerClock(), Move(), RestoreProgress()),
    *(SendAgain(), GiveUp(), Promote(), Forget(), AdoptLedger()),
)


@dataclass(frozen=True)
class UnknownCause:
    """A remedy that cannot find out whether its cause applies.

    Args:
        remedy: the remedy's name.
        error: why it cannot.
    """

    remedy: str
    error: TidegateError


def stream_to_recover(app: App, pipeline: str, generation: int | None) -> Stream:
    """Return the stream to recover, even if its pipeline file is missing or has a mistake.

    `pipeline` is the name of a file, or a pipeline's name in the ledger. Without `generation` it is the one
    of the file, else the one in charge, else the newest. Raises SettingsInvalid if the ledger lacks the
    generation, PipelineInvalid if neither a file nor the ledger has the name.
    """
    try:
        from_file = stream_of(app.pipeline(pipeline))
    except PipelineInvalid:
        in_ledger = [stream for stream in app.ledger.streams() if stream.pipeline == pipeline]
        in_ledger = in_ledger or app.ledger.dropped_streams(pipeline)
        if not in_ledger:
            raise
        in_charge = app.ledger.charge(pipeline).generation
        from_file = Stream(pipeline, in_charge) if in_charge is not None else in_ledger[-1]
    stream = from_file if generation is None else Stream(from_file.pipeline, generation)
    if generation is not None and stream not in app.ledger.streams() and not app.ledger.is_dropped(stream):
        raise SettingsInvalid(
            f"The ledger has no generation {generation} of a pipeline {stream.pipeline}",
            "`tidegate generation list` shows them all.",
        )
    return stream


def find_proposals(
    situation: Situation, remedies: Sequence[Remedy] = REMEDIES
) -> Iterator[Proposal | UnknownCause]:
    """Yield the proposal of each remedy whose cause applies. It only reads.

    If a remedy is chosen, only that one is used, and its errors are raised. Raises LedgerUnavailable.
    """
    for remedy in remedies:
        if situation.options.choice not in (None, remedy.name):
            continue
        try:
            proposal = remedy.propose(situation)
        except TidegateError as error:
            if situation.is_chosen(remedy.name):
                raise
            # One remedy's error, such as a broker that is down, must not hide the proposals of the others.
            yield UnknownCause(remedy.name, error)
        else:
            if proposal is not None:
                yield proposal


def carry_out(situation: Situation, proposal: Proposal, by: str) -> tuple[str, ...]:
    """Carry out a proposal, and return a sentence for each thing that was done.

    `by` is the person who decides. The ledger records person, time and effects before the remedy begins, so
    that the record exists even if the command is killed, and adds the outcome at the end. Raises the error of
    the remedy.
    """
    ledger, stream = situation.app.ledger, situation.stream
    begun = Recovery(stream, proposal.remedy, proposal.cause, proposal.effects, by)
    # Before the remedy: a command that is killed leaves the record of who has decided it.
    number = ledger.add_recovery(begun)
    try:
        done = proposal.carry_out()
    except TidegateError as error:
        ledger.end_recovery(stream, number, (f"Failed: {type(error).__name__}: {error}",))
        raise
    ledger.end_recovery(stream, number, done)
    return done
