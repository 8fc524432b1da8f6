"""Step 2, compute: Spark turns the planned records into state changes, emissions and quarantined input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidegate.failpoints import failpoint
from tidegate.lake import attempt_name
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.lease import leased, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compute_batch(app: App, plan: Plan, run_id: str, open_session: Callable[[], SparkSession]) -> Attempt:
    """Compute the batch under a name of its own. A batch that is computed already is a no-op.

    Raises LeaseHeld, Fenced, and what `engine.batch` raises; then nothing is visible and no offset moved.
    """
    done = app.ledger.attempt(plan.stream, plan.seq)
    if done is not None:
        return done
    from tidegate import engine  # late: only this step needs Spark

    with leased(app.ledger, plan.stream, run_id) as held, timed(held, plan.seq, "compute"):
        failpoint("compute.leased")
        name = attempt_name(plan.seq, held.lease.epoch)
        counts = engine.compute_batch(
            open_session(),
            plan,
            planned_pipeline(plan),
            app.settings.require_kafka(),
            app.lake(plan.stream),
            [attempt for _, attempt in held.committed(plan.stream)],
            name,
        )
        attempt = Attempt(plan.stream, plan.seq, name, counts)
        failpoint("compute.before_record")
        held.add_attempt(attempt)
        _note_metrics(held, plan, counts)
        failpoint("compute.after_record")
    return attempt


def _note_metrics(held: LeasedLedger, plan: Plan, counts: Mapping[str, int]) -> None:
    stage = planned_pipeline(plan).stages[0].name
    held.set_metrics(plan.seq, stage, {name: float(value) for name, value in counts.items()})
