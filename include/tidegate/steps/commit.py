"""Step 4, commit: one compare-and-set in the ledger. Before it nothing happened; after it all is decided."""

from __future__ import annotations

from tidegate.errors import Halted
from tidegate.ledger import Plan
from tidegate.steps.app import App
from tidegate.steps.lease import leased_for, timed


def commit_batch(app: App, plan: Plan, run_id: str) -> str:
    """Move the head to this batch. A batch that is committed already is a verified no-op.

    Raises LeaseHeld, Fenced (a newer try has taken over), Halted (a step before is missing).
    """
    if app.ledger.head(plan.stream).seq >= plan.seq:
        return f"batch {plan.seq} is committed already"
    with leased_for(app.ledger, plan, run_id, "commit") as held, timed(held, plan.seq, "commit"):
        attempt = held.attempt(plan.stream, plan.seq)
        if attempt is None or not attempt.validated:
            missing, step = ("computed", "compute") if attempt is None else ("validated", "validate")
            raise Halted(
                f"Batch {plan.seq} of {plan.stream} is not {missing}",
                f"Clear `{step}`, if that was only marked as a success; or trigger a new run, which goes on "
                "with the batch.",
            )
        held.commit(plan, attempt)
    return f"batch {plan.seq} is committed as {attempt.name}"
