"""Decide a batch that reads and emits nothing, through which a remedy changes the state of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from tidegate import core
from tidegate.app import App
from tidegate.app.damage import needed_by, state_named
from tidegate.app.manifests import state_after
from tidegate.batch.net import running_counts
from tidegate.lake import DataFile, attempt_name
from tidegate.lake.compaction import FoldRule, fold, of_batch
from tidegate.lake.manifest import manifest_of
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipelines
from tidegate.ledger.records import Times
from tidegate.spec.kernel import state_stages

Change = Callable[[str, core.Stage, pa.Table], pa.Table]
"""A function of a stage's name, the stage and its state rows; it returns the rows that change, changed."""


def decide_still_batch(
    app: App, lease: LeasedLedger, plan: Plan, change: Change, times: Times | None = None
) -> None:
    """Decide a batch that reads nothing, with the state rows that `change` returns.

    `times` are the stages' times after it; None: they stay. Raises Fenced, LakeDamaged, LakeUnavailable.
    """
    last = lease.attempt(plan.stream, plan.seq - 1)
    assert last is not None, "the ledger has the head's attempt"
    name = attempt_name(plan.seq, lease.lease.epoch)
    manifest = app.write_manifest(
        plan.stream, manifest_of(name, plan.seq, list(_changed_state(app, plan, change, name)))
    )
    times = last.times if times is None else times
    lease.decide(
        (plan, Attempt(plan.stream, plan.seq, manifest, running_counts(last), validated=True, times=times))
    )


def _changed_state(app: App, plan: Plan, change: Change, name: str) -> Iterator[DataFile]:
    stream, before = plan.stream, plan.seq - 1
    lake, stages = app.lake(stream), state_stages(planned_pipelines(app.ledger, stream))
    with needed_by(state_named(stream, before)):
        state = state_after(app, stream, app.ledger.state_manifests(stream, before))
        for stage, files in state.items():
            changed = partial(_changed, plan.seq, partial(change, stage, stages[stage][-1]))
            folder, rule = lake.files("state", stage, name), FoldRule.for_stages(stages[stage])
            yield from fold(lake.store, folder, files, rule, is_whole=False, change=changed)


def _changed(seq: int, change: Callable[[pa.Table], pa.Table], rows: pa.Table) -> pa.Table:
    return of_batch(change(rows), seq)
