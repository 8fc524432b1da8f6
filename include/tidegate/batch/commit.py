"""Step 4, commit: one compare-and-set in the ledger. Before it nothing happened; after it all is decided."""

from __future__ import annotations

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.batch.offsets import check_still_the_same
from tidegate.errors import Halted
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline


def commit_batch(app: App, plan: Plan, run_id: str) -> str:
    """Move the head to this batch. If the batch is committed already, it changes nothing.

    Raises LeaseHeld if another run is at work, Fenced if a newer try has taken over, Halted if an earlier
    step is missing, and what `check_source` raises.
    """
    if app.ledger.head(plan.stream).seq >= plan.seq:
        return f"batch {plan.seq} is committed already"
    with leased_for(app, plan, run_id, "commit") as lease, timed(lease, plan.seq, "commit"):
        attempt = lease.attempt(plan.stream, plan.seq)
        if attempt is None or not attempt.validated:
            missing, step = ("computed", "compute") if attempt is None else ("validated", "validate")
            raise Halted(
                f"Batch {plan.seq} of {plan.stream} is not {missing}",
                f"Clear `{step}`, if that was only marked as a success; or trigger a new run, which goes on "
                "with the batch.",
            )
        # Right before the commit: no transaction spans Kafka and the ledger. The next plan checks again.
        check_source(app, plan)
        lease.commit(plan, attempt)
    return f"batch {plan.seq} is committed as {attempt.name}"


def check_source(app: App, plan: Plan) -> None:
    """Raise an error unless the topics still have what the batch read.

    Spark reads topics by name, so a topic that was created again since the plan, or truncated, would be taken
    for the planned one. A batch that reads nothing needs no Kafka. Raises TopicRecreated, TopicMissing,
    LogTruncated, BrokerUnavailable.
    """
    if plan.needed_ranges:
        with app.log(planned_pipeline(plan).sources.connection) as log:
            check_still_the_same(log, plan)
