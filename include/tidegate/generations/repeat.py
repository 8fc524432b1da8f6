"""Repeat batches of a generation in another one, each with the records and the clock that it had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.app.root import App, OpenSession, stream_of
from tidegate.batch.run import run_batch
from tidegate.batch.trigger import RepeatedBatch, Trigger
from tidegate.batch.validate import Check
from tidegate.errors import Halted, StateGivenUp
from tidegate.generations.net import PROMOTED
from tidegate.ledger import Attempt, LedgerReader, Plan, Stream
from tidegate.model.pipeline import Pipeline


@dataclass(frozen=True)
class RepeatedRun:
    """A run that repeats a batch.

    Args:
        run_id: its id, the same in each call.
        seq: the number of the batch in the new generation.
        batch: the repeated batch, and what is taken from it.
    """

    run_id: str
    seq: int
    batch: RepeatedBatch

    @property
    def trigger(self) -> Trigger:
        """The trigger of the run."""
        return Trigger(self.run_id, self.batch.plan.clock_ms, repeats=self.batch)


def repeatable_plans(ledger: LedgerReader, origin: Stream, first: int, last: int) -> tuple[Plan, ...]:
    """Return the plans of the batches `first` to `last`.

    Raises StateGivenUp if one has left the ledger, Halted if one of them cannot be repeated.
    """
    before = _plan(ledger, origin, first - 1) if first > 1 else None
    plans = []
    for seq in range(first, last + 1):
        plan = _plan(ledger, origin, seq)
        _require_repeatable(before, plan, ledger.attempt(origin, seq))
        plans.append(plan)
        before = plan
    return tuple(plans)


def _plan(ledger: LedgerReader, stream: Stream, seq: int) -> Plan:
    plan = ledger.plan(stream, seq)
    if plan is None:
        raise StateGivenUp(
            f"Batch {seq} of {stream} is so old that the ledger has no plan of it",
            "Repeat later batches only; TIDEGATE_TIME_TRAVEL says for how long plans are kept. Or make a "
            "generation that reads everything again: `tidegate generation new`.",
        )
    return plan


def _require_repeatable(before: Plan | None, plan: Plan, attempt: Attempt | None) -> None:
    """Raise Halted for a batch whose input was not Kafka, or that a person decided: nothing repeats these."""
    ids, clocks = (before.topic_ids, before.clocks_after) if before is not None else ({}, {})
    reasons = {
        "replays records of quarantine": plan.replay is not None,
        "erased keys": plan.erasure is not None,
        "sent net differences": attempt is not None
        and any(f"emitted.{PROMOTED}" in counts for counts in attempt.counts.values()),
        "moved the source to another cluster": any(
            ids.get(topic, id_) != id_ for topic, id_ in plan.topic_ids.items()
        ),
        "set the clock back": any(clock < clocks.get(at, clock) for at, clock in plan.clocks.items()),
    }
    for reason, applies in reasons.items():
        if applies:
            raise Halted(
                f"Batch {plan.seq} of {plan.stream} {reason}, which cannot be repeated in another generation",
                "Restate batches after it; or make a generation that reads everything again: `tidegate "
                "generation new`, and promote it with `--net`.",
            )


def require_records(app: App, pipeline: Pipeline, plans: Iterable[Plan], instead: str) -> None:
    """Raise Halted if Kafka no longer has the records of the batches; `instead` says what helps then."""
    ranges = [(plan, range_) for plan in plans for range_ in plan.ranges if range_.span]
    if not ranges:
        return
    with app.log(pipeline.sources.connection) as log:
        views = {topic: log.view(topic) for topic in sorted({range_.topic for _, range_ in ranges})}
    for plan, range_ in ranges:
        first = views[range_.topic].starts.get(range_.partition, range_.end)
        if range_.start < first:
            raise Halted(
                f"The source has to be read again, and retention has deleted records of batch {plan.seq}: "
                f"{range_.topic}[{range_.partition}] offsets {range_.start} to {min(first, range_.end) - 1}",
                instead,
            )


def repeat(
    app: App,
    pipeline: Pipeline,
    runs: Iterable[RepeatedRun],
    open_session: OpenSession,
    progress: Callable[[str], None],
    check: Check | None,
) -> None:
    """Repeat batches in the generation of `pipeline`. Those that are done stay as they are.

    Raises Halted if the generation has a batch of its own in place of one, and the errors of `run_batch`.
    """
    for run in runs:
        _require_next(app.ledger, stream_of(pipeline), run)
        run_batch(app, pipeline, run.trigger, open_session, progress, check=check)


def _require_next(ledger: LedgerReader, stream: Stream, run: RepeatedRun) -> None:
    """Raise Halted if another run has planned a batch with this number."""
    plan = ledger.plan(stream, run.seq)
    if plan is not None and plan.run_id != run.run_id:
        raise Halted(
            f"Batch {plan.seq} of {stream} is of the run {plan.run_id}, and repeats no other batch",
            "From there on, run the generation until it has caught up: its file has a DAG of its own.",
        )
