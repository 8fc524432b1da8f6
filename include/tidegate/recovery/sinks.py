"""Remedies for a sink: send batches a second time if it has lost them, or was replaced (`send-again`), and
write the progress again that it has lost (`restore-progress`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.app.lease import adopt_folder, unknown_mark
from tidegate.app.tables import catch_up_tables, remove_tables_ahead
from tidegate.batch import published_sinks
from tidegate.batch.publish import lacking_batches, publish_decided
from tidegate.errors import (
    Fenced,
    LakeDamaged,
    LedgerMismatch,
    ProgressLost,
    SettingsInvalid,
    TidegateError,
    TopicRecreated,
)
from tidegate.kafka.progress import Progress
from tidegate.ledger import LeasedLedger, LedgerReader, Stream
from tidegate.ledger.batches import oldest_readable
from tidegate.ledger.planned import planned_pipeline, unpublished_sinks
from tidegate.numerals import batches_named, counted
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.recovery.unsent import require_sinks
from tidegate.sinks.port import OpenSink
from tidegate.storage import LedgerMark

_WITHHELD = "another generation is in charge"


@dataclass(frozen=True)
class _Restart:
    """A sink that gets batches from `first` on, and the cause. `next_seq` is the first batch that it never
    had.
    """

    sink: OpenSink[Any]
    cause: str
    first: int
    next_seq: int


class SendAgain:
    """Record that a sink has the batches before batch N, and publish those from N on.

    Without `--from-batch`, N is the first batch that the sink never had.
    """

    name = "send-again"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if a sink was replaced, or has batches that the ledger lacks; with `--sink`, for
        these sinks.

        Raises SettingsInvalid if `--from-batch` is a batch that is no longer kept, or that the sink never
        had.
        """
        plan = situation.head_plan
        if plan is None:
            return None
        sinks = situation.app.sinks(situation.stream, planned_pipeline(plan))
        require_sinks(situation, [sink.name for sink in sinks])
        restarts = [restart for sink in sinks if (restart := _restart(situation, sink)) is not None]
        unknown = unknown_mark(situation.app, situation.stream)
        if not restarts and unknown is None:
            return None
        effects = [effect for restart in restarts for effect in _effects(situation, restart)]
        causes = [restart.cause for restart in restarts]
        if unknown is not None:
            effects = [*_effects_of_restore(situation), *effects]
            causes = [_restored(situation, unknown), *causes]
        cause = " ".join(causes)
        return Proposal(self.name, cause, tuple(effects), lambda: _send_again(situation, restarts))


def _restored(situation: Situation, unknown: LedgerMark) -> str:
    return (
        f"The lake has batch {unknown.number} of {situation.stream} as attempt {unknown.name}, which the "
        f"ledger does not have: it was restored from a backup, and its last batch is {situation.head.seq}."
    )


def _effects_of_restore(situation: Situation) -> Iterator[str]:
    yield (
        f"What the lake has of {situation.stream} after batch {situation.head.seq} counts for nothing. If "
        "there is a newer copy of the ledger, use that instead."
    )
    yield "The next runs read again what those batches have read, and compute and send it again."


def _restart(situation: Situation, sink: OpenSink[Any]) -> _Restart | None:
    options, is_named = situation.options, sink.name in situation.options.sinks
    cause = _cause(situation, sink)
    if options.sinks and not is_named:
        return None
    if cause is None and not is_named:
        return None
    next_seq = _next_seq(situation.ledger, situation.stream, sink.name)
    first = next_seq if options.from_batch is None else options.from_batch
    oldest = _oldest(situation, next_seq)
    # A later first batch would leave a hole: the sink would count as having what it never had.
    if not oldest <= first <= next_seq:
        why = f"{_WITHHELD}, so none is sent" if situation.is_withheld else "older ones are no longer kept"
        raise SettingsInvalid(
            f"Batch {first} cannot be the first that is sent again to {sink.name}",
            f"It is one of {oldest} to {next_seq}: {why}, and the sink never had batch {next_seq}.",
        )
    return _Restart(sink, cause or f"{sink.name} is to get batches again.", first, next_seq)


def _cause(situation: Situation, sink: OpenSink[Any]) -> str | None:
    """Return why the sink's progress keeps it from being published to; None if it does not."""
    try:
        sink.check_progress()
    except LakeDamaged:
        return None  # the batch that it had last cannot be read, so the two cannot be compared
    except (Fenced, LedgerMismatch, TopicRecreated) as error:
        return _sentence(error)
    except ProgressLost as error:
        # `restore-progress` loses and repeats nothing, so it goes first, unless a person names a batch.
        is_for_reconcile = sink.can_lose_progress and situation.options.from_batch is None
        return None if is_for_reconcile else _sentence(error)
    return None


def _sentence(error: TidegateError) -> str:
    return f"{error.what.rstrip('.')}."


def _next_seq(ledger: LedgerReader, stream: Stream, sink: str) -> int:
    """Return the first batch that a sink never had."""
    charge = ledger.charge(stream.pipeline)
    if charge.withholds(stream.generation):
        return charge.released(stream.generation) + 1
    lacking = (
        plan.seq
        for plan in lacking_batches(ledger, ledger.head(stream))
        if sink in unpublished_sinks(ledger, plan)
    )
    return next(lacking, ledger.head(stream).seq + 1)


def _oldest(situation: Situation, next_seq: int) -> int:
    """Return the oldest batch that can be sent again: the ledger has it completely, and all later ones.

    A generation that is not in charge sends nothing, and a promotion only what the sink never had.
    """
    if situation.is_withheld:
        return next_seq
    return max(oldest_readable(situation.ledger.snapshots(situation.stream)), 1)


def _effects(situation: Situation, restart: _Restart) -> list[str]:
    sink, first, stream = restart.sink, restart.first, situation.stream
    again = range(first, situation.head.seq + 1)
    records = sum(published[1].emitted for seq in again if (published := sink.published(seq)) is not None)
    effects = [
        f"{sink.name} counts as having the batches of {stream} before batch {first}, and none after them.",
        f"It gets {batches_named(first, again[-1])}, {counted(records, 'record')}." if again else "",
        sink.restart_effect(first - 1),
    ]
    oldest = _oldest(situation, restart.next_seq)
    if first == restart.next_seq and first > oldest:
        effects.append(
            f"Batches {oldest} to {first - 1}, which were sent before, are not sent again. To send them: "
            f"--from-batch {oldest}, or later."
        )
    return [effect for effect in effects if effect]


def _catch_up(situation: Situation) -> list[str]:
    """Create the tables for other engines again that have batches which the ledger lacks."""
    plan = situation.head_plan
    pipelines = [planned_pipeline(plan)] if plan is not None else []
    removed = remove_tables_ahead(situation.app, situation.stream, pipelines)
    catch_up_tables(situation.app, situation.stream, pipelines)
    return [f"The table {folder} is made anew, without batches that the ledger lacks." for folder in removed]


def _send_again(situation: Situation, restarts: list[_Restart]) -> tuple[str, ...]:
    """Change the sink first, then the ledger: if the process dies in between, the remedy is proposed
    again.
    """
    stream, done = situation.stream, []
    # Before the lease, which refuses a folder with marks of batches that the ledger lacks.
    adopt_folder(situation.app, stream)
    with situation.leased() as lease, situation.app.clusters:
        for restart in restarts:
            name = restart.sink.name
            # Under the lease it is looked at anew: a run may have published since the proposal.
            due = _restart(situation, restart.sink)
            if due is None:
                done.append(f"{name} needs it no longer, and was left as it is.")
                continue
            # The sink first (decision 64): with the ledger first, a run in between would take them for sent.
            identity = due.sink.restart_after(lease, due.first - 1)
            lease.send_again(name, due.first, identity)
            done.append(f"{name} is published to from batch {due.first} on.")
        done += _catch_up(situation)
        done.append(_publish_rest(situation, lease))
    return tuple(done)


def _publish_rest(situation: Situation, lease: LeasedLedger) -> str:
    """Publish what is decided and not published yet: nothing prevents it any more."""
    publish_decided(situation.app, lease)
    if situation.is_withheld:
        return f"{situation.stream} is withheld until it is promoted."
    return f"{situation.stream} is published up to batch {situation.ledger.head(situation.stream).seq}."


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
        effects = [
            effect for sink, progress in lost for effect in _progress_effects(situation, sink, progress)
        ]
        intact = [sink.name for sink in sinks if sink.name not in {lost_sink.name for lost_sink, _ in lost}]
        if intact:
            effects.append(f"The progress of {', '.join(intact)} is intact, and stays as it is.")
            effects += _waiting(situation, intact)
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


def _progress_effects(situation: Situation, sink: OpenSink[Any], progress: Progress) -> Iterator[str]:
    yield f"{sink.name}: it has {progress}, which becomes its progress."
    missing = sink.batches_with_output(_missing(situation, progress))
    batches = f"{'batch' if len(missing) == 1 else 'batches'} {', '.join(map(str, missing))}"
    if not missing:
        yield f"{sink.name}: it lacks no batch, so nothing is sent."
    elif situation.is_withheld:
        yield f"{sink.name}: it lacks {batches}; {_WITHHELD}, so nothing is sent."
    else:
        yield f"{sink.name} gets {batches} again."


def _waiting(situation: Situation, sinks: Collection[str]) -> Iterator[str]:
    ledger = situation.ledger
    for plan in lacking_batches(ledger, ledger.head(situation.stream)):
        for name in unpublished_sinks(ledger, plan):
            if name in sinks:
                yield f"{name} gets batch {plan.seq}, which is not published yet."


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
        yield _publish_rest(situation, lease)


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
