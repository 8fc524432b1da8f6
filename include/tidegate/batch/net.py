"""A promotion by net differences: the emissions after which consumers have what the new generation has.

They are a batch of their own, the next one of the generation that takes charge. It reads nothing and changes
no state; its outbox is computed here, written as any attempt's is, and decided in the transaction of the
promotion. From there on it is published as every batch is: exactly once.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.app.root import App
from tidegate.batch.edits import head_plan
from tidegate.batch.net_outbox import PROMOTED, net_outbox
from tidegate.batch.ranges import standing_still
from tidegate.errors import Halted
from tidegate.failpoints import failpoint
from tidegate.lake import DataFile, Lake, attempt_name
from tidegate.lake.manifest import manifest_of
from tidegate.lake.outbox import VALUE
from tidegate.lake.writer import RowWriter
from tidegate.ledger import Attempt, Charge, Head, LeasedLedger, OffsetRange, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.spec import Pipeline

_RUNNING = ("state-rows", "held", "suppression-buffer-records", "suppression-buffer-bytes")
"""Counts that say what there is, which a batch that changes nothing passes on."""


def net_batch(app: App, lease: LeasedLedger, charge: Charge, run_id: str) -> tuple[Plan, Attempt]:
    """The batch, whose files are written and which is not in the ledger yet.

    `lease`: of the generation that takes charge; `charge`: without its promotion. Raises what `net_outbox`
    does; Halted where a batch is planned; SinkRefused, TimestampRefused where a sink would not take one.
    """
    head = lease.head(lease.stream)
    before, last = head_plan(app, head), lease.attempt(lease.stream, head.seq)
    if before is None or last is None:
        raise Halted(f"{lease.stream} has no batch yet", "Run it first.")
    if lease.open_plan(lease.stream) is not None:
        raise Halted(
            f"Batch {head.seq + 1} of {lease.stream} is planned and not decided",
            f"Let it go through, or forget it: {lease.stream.recover_command('drop-plan')}",
        )
    pipeline, plan = planned_pipeline(before), still_plan(head, before, run_id)
    name = attempt_name(plan.seq, lease.lease.epoch)
    outboxes = {
        stage.name: rows
        for stage in pipeline.stages
        if pipeline.sinks_of(stage) and (rows := net_outbox(app, charge, pipeline, stage, plan)).num_rows
    }
    files = [_written(app.lake(lease.stream), stage, name, rows) for stage, rows in outboxes.items()]
    manifest = app.write_manifest(lease.stream, manifest_of(name, plan.seq, files))
    attempt = Attempt(
        lease.stream, plan.seq, manifest, _counts(last, outboxes), validated=True, times=last.times
    )
    _check_sinks(app, plan, pipeline, attempt)
    return plan, attempt


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


def _written(lake: Lake, stage: str, name: str, rows: pa.Table) -> DataFile:
    path = f"{lake.files('outbox', stage, name)}/{PROMOTED}.parquet"
    with failpoint("promote.write"), RowWriter(lake.store, path, "outbox", stage) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write(batch)
    assert writer.file is not None, "it has rows"
    return writer.file


def _counts(last: Attempt, outboxes: dict[str, pa.Table]) -> dict[str, dict[str, float]]:
    """Return the previous batch's running counts, and the counts of what this batch emits."""
    counts = running_counts(last)
    for stage, rows in outboxes.items():
        deleted = rows[VALUE].null_count
        emitted: dict[str, float] = {
            "emitted": rows.num_rows,
            f"emitted.{PROMOTED}": rows.num_rows,
            "emitted-tombstones": deleted,
        }
        counts[stage] = counts.get(stage, {}) | emitted
    return counts


def running_counts(last: Attempt) -> dict[str, dict[str, float]]:
    """Return the counts that a batch that reads and changes nothing takes over from the previous one."""
    counts: dict[str, dict[str, float]] = {"": {"read": 0}}
    for stage, stage_counts in last.counts.items():
        if stage:
            counts[stage] = {name: stage_counts[name] for name in _RUNNING if name in stage_counts}
    return counts


def _check_sinks(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> None:
    for sink in app.sinks(plan.stream, pipeline):
        outbox = sink.outbox(plan, attempt)
        if outbox.emitted:
            sink.check_outbox(outbox)
