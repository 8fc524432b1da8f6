"""Step 2, compute: Spark turns the planned records into state changes, emissions and quarantined input.

The result is invisible until step 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate import kernel
from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App, OpenSession, state_after
from tidegate.batch.lookups import changed_tables, check_lookup_tables, pinned_tables
from tidegate.batch.offsets import check_ends_are_there, check_planned, planned_epochs
from tidegate.batch_counts import is_of_source
from tidegate.ledger import Attempt, LeasedLedger, LedgerReader, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.maintenance.compaction import compact_overdue
from tidegate.storage import attempt_name

if TYPE_CHECKING:
    from tidegate.spark.computation import Before, Computed


def compute_batch(app: App, plan: Plan, run_id: str, open_session: OpenSession) -> Attempt:
    """Compute the batch under a new attempt name, and return the attempt; if the batch is computed already,
    return that attempt.

    `open_session` gets about how many rows Spark gets in the batch, and returns a Spark session. Raises
    LeaseHeld, Fenced, and what `check_still_there`, `compact_overdue` and `spark.batch` raise; then nothing
    is visible and no offset has moved.
    """
    done = app.ledger.attempt(plan.stream, plan.seq)
    if done is not None:
        return done
    with leased_for(app, plan, run_id, "compute") as lease, timed(lease, plan.seq, "compute"):
        done = lease.attempt(plan.stream, plan.seq)  # another try may have computed it before this lease
        if done is not None:
            return done
        # 1. The input is what was planned: in Kafka, and in the lookups' tables.
        check_still_there(app, plan)
        check_lookup_tables(plan)
        # 2. One Spark job: it reads, decodes, decides, and writes files under the attempt's own name, so that
        #    a try that was overtaken overwrites nothing.
        #    Compaction comes first, so that `left_before` lists few files of state.
        compact_overdue(app, plan.stream)
        name = attempt_name(plan.seq, lease.lease.epoch)
        before = left_before(app, lease, plan)
        computed = app.compute(plan, before, name, open_session)
        check_lookup_tables(plan)  # again: Spark opened the tables by name, and one may have been replaced
        # 3. The manifest names the files, and the ledger the manifest. Before that they do not exist.
        manifest = app.write_manifest(plan.stream, computed.manifest)
        attempt = Attempt(plan.stream, plan.seq, manifest, computed.counts, times=computed.times)
        lease.add_attempt(attempt)
        _note_metrics(lease, plan, computed, before)
    return attempt


def check_still_there(app: App, plan: Plan) -> None:
    """Check that Kafka has all records of the plan.

    Spark would notice, too, but minutes later, and without naming the lost offsets. Raises TopicRecreated,
    TopicMissing, OffsetsLost, LogTruncated, BrokerUnavailable.
    """
    topics = sorted({range_.topic for range_ in plan.needed_ranges})
    if topics:
        with app.log(planned_pipeline(plan).sources.connection) as log:
            check_planned(plan, [log.view(topic) for topic in topics])
            check_ends_are_there(plan, log.epoch_ends(planned_epochs(plan)))


def left_before(app: App, ledger: LedgerReader, plan: Plan) -> Before:
    """Return what the batch starts from: state, times and counts after the batch before it, and the lookups'
    tables.

    Raises StateGivenUp if that state is no longer kept, LakeDamaged, LakeUnavailable.
    """
    from tidegate.spark.computation import Before  # late: only this needs Spark

    stream = plan.stream
    last = ledger.attempt(stream, plan.seq - 1) if plan.seq > 1 else None
    return Before(
        state=state_after(app, stream, ledger.state_manifests(stream, plan.seq - 1)),
        times=last.times if last is not None else {},
        counts=last.counts if last is not None else {},
        lookups=pinned_tables(app, ledger, plan),
        changed_tables=changed_tables(
            planned_pipeline(plan), plan, lambda: ledger.plan(stream, plan.seq - 1)
        ),
    )


def _note_metrics(lease: LeasedLedger, plan: Plan, computed: Computed, before: Before) -> None:
    """Store the counts of each stage, and the size of its state on disk with this attempt."""
    for stage, counts in computed.counts.items():
        if is_of_source(stage):
            continue  # names of columns and fields are no names of metrics
        metrics = kernel.metrics(counts, before.counts.get(stage, {}))
        if stage:
            files = [*before.state.get(stage, ()), *computed.manifest.files_of("state", stage)]
            # Changelogs add up until a compaction folds them, so this can exceed the size of the live rows.
            metrics["state-bytes"] = sum(file.bytes for file in files)
        lease.set_metrics(plan.seq, stage, metrics)
