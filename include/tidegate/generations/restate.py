"""Restate a range: compute batches again that a mistake has spoiled, beside the generation in charge.

The generation begins with the state from before the first of these batches. It repeats each batch from there
on, with the records and the clock that the batch had, so that nothing but the correction makes a difference:
the pipeline file as it is now, and, in the restated range, lookups as they are now. What it decides is
withheld. A person looks at the difference, and a promotion by net differences sends nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tidegate.app.root import App, OpenSession, stream_of
from tidegate.batch.run import run_batch
from tidegate.batch.trigger import RepeatedBatch, Trigger
from tidegate.batch.validate import Check
from tidegate.errors import Halted, SettingsInvalid, StateGivenUp
from tidegate.generations.lifecycle import begin_from, require_fitting
from tidegate.generations.net import PROMOTED
from tidegate.ledger import Attempt, LedgerReader, Plan, Stream
from tidegate.model.pipeline import Pipeline

_RUN = "restate"
_INSTEAD = (
    "Restate only batches from which on Kafka has all records. What earlier ones have sent wrongly, later "
    "records of the same keys correct."
)


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


class RepeatedBatches(Protocol):
    """Batches of a generation that another one repeats.

    Args:
        plans: their plans, the oldest first.
        runs: the batches, as the new generation repeats them.
    """

    @property
    def plans(self) -> tuple[Plan, ...]: ...

    @property
    def runs(self) -> Iterator[RepeatedRun]: ...

    def begin(self, app: App, pipeline: Pipeline) -> None:
        """Let the generation of `pipeline` begin in the way that these batches need.

        Raises Halted if it has begun in another way, and the errors of `begin_from`.
        """


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
    """Raise Halted if Kafka no longer has the records of the batches.

    Args:
        plans: the plans of the batches.
        instead: what the error says that helps then.
    """
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
    batches: RepeatedBatches,
    open_session: OpenSession,
    progress: Callable[[str], None] = lambda _: None,
    check: Check | None = None,
) -> None:
    """Repeat batches in the generation of `pipeline`, which exists beside the one in charge.

    A call that was killed is continued by the next one, which also repeats the batches that have come since.

    Args:
        open_session: as for `run_batch`, and so are `progress` and `check`.

    Raises Halted if the generation has a batch of its own in place of one, and the errors of
    `RepeatedBatches.begin` and `run_batch`.
    """
    batches.begin(app, pipeline)
    for run in batches.runs:
        _require_next(app.ledger, stream_of(pipeline), run)
        run_batch(app, pipeline, run.trigger, open_session, progress, check=check)


def _require_next(ledger: LedgerReader, stream: Stream, run: RepeatedRun) -> None:
    """Raise Halted if another run has planned a batch with this number."""
    plan = ledger.plan(stream, run.seq)
    if plan is not None and plan.run_id != run.run_id:
        raise Halted(
            f"Batch {plan.seq} of {stream} is of the run {plan.run_id}, and not of {run.run_id}",
            "Name the same batches as in the call that began. If the generation has read records by itself, "
            "run it until it has caught up: its file has a DAG of its own.",
        )


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

    @property
    def runs(self) -> Iterator[RepeatedRun]:
        """The batches, as the new generation repeats them; its batch 1 has the state."""
        for plan in self.plans:
            is_behind = plan.seq > self.last
            repeats = RepeatedBatch(plan, keeps_lookups=is_behind)
            # A call with another range would have computed it with other lookups.
            name = f"{_RUN}_as_it_was" if is_behind else _RUN
            run_id = f"{name}__{self.origin.generation}.{plan.seq}"
            yield RepeatedRun(run_id, plan.seq - self.first + 2, repeats)

    def begin(self, app: App, pipeline: Pipeline) -> None:
        """Let the generation begin with the state before the first batch. Raises Halted if it has another
        origin, and the errors of `begin_from`.
        """
        stream, before = stream_of(pipeline), self.first - 1
        if app.ledger.head(stream).seq == 0:
            begin_from(app, pipeline, self.origin, before, _RUN)
        if app.ledger.origin(stream) != (self.origin, before):
            raise Halted(
                f"{stream} did not begin with the state before batch {self.first} of {self.origin}",
                "Restate into a generation of its own: name the pipeline, and not another generation's file.",
            )


def plan_restatement(app: App, pipeline: Pipeline, origin: Stream, first: int, last: int) -> Restatement:
    """Return the batches that restating `first` to `last` computes again, up to the head of `origin`.

    Raises SettingsInvalid for a range without such batches; Halted if one of them cannot be repeated, has
    left the ledger, or has records that Kafka no longer has; PipelineChanged if the file does not fit the
    state before them.
    """
    head = app.ledger.head(origin)
    if not 2 <= first <= last <= head.seq:
        raise SettingsInvalid(
            f"Batches {first} to {last} of {origin} are no range that has a batch before it",
            f"Name batches from 2 to {head.seq}: `tidegate history {origin.pipeline}` lists them. To restate "
            "batch 1, too, make a generation that begins empty: `tidegate generation new`.",
        )
    plans = repeatable_plans(app.ledger, origin, first, head.seq)
    require_fitting(app, pipeline, origin, first - 1)
    require_records(app, pipeline, plans, _INSTEAD)
    return Restatement(origin, first, last, plans)
