"""Step 5, publish: the outbox of a decided batch goes to the sinks, each exactly once.

Of a generation that is not in charge of its pipeline nothing goes out; once it is, all that it has withheld
does, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tidegate.app.lease import failures_noted, leased, timed
from tidegate.app.root import App, missing_of_head
from tidegate.app.tables import catch_up_tables
from tidegate.errors import Halted
from tidegate.ledger import Attempt, LeasedLedger, LedgerReader, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks import OpenSink

log = logging.getLogger(__name__)


def publish_batch(app: App, plan: Plan, run_id: str) -> dict[str, int]:
    """Publish a committed batch to the sinks that do not have it yet; then bring the tables for others up to
    the head. Returns sink -> records.

    What every sink and table has is a verified no-op, and so is a batch that is withheld. Raises Halted when
    the batch is not committed (a head never goes back, so nobody has to look again), ProgressLost, Fenced,
    OutcomeUnknown, LakeUnavailable, …
    """
    if app.ledger.head(plan.stream).seq < plan.seq:
        raise Halted(
            f"Batch {plan.seq} of {plan.stream} is not committed, so nothing of it is published",
            "Clear `commit`, if that was only marked as a success; or trigger a new run, which goes on with "
            "the batch.",
        )
    if lacking_sinks(app, plan):
        with leased(app, plan.stream, run_id) as held, app.clusters:
            with timed(held, plan.seq, "publish"):
                publish_decided(app, held)
            held.release()
    elif app.ledger.lease_holder(plan.stream) == run_id:  # of a batch that is withheld: nobody has to wait
        with leased(app, plan.stream, run_id) as held:
            held.release()
    catch_up_tables(app, plan.stream, [planned_pipeline(plan)])
    return app.ledger.publications(plan.stream, plan.seq)


def publish_decided(app: App, held: LeasedLedger) -> None:
    """Finish the head's batch, and whatever before it was withheld until its generation took charge.

    Others are out: no batch is planned before its predecessor is. What that fails of is noted.
    """
    for plan in _decided_plans(held):
        if _lacking_sinks(held, plan):
            with failures_noted(held, plan.seq, "publish"):
                _publish(app, held, plan)


def _decided_plans(held: LeasedLedger) -> Iterator[Plan]:
    """The plans of the batches that may not be out, the oldest first. Those that have left the ledger are."""
    stream = held.stream
    head = held.head(stream).seq
    charge = held.charge(stream.pipeline)  # after the head: see `LedgerReader.charge`
    if charge.withholds(stream.generation):
        if head:
            log.info("%s is not in charge: what it decides is withheld until it is promoted", stream)
        return
    first = head
    if charge.promotions:
        first = max(held.newest_publication(stream), charge.promotions[-1].first_seq)
    for seq in range(max(first, 1), head + 1):
        plan = held.plan(stream, seq)
        if plan is not None:
            yield plan


def _publish(app: App, held: LeasedLedger, plan: Plan) -> None:
    attempt = held.attempt(plan.stream, plan.seq)
    if attempt is None:
        raise missing_of_head(held, plan.stream, plan.seq, "attempt")
    done = held.publications(plan.stream, plan.seq)
    for sink in app.sinks(plan.stream, planned_pipeline(plan)):
        if sink.name not in done:
            records = _publish_to(held, sink, plan, attempt)
            held.add_publication(plan.seq, sink.name, records)


def lacking_sinks(app: App, plan: Plan) -> list[str]:
    """The sinks that are to have a committed batch, and of which the ledger does not know that they do."""
    if not app.ledger.charge(plan.stream.pipeline).goes_out(plan.stream.generation, plan.seq):
        return []
    return _lacking_sinks(app.ledger, plan)


def _lacking_sinks(ledger: LedgerReader, plan: Plan) -> list[str]:
    """The same of a batch that goes out."""
    done = ledger.publications(plan.stream, plan.seq)
    return [sink.name for sink in planned_pipeline(plan).outputs if sink.name not in done]


def _publish_to(held: LeasedLedger, sink: OpenSink[Any], plan: Plan, attempt: Attempt) -> int:
    outbox = sink.outbox(plan, attempt)
    if outbox.emitted:
        sink.publish(held, outbox, held.last_published(plan.stream, sink.name))
    return outbox.emitted


__all__ = ["lacking_sinks", "publish_batch", "publish_decided"]
