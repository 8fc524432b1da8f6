"""Step 5, publish: the outbox of a decided batch goes to the sinks, each exactly once."""

from __future__ import annotations

from typing import Any

from tidegate.app.lease import failures_noted, leased, timed
from tidegate.app.root import App, missing_of_head
from tidegate.app.tables import catch_up_tables
from tidegate.errors import Halted
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks import OpenSink


def publish_batch(app: App, plan: Plan, run_id: str) -> dict[str, int]:
    """Publish a committed batch to the sinks that do not have it yet; then bring the tables for others up to
    the head. Returns sink -> records.

    What every sink and table has is a verified no-op. Raises Halted when the batch is not committed (a head
    never goes back, so nobody has to look again), ProgressLost, Fenced, OutcomeUnknown, LakeUnavailable, …
    """
    if app.ledger.head(plan.stream).seq < plan.seq:
        raise Halted(
            f"Batch {plan.seq} of {plan.stream} is not committed, so nothing of it is published",
            "Clear `commit`, if that was only marked as a success; or trigger a new run, which goes on with "
            "the batch.",
        )
    if lacking_sinks(app, plan):
        with leased(app.ledger, plan.stream, run_id) as held, app.one_connection():
            with timed(held, plan.seq, "publish"):
                publish_decided(app, held)
            held.release()
    catch_up_tables(app, plan.stream, [planned_pipeline(plan)])
    return app.ledger.publications(plan.stream, plan.seq)


def publish_decided(app: App, held: LeasedLedger) -> None:
    """Finish the head's batch. Earlier ones are out: no batch is planned before its predecessor is.

    What that fails of is noted.
    """
    head = held.head(held.stream)
    plan = held.plan(held.stream, head.seq) if head.seq else None
    if plan is None or not lacking_sinks(app, plan):
        return
    with failures_noted(held, plan.seq, "publish"):
        _publish(app, held, plan)


def _publish(app: App, held: LeasedLedger, plan: Plan) -> None:
    attempt = held.attempt(plan.stream, plan.seq)
    if attempt is None:
        raise missing_of_head(held, plan.stream, plan.seq, "attempt")
    done = held.publications(plan.stream, plan.seq)
    for sink in app.sinks(plan.stream, planned_pipeline(plan)):
        if sink.name not in done:
            records = _publish_to(app, held, sink, plan, attempt)
            held.add_publication(plan.seq, sink.name, records)


def lacking_sinks(app: App, plan: Plan) -> list[str]:
    """The sinks of which the ledger does not know that they have a committed batch."""
    done = app.ledger.publications(plan.stream, plan.seq)
    return [sink.name for sink in planned_pipeline(plan).sinks if sink.name not in done]


def _publish_to(app: App, held: LeasedLedger, sink: OpenSink[Any], plan: Plan, attempt: Attempt) -> int:
    outbox = app.outbox(plan, sink.stage, attempt)
    if outbox.emitted:
        sink.publish(held, outbox, held.last_published(plan.stream, sink.name))
    return outbox.emitted


__all__ = ["lacking_sinks", "publish_batch", "publish_decided"]
