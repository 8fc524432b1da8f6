"""Restate a range: compute batches again that a mistake has spoiled, beside the generation in charge.

The generation begins with the state from before the first of these batches. It repeats each batch from there
on, with the records and the clock that the batch had, so that nothing but the correction makes a difference:
the pipeline file as it is now, and, in the restated range, lookups as they are now. What it decides is
withheld. A person looks at the difference, and a promotion by net differences sends nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tidegate.app.root import App, OpenSession, stream_of
from tidegate.batch.run import run_batch
from tidegate.batch.trigger import RepeatedBatch, Trigger
from tidegate.batch.validate import Check
from tidegate.errors import Halted, SettingsInvalid, StateGivenUp
from tidegate.generations.lifecycle import begin_from
from tidegate.generations.net import PROMOTED
from tidegate.ledger import Attempt, LedgerReader, Plan, Stream
from tidegate.model.pipeline import Pipeline

_RUN = "restate"


@dataclass(frozen=True)
class Restatement:
    """The batches of a generation that are computed again.

    Args:
        origin: the generation.
        first: the first batch of the restated range.
        last: the last batch of the range, from which on lookups are as they were.
        plans: the plans of all batches from the first one up to the head.
    """

    origin: Stream
    first: int
    last: int
    plans: tuple[Plan, ...]

    def trigger(self, plan: Plan) -> Trigger:
        """Return the trigger of the batch that repeats one: its run id is the same in each call."""
        repeats = RepeatedBatch(plan, keeps_lookups=plan.seq > self.last)
        return Trigger(f"{_RUN}__{self.origin.generation}.{plan.seq}", plan.clock_ms, repeats=repeats)

    def number(self, plan: Plan) -> int:
        """Return the number of the batch that repeats one; batch 1 has the state."""
        return plan.seq - self.first + 2


def plan_restatement(app: App, origin: Stream, first: int, last: int) -> Restatement:
    """Return the batches that restating `first` to `last` computes again, up to the head of `origin`.

    Raises SettingsInvalid for a range without such batches; Halted if one of them cannot be repeated, or has
    left the ledger.
    """
    head = app.ledger.head(origin)
    if not 2 <= first <= last <= head.seq:
        raise SettingsInvalid(
            f"Batches {first} to {last} of {origin} are no range that has a batch before it",
            f"Name batches from 2 to {head.seq}: `tidegate history {origin.pipeline}` lists them. To restate "
            "batch 1, too, make a generation that begins empty: `tidegate generation new`.",
        )
    plans = [_plan(app.ledger, origin, seq) for seq in range(first - 1, head.seq + 1)]
    for before, plan in pairwise(plans):
        _require_repeatable(before, plan, app.ledger.attempt(origin, plan.seq))
    return Restatement(origin, first, last, tuple(plans[1:]))


def _plan(ledger: LedgerReader, stream: Stream, seq: int) -> Plan:
    plan = ledger.plan(stream, seq)
    if plan is None:
        raise StateGivenUp(
            f"Batch {seq} of {stream} is so old that the ledger has no plan of it",
            "Restate a later range; TIDEGATE_TIME_TRAVEL says for how long plans are kept.",
        )
    return plan


def _require_repeatable(before: Plan, plan: Plan, attempt: Attempt | None) -> None:
    """Raise Halted for a batch whose input was not Kafka, or that a person decided: nothing repeats these."""
    moved = any(before.topic_ids.get(topic, id_) != id_ for topic, id_ in plan.topic_ids.items())
    clocks = before.clocks_after
    reasons = {
        "replays records of quarantine": plan.replay is not None,
        "sent net differences": attempt is not None
        and any(f"emitted.{PROMOTED}" in counts for counts in attempt.counts.values()),
        "moved the source to another cluster": moved,
        "set the clock back": any(clock < clocks.get(at, clock) for at, clock in plan.clocks.items()),
    }
    for reason, applies in reasons.items():
        if applies:
            raise Halted(
                f"Batch {plan.seq} of {plan.stream} {reason}, which cannot be repeated in another generation",
                "Restate batches after it; or make a generation that reads everything again: `tidegate "
                "generation new`, and promote it with `--net`.",
            )


def restate(
    app: App,
    pipeline: Pipeline,
    restatement: Restatement,
    open_session: OpenSession,
    progress: Callable[[str], None] = lambda _: None,
    check: Check | None = None,
) -> Stream:
    """Compute the batches again in the generation of `pipeline`, which exists beside the one in charge.

    A call that was killed is continued by the next one, which also repeats the batches that have come since.
    Raises Halted if the generation has batches of its own, or another origin; and the errors of `begin_from`
    and `run_batch`.
    """
    stream = stream_of(pipeline)
    if app.ledger.head(stream).seq == 0:
        begin_from(app, pipeline, restatement.origin, restatement.first - 1, _RUN)
    if app.ledger.origin(stream) != (restatement.origin, restatement.first - 1):
        raise Halted(
            f"{stream} did not begin with the state before batch {restatement.first} of {restatement.origin}",
            "Restate into a generation of its own: name the pipeline, and not another generation's file.",
        )
    for plan in restatement.plans:
        trigger = restatement.trigger(plan)
        _require_next(app.ledger, stream, restatement.number(plan), trigger.run_id)
        run_batch(app, pipeline, trigger, open_session, progress, check=check)
    return stream


def _require_next(ledger: LedgerReader, stream: Stream, number: int, run_id: str) -> None:
    """Raise Halted if another run has planned a batch with this number."""
    plan = ledger.plan(stream, number)
    if plan is not None and plan.run_id != run_id:
        raise Halted(
            f"Batch {number} of {stream} is of the run {plan.run_id}, and repeats no other batch",
            "From there on, run the generation until it has caught up: its file has a DAG of its own.",
        )
