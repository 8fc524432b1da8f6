"""Remedy `give-up`: continue after a decided batch that a sink does not take."""

from __future__ import annotations

from typing import Any

from tidegate.app import App
from tidegate.batch.publish import publish_decided
from tidegate.errors import TidegateError
from tidegate.ledger import GivenUp, LeasedLedger
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.recovery.unsent import (
    UnsentBatch,
    export_records,
    first_unsent,
    records_of,
    refusals,
    require_sinks,
)
from tidegate.sinks.port import OpenSink

FOLDER = "given-up"
"""The folder of exported records, below TIDEGATE_HOME."""


class GiveUp:
    """Export the records of the oldest unpublished batch that a sink refuses, and continue after the
    batch.
    """

    name = "give-up"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if a decided batch cannot be published; for any unpublished batch, if the remedy
        is chosen.
        """
        batch = first_unsent(situation.app, situation.ledger, situation.stream)
        if batch is None or not (batch.is_refused or situation.is_chosen(self.name)):
            return None
        require_sinks(situation, [sink.name for sink in batch.sinks])
        folder = situation.app.settings.home / FOLDER / str(batch.plan.stream)
        counts = ", ".join(f"{records_of(batch, sink)} for {sink.name}" for sink in batch.sinks)
        effects = (
            f"Batch {batch.seq} is offered once more to each sink that lacks it (records: {counts}).",
            "A sink that refuses it never gets what it lacks of it.",
            "Where a retry could help, nothing is given up, unless you name the sink with --sink.",
            f"First all records of it that can still be read are exported to {folder}.",
            f"The ledger records what was given up, and the stream continues after batch {batch.seq}.",
        )
        return Proposal(self.name, batch.cause, effects, lambda: _give_up(situation, batch.seq))


def _give_up(situation: Situation, seq: int) -> tuple[str, ...]:
    app, stream = situation.app, situation.stream
    with situation.leased() as lease, app.clusters:
        batch = first_unsent(app, lease, stream)
        # A run may have published it since the proposal; the next batch was not shown to the person.
        if batch is None or batch.seq != seq:
            return (f"Batch {seq} is published now; nothing was given up.",)
        done = list(give_up_batch(app, lease, batch, situation.options.sinks))
        # The batches after it have waited for it, and need no decision of a person.
        publish_decided(app, lease)
    return (*done, f"{stream} is published up to batch {lease.head(stream).seq}.")


def give_up_unsent(app: App, lease: LeasedLedger) -> list[str]:
    """Publish all decided batches of a stream, and give up what a sink refuses. Returns a sentence for each
    refusal.

    Raises what `give_up_batch` raises; then the batches before that one are done.
    """
    done: list[str] = []
    while (batch := first_unsent(app, lease, lease.stream)) is not None:
        done += give_up_batch(app, lease, batch, ())
    return done


def give_up_batch(app: App, lease: LeasedLedger, batch: UnsentBatch, named: tuple[str, ...]) -> list[str]:
    """Publish a batch to the sinks that accept it, and give it up for those that do not: see `refusals`.

    Returns a sentence for each sink that does not. Raises LakeUnavailable if its records cannot be exported,
    and what `refusals` raises.

    Args:
        app: the settings: the export is below TIDEGATE_HOME.
        lease: the stream's lease.
        batch: the batch and the sinks that lack it.
        named: sinks that a person has named: they are given up even if a retry could help.
    """
    done = []
    for sink, error in refusals(lease, batch, named):
        # The order guards the records: export, then seal the sink, then the note that lets the stream go on.
        path, exported = export_records(app.settings.home / FOLDER, batch, sink)
        sent, note = _sealed(lease, sink, batch.seq)
        records = records_of(batch, sink)
        lease.give_up_publication(GivenUp(batch.seq, sink.name, sent, records, str(path)))
        done.append(
            f"{sink.name}: batch {batch.seq} of {batch.plan.stream} is given up ({type(error).__name__}: "
            f"{error.what.rstrip('.')}). It had {records} records, of which the sink has {sent}; {exported} "
            f"are in {path}.{note}"
        )
    return done


def _sealed(lease: LeasedLedger, sink: OpenSink[Any], seq: int) -> tuple[int, str]:
    """Make sure that nobody can send the batch to the sink any more. Return how many records the sink has,
    and a note.
    """
    try:
        return sink.seal(lease, seq), ""
    # A sink that does not answer cannot be sealed (decision 65); the note says what is not known.
    except TidegateError as error:
        return 0, f" What it has of it is not known: {type(error).__name__}: {error.what.rstrip('.')}."
