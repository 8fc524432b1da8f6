"""Decide a batch that reads and emits nothing: a recovery changes state by it.

Net differences, the deletions of an erasure, and the first batch of a generation that begins with a state,
are planned and counted in the same way. The first two also write what they emit here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from tidegate import kernel
from tidegate.app.root import App, needed_by, state_after, state_named
from tidegate.batch.offsets import standing_still
from tidegate.batch.outboxes import check_outboxes, without_refused
from tidegate.errors import Halted
from tidegate.ledger import Attempt, Head, LeasedLedger, LedgerReader, OffsetRange, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.ledger.records import Times
from tidegate.model.kernel_stages import state_stages
from tidegate.storage import DataFile, Lake, attempt_name
from tidegate.storage.compaction import FoldRule, fold, of_batch
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import manifest_of

_RUNNING = ("state-rows", "suppression-buffer-records", "suppression-buffer-bytes")
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
        clocks=head.clocks_of(planned.place for planned in ranges),
        timestamps=before.timestamps,
    )


def running_counts(last: Attempt) -> dict[str, dict[str, float]]:
    """Return the counts that a batch that reads and changes nothing takes over from the previous one."""
    counts: dict[str, dict[str, float]] = {"": {"read": 0}}
    for stage, stage_counts in last.counts.items():
        if stage:
            counts[stage] = {name: stage_counts[name] for name in _RUNNING if name in stage_counts}
    return counts


def require_no_plan(ledger: LedgerReader, stream: Stream) -> None:
    """Raise Halted if a batch is planned and not decided: no other one can be decided before it."""
    if (plan := ledger.open_plan(stream)) is not None:
        raise Halted(
            f"Batch {plan.seq} of {stream} is planned and not decided",
            f"Let it go through, or forget it: {stream.recover_command('drop-plan')}",
        )


def write_emissions(lake: Lake, stage: str, name: str, reason: str, rows: pa.Table) -> DataFile:
    """Write a stage's emissions as the outbox of attempt `name`, in a file that is named after their reason.

    Raises LakeUnavailable.
    """
    path = f"{lake.files('outbox', stage, name)}/{reason}.parquet"
    with RowWriter(lake.store, path, "outbox", stage) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write(batch)
    assert writer.file is not None, "it has rows"
    return writer.file


def emitting_attempt(
    app: App,
    plan: Plan,
    last: Attempt,
    name: str,
    files: Iterable[DataFile],
    counts: Mapping[str, Mapping[str, float]],
) -> Attempt:
    """Return the attempt of a batch that reads nothing and emits what is in `files`.

    Args:
        last: the attempt of the batch before it, whose times stay.
        name: the attempt's name.
        counts: stage -> counts.

    Raises SinkRefused, TimestampRefused or …Unavailable if a sink would not take an emission; LakeDamaged,
    LakeUnavailable.
    """
    manifest = app.write_manifest(plan.stream, manifest_of(name, plan.seq, files))
    attempt = Attempt(plan.stream, plan.seq, manifest, counts, validated=True, times=last.times)
    # This batch skips the validate step, and once it is decided a sink could only halt.
    pipeline = planned_pipeline(plan)
    attempt = without_refused(app, plan, pipeline, attempt)
    check_outboxes(app, plan, pipeline, attempt)
    return attempt


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
