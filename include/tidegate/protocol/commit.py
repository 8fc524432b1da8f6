"""Step 4, commit: one compare-and-set in the ledger. Before it nothing happened; after it all is decided."""

from __future__ import annotations

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.errors import Halted
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.protocol.identity import check_still_the_same


def commit_batch(app: App, plan: Plan, run_id: str) -> str:
    """Move the head to this batch. A batch that is committed already is a verified no-op.

    Raises LeaseHeld, Fenced (a newer try has taken over), Halted (a step before is missing), and what
    `check_source` raises.
    """
    if app.ledger.head(plan.stream).seq >= plan.seq:
        return f"batch {plan.seq} is committed already"
    with leased_for(app, plan, run_id, "commit") as held, timed(held, plan.seq, "commit"):
        attempt = held.attempt(plan.stream, plan.seq)
        if attempt is None or not attempt.validated:
            missing, step = ("computed", "compute") if attempt is None else ("validated", "validate")
            raise Halted(
                f"Batch {plan.seq} of {plan.stream} is not {missing}",
                f"Clear `{step}`, if that was only marked as a success; or trigger a new run, which goes on "
                "with the batch.",
            )
        check_source(app, plan)
        held.commit(plan, attempt)
    return f"batch {plan.seq} is committed as {attempt.name}"


def check_source(app: App, plan: Plan) -> None:
    """Find out whether what was read is what was planned. Spark reads topics by their names: one that was
    created anew since the plan, or truncated, would be taken for the one before.

    A batch that reads nothing needs no Kafka. Raises TopicRecreated, TopicMissing, LogTruncated,
    BrokerUnavailable.
    """
    if plan.span:
        with app.log(planned_pipeline(plan).source.connection) as log:
            check_still_the_same(log, plan)
