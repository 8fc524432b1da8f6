"""Step 2, compute: Spark turns the planned records into state changes, emissions and quarantined input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate import core
from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App, OpenSession
from tidegate.app.tables import check_tables
from tidegate.lake import attempt_name
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import SOURCE_COLUMNS, SOURCE_FIELDS
from tidegate.maintenance.compaction import compact_overdue
from tidegate.protocol.before import left_before
from tidegate.protocol.identity import check_ends_are_there, planned_epochs
from tidegate.protocol.lookups import check_lookup_tables
from tidegate.protocol.ranges import check_planned

if TYPE_CHECKING:
    from tidegate.engine.batch import Before, Computed


def compute_batch(app: App, plan: Plan, run_id: str, open_session: OpenSession) -> Attempt:
    """Compute the batch under a name of its own. A batch that is computed already is a no-op.

    A state that is in far too many files is compacted first. Raises LeaseHeld, Fenced, and what
    `plan_ranges`, `compact_state` and `engine.batch` raise; then nothing is visible and no offset moved. Of
    the first batch also LakeDamaged, where other tables lie in the place of the stream's own.
    """
    done = app.ledger.attempt(plan.stream, plan.seq)
    if done is not None:
        return done
    with leased_for(app, plan, run_id, "compute") as held, timed(held, plan.seq, "compute"):
        done = held.attempt(plan.stream, plan.seq)  # another may have been at it before the lease was ours
        if done is not None:
            return done
        check_still_there(app, plan)
        check_lookup_tables(plan)
        if plan.seq == 1:
            check_tables(app, plan.stream, planned_pipeline(plan))
        compact_overdue(app, plan.stream)
        name = attempt_name(plan.seq, held.lease.epoch)
        before = left_before(app, held, plan)
        computed = app.compute(plan, before, name, open_session)
        check_lookup_tables(plan)  # Spark has opened them by their names
        manifest = app.write_manifest(plan.stream, computed.manifest)
        attempt = Attempt(plan.stream, plan.seq, manifest, computed.counts, times=computed.times)
        held.add_attempt(attempt)
        _note_metrics(held, plan, computed, before)
    return attempt


def check_still_there(app: App, plan: Plan) -> None:
    """Find out whether Kafka has all that is planned. Raises what `plan_ranges` does, BrokerUnavailable.

    Spark would find out, too, but minutes later, and could not tell what is lost.
    """
    topics = sorted({each.topic for each in plan.ranges if each.span})
    if topics:
        with app.log(planned_pipeline(plan).source.connection) as log:
            check_planned(plan, [log.view(topic) for topic in topics])
            check_ends_are_there(plan, log.epoch_ends(planned_epochs(plan)))


def _note_metrics(held: LeasedLedger, plan: Plan, computed: Computed, before: Before) -> None:
    """What each stage did, and how large its state is on disk with this attempt."""
    for stage, counts in computed.counts.items():
        if stage in (SOURCE_COLUMNS, SOURCE_FIELDS):
            continue  # names of columns and fields are no names of metrics
        found = core.metrics(counts, before.counts.get(stage, {}))
        if stage:
            files = [*before.state.get(stage, ()), *computed.manifest.files_of("state", stage)]
            found["state-bytes"] = sum(file.bytes for file in files)
        held.set_metrics(plan.seq, stage, found)
