"""Collect the facts of a batch that built-in expectations need, from the ledger and from manifests."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.app.damage import batch_named, needed_by, state_named
from tidegate.app.manifests import state_after
from tidegate.app.root import App
from tidegate.errors import StateGivenUp
from tidegate.lake import DataFile
from tidegate.ledger import Attempt, Plan
from tidegate.quality.builtin.facts import BatchCounts, StageFacts, batch_counts
from tidegate.quality.builtin.types import Needs
from tidegate.spec import Pipeline, Stage
from tidegate.spec.kernel import kernel_stage


def stage_facts(
    app: App, plan: Plan, attempt: Attempt, pipeline: Pipeline, stage: Stage, needs: Needs
) -> StageFacts | None:
    """Return the facts of one stage in a batch, committed or only computed; None if `needs` is empty.

    `needs` are those of the suite's built-in expectations: nothing else is read. `state_before` is None if
    that state is no longer kept; batches whose counts have left the ledger are not in the history. Raises
    LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    if not needs.is_any:
        return None
    with needed_by(batch_named(plan.stream, plan.seq)):
        outbox = app.manifest(plan.stream, attempt.manifest).files_of("outbox", stage.name)
    return StageFacts(
        logic=kernel_stage(pipeline, stage),
        counts=_counts(attempt, pipeline, stage),
        store=app.lake(plan.stream).store,
        outbox=outbox,
        history=tuple(_history(app, plan, pipeline, stage, needs.history)),
        outboxes_before=tuple(_outboxes_before(app, plan, stage, needs.outboxes)),
        state_before=_state_before(app, plan, stage) if needs.has_state else None,
    )


def _counts(attempt: Attempt, pipeline: Pipeline, stage: Stage) -> BatchCounts:
    explodes = pipeline.source.explode is not None
    return batch_counts(attempt.counts, pipeline.stages[0].name, stage.name, explodes)


def _history(app: App, plan: Plan, pipeline: Pipeline, stage: Stage, batches: int) -> Iterator[BatchCounts]:
    """Yield the counts of the committed batches before this one, newest first.

    A batch from before the stage existed is skipped.
    """
    if not batches:
        return
    for past in app.ledger.batches(plan.stream, plan.seq, batches):
        if past.attempt is not None and past.committed_at is not None and stage.name in past.attempt.counts:
            yield _counts(past.attempt, pipeline, stage)


def _outboxes_before(app: App, plan: Plan, stage: Stage, batches: int) -> Iterator[tuple[DataFile, ...]]:
    """Yield the outbox files of the batches before this one, newest first."""
    if not batches:
        return
    committed = app.ledger.committed(plan.stream, max(0, plan.seq - 1 - batches))
    for seq, manifest in reversed(committed):
        if seq < plan.seq:
            with needed_by(batch_named(plan.stream, seq)):
                yield app.manifest(plan.stream, manifest).files_of("outbox", stage.name)


def _state_before(app: App, plan: Plan, stage: Stage) -> tuple[DataFile, ...] | None:
    before = plan.seq - 1
    try:
        manifests = app.ledger.state_manifests(plan.stream, before)
    except StateGivenUp:
        return None
    with needed_by(state_named(plan.stream, before)):
        return state_after(app, plan.stream, manifests).get(stage.name, ())
