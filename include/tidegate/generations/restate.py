"""Restate a range: compute batches again that a mistake has spoiled, beside the generation in charge.

The generation begins with the state from before the first of these batches. It repeats each batch from there
on, with the records and the clock that the batch had, so that nothing but the correction makes a difference:
the pipeline file as it is now, and, in the restated range, lookups as they are now. What it decides is
withheld. A person looks at the difference, and a promotion by net differences sends nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidegate.app.root import App, OpenSession, stream_of
from tidegate.batch.trigger import RepeatedBatch
from tidegate.batch.validate import Check
from tidegate.errors import Halted, SettingsInvalid
from tidegate.generations.lifecycle import begin_from, require_fitting
from tidegate.generations.repeat import RepeatedRun, repeat, repeatable_plans, require_records
from tidegate.ledger import Plan, Stream
from tidegate.model.pipeline import Pipeline

_RUN = "restate"
_INSTEAD = (
    "Restate only batches from which on Kafka has all records. What earlier ones have sent wrongly, later "
    "records of the same keys correct."
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
            repeats = RepeatedBatch(plan, keeps_lookups=plan.seq > self.last)
            run_id = f"{_RUN}__{self.origin.generation}.{plan.seq}"
            yield RepeatedRun(run_id, plan.seq - self.first + 2, repeats)


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
    repeat(app, pipeline, restatement.runs, open_session, progress, check)
    return stream
