"""Decide a batch that reads and emits nothing: a recovery changes state by it.

Net differences, and the first batch of a generation that begins with a state, are planned and counted in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from tidegate import kernel
from tidegate.app.root import App, needed_by, state_after, state_named
from tidegate.batch.offsets import standing_still
from tidegate.ledger import Attempt, Head, LeasedLedger, OffsetRange, Plan
from tidegate.ledger.planned import planned_pipelines
from tidegate.ledger.records import Times
from tidegate.model.kernel_stages import state_stages
from tidegate.storage import DataFile, attempt_name
from tidegate.storage.compaction import FoldRule, fold, of_batch
from tidegate.storage.manifest import manifest_of

_RUNNING = ("state-rows", "held", "suppression-buffer-records", "suppression-buffer-bytes")
"""Counts that say what there is, which a batch that changes nothing passes on."""
Change = Callable[[str, kernel.Stage, pa.Table], pa.Table]
"""A function of a stage's name, the stage and its state rows; it returns the rows that change, changed."""


def still_plan(head: Head, before: Plan, run_id: str) -> Plan:
    """Return a plan that reads nothing, with all that the batch before it was planned with."""
    ranges: tuple[OffsetRange, ...] = standing_still(head, before.cut_partitions)
    return Plan(
        stream=head.stream,
        seq=head.seq + 1,
        run_id=run_id,
        clock_ms=before.clock_ms,
        believed_until_ms=before.believed_until_ms,
        ranges=ranges,
        topic_ids=head.topic_ids,
        spec_text=before.spec_text,
        spec_compiled=before.spec_compiled,
        lookups=before.lookups,
        clocks=head.clocks_of((planned.topic, planned.partition) for planned in ranges),
        timestamps=before.timestamps,
    )


def running_counts(last: Attempt) -> dict[str, dict[str, float]]:
    """Return the counts that a batch that reads and changes nothing takes over from the previous one."""
    counts: dict[str, dict[str, float]] = {"": {"read": 0}}
    for stage, stage_counts in last.counts.items():
        if stage:
            counts[stage] = {name: stage_counts[name] for name in _RUNNING if name in stage_counts}
    return counts


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
    # `validated`: it emits nothing, so no expectation and no sink has to see it.
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
            # Not whole: only changed rows are written, a changelog beside the state of the batches before.
            yield from fold(lake.store, folder, files, rule, is_whole=False, change=changed)


def _changed(seq: int, change: Callable[[pa.Table], pa.Table], rows: pa.Table) -> pa.Table:
    return of_batch(change(rows), seq)
