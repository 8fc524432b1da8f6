"""Remedy `restore-progress`: write the progress again that a sink has lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.batch import published_sinks
from tidegate.errors import SettingsInvalid
from tidegate.kafka.progress import Progress
from tidegate.ledger import LeasedLedger
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.sinks.port import OpenSink

_WITHHELD = "another generation is in charge"


class RestoreProgress:
    """Write the progress again from what the sink shows, or a person states, and send the batches that the
    sink lacks.

    Progress that is not lost stays as it is. A generation that is not in charge sends nothing.
    """

    name = "restore-progress"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if a sink's progress is missing, or older than the ledger or the sink shows.

        Raises SettingsInvalid if progress is stated for a sink that cannot lose it.
        """
        sinks = _sinks(situation)
        lost = [
            (sink, progress)
            for sink in sinks
            if (progress := sink.lost_progress(situation.options.progress.get(sink.name))) is not None
        ]
        if not lost:
            return None
        names = ", ".join(sink.name for sink, _ in lost)
        effects = [effect for sink, progress in lost for effect in _effects(situation, sink, progress)]
        intact = [sink.name for sink in sinks if sink.name not in {lost_sink.name for lost_sink, _ in lost}]
        if intact:
            effects.append(f"The progress of {', '.join(intact)} is intact, and stays as it is.")
        return Proposal(
            self.name,
            f"The record of how far {situation.stream} was published is lost in {names}.",
            tuple(effects),
            lambda: tuple(_restore(situation)),
        )


def _sinks(situation: Situation) -> list[OpenSink[Any]]:
    """Return the sinks that can lose their progress. Raises SettingsInvalid if progress is stated for another
    sink.
    """
    sinks = [sink for sink in published_sinks(situation.app, situation.stream) if sink.can_lose_progress]
    names = [sink.name for sink in sinks]
    unknown = sorted(set(situation.options.progress) - set(names))
    if unknown:
        raise SettingsInvalid(
            f"{situation.stream} has no sink {', '.join(unknown)} whose progress can be stated",
            f"It has: {', '.join(names) or 'none'}.",
        )
    return sinks


def _effects(situation: Situation, sink: OpenSink[Any], progress: Progress) -> Iterator[str]:
    yield f"{sink.name}: it has {progress}, which becomes its progress."
    missing = sink.batches_with_output(_missing(situation, progress))
    numbers = ", ".join(map(str, missing))
    if not missing:
        yield f"{sink.name}: it lacks no batch, so nothing is sent."
    elif situation.is_withheld:
        yield f"{sink.name}: it lacks batches {numbers}; {_WITHHELD}, so nothing is sent."
    else:
        yield f"{sink.name}: batches {numbers} are sent again, in order."


def _restore(situation: Situation) -> Iterator[str]:
    with situation.leased() as lease, situation.app.clusters:
        for sink in _sinks(situation):
            # The sink looks again, after it has fenced other publishers: one may have sent more meanwhile.
            progress = sink.restore_progress(situation.options.progress.get(sink.name))
            if progress is None:
                yield f"{sink.name}: its progress is intact, and was left as it is."
            else:
                sent = _sent(situation, lease, sink, progress)
                yield f"{sink.name}: it has {progress}; {sent}."


def _sent(situation: Situation, lease: LeasedLedger, sink: OpenSink[Any], progress: Progress) -> str:
    if situation.is_withheld:
        return f"{_WITHHELD}, so nothing was sent"
    # The ledger may count these batches as published, so no run would send them.
    sent = sink.publish_again(lease, _missing(situation, progress))
    return f"sent again: {', '.join(map(str, sent))}" if sent else "nothing was missing"


def _missing(situation: Situation, progress: Progress) -> range:
    """Return the batches that a sink lacks, as a whole or in part."""
    # The batch at `next_seq` may be there in part; the progress record says how much of it.
    return range(progress.next_seq, situation.ledger.head(situation.stream).seq + 1)
