"""Step 5, publish: send the outbox of a decided batch to the sinks, each record exactly once.

Nothing of a generation that is not in charge of its pipeline is sent. Once it is in charge, all that it has
withheld is sent, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tidegate.app.lease import claim_promotions, failures_noted, leased, timed
from tidegate.app.root import App, OpenSession, missing_of_head
from tidegate.app.tables import catch_up_tables
from tidegate.batch.freshness import emission_ages, stale_publication
from tidegate.batch_counts import outgoing
from tidegate.clock import current_ms
from tidegate.errors import Halted, LakeDamaged, LeaseHeld, SinkAhead, SinkRefused, TidegateError
from tidegate.ledger import Attempt, Head, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import lacking_sinks, planned_pipeline, unpublished_sinks
from tidegate.sinks.outbox import SHARD_EMISSIONS
from tidegate.sinks.port import OpenSink

logger = logging.getLogger(__name__)


def publish_batch(
    app: App, plan: Plan, run_id: str, open_session: OpenSession | None = None
) -> dict[str, int]:
    """Publish a committed batch to the sinks that lack it, then bring the tables for other engines up to the
    head.

    With a Spark session, its tasks send a batch for which `is_sent_in_shards` is true; without, this process
    does. The session is opened only if there is something to send.

    Returns sink -> records. Sinks and tables that have the batch are left alone, and so is a batch that is
    withheld. Raises Halted if the batch is not committed, ProgressLost, Fenced, OutcomeUnknown,
    LakeUnavailable and other errors of the sinks.
    """
    if app.ledger.head(plan.stream).seq < plan.seq:
        raise Halted(
            f"Batch {plan.seq} of {plan.stream} is not committed, so nothing of it is published",
            "Clear `commit`, if that was only marked as a success; or trigger a new run, which goes on with "
            "the batch.",
        )
    if lacking_sinks(app.ledger, plan):
        with leased(app, plan.stream, run_id) as lease, app.clusters:
            with timed(lease, plan.seq, "publish"):
                publish_decided(app, lease, open_session)
            lease.release()
    elif app.ledger.lease_holder(plan.stream) == run_id:  # of a batch that is withheld: nobody has to wait
        with leased(app, plan.stream, run_id) as lease:
            lease.release()
    _catch_up(app, plan, run_id)
    return app.ledger.publications(plan.stream, plan.seq)


def _catch_up(app: App, plan: Plan, run_id: str) -> None:
    """Bring the tables for others up to the head. It takes the lease only to record that it failed, or that
    it has gone through since.
    """
    try:
        catch_up_tables(app, plan.stream, [planned_pipeline(plan)])
    except TidegateError as error:
        with suppress(TidegateError), leased(app, plan.stream, run_id) as lease:
            lease.note_failure(lease.head(plan.stream).seq, "tables", error)
            lease.release()
        raise
    # Read without the lease: almost always there is nothing to remove, and no run has to wait.
    noted = app.ledger.failure(plan.stream, app.ledger.head(plan.stream).seq)
    if noted is not None and noted.step == "tables":
        with suppress(LeaseHeld), leased(app, plan.stream, run_id) as lease:
            lease.remove_failure("tables")
            lease.release()


def publish_decided(app: App, lease: LeasedLedger, open_session: OpenSession | None = None) -> None:
    """Publish the head's batch, and earlier batches that were withheld or must be sent again.

    All other batches are published: no batch is planned before its predecessor is. Failures are recorded.
    Raises LedgerMismatch if another ledger, or a later state of this one, has promoted a generation.
    """
    claim_promotions(app, lease.stream.pipeline)
    head = lease.head(lease.stream)
    for plan in lacking_batches(lease, head):
        with _failures_noted(lease, plan.seq, head.seq):
            _publish(app, lease, plan, open_session)
    if head.send_from is not None:
        lease.end_sending_again()


@contextmanager
def _failures_noted(lease: LeasedLedger, seq: int, head: int) -> Iterator[None]:
    """Record the error that the publication of a batch fails with; also of the head, which waits for it: the
    condition of a stream is derived from the head's failure.
    """
    try:
        with failures_noted(lease, seq, "publish"):
            yield
    except TidegateError as error:
        if seq != head:
            with suppress(TidegateError):  # the first error is the one to report
                lease.note_failure(head, "publish", error)
        raise


def lacking_batches(ledger: LedgerReader, head: Head) -> Iterator[Plan]:
    """Yield the plans of the committed batches, up to the head, that go out and that a sink lacks, the oldest
    first.

    Raises Halted where the ledger no longer has one of the plans.
    """
    stream = head.stream
    charge = ledger.charge(stream.pipeline)  # after the head: see `LedgerReader.charge`
    if charge.withholds(stream.generation):
        if head.seq:
            logger.info("%s is not in charge: what it decides is withheld until it is promoted", stream)
        return
    # Usually only the head's batch can lack a sink: then the loop reads a single plan.
    first = head.seq
    if charge.promotions:
        first = max(ledger.newest_publication(stream), charge.promotions[-1].first_seq)
    for seq in range(max(min(first, head.send_from or first), 1), head.seq + 1):
        if charge.goes_out(stream.generation, seq):
            plan = ledger.plan(stream, seq)
            if plan is None:
                raise Halted(
                    f"Batch {seq} of {stream} must be published, and the ledger no longer has its plan",
                    "Restore the ledger, or send again from a later batch: "
                    f"{stream.recover_command('send-again')} --from-batch {seq + 1}",
                )
            if unpublished_sinks(ledger, plan):
                yield plan


def is_sent_in_shards(app: App, plan: Plan, attempt: Attempt) -> bool:
    """Return whether a batch, as an attempt computed it, is so large that Spark tasks should send it to some
    sink.
    """
    pipeline = planned_pipeline(plan)
    emitted = max(outgoing(attempt.stage_counts(stage.name)) for stage in pipeline.outlets)
    if emitted < 2 * SHARD_EMISSIONS:  # most batches: this reads no manifest
        return False
    sinks = [sink for sink in app.sinks(plan.stream, pipeline) if sink.sends_shards]
    return any(sink.outbox(plan, attempt).shards > 1 for sink in sinks)


def withheld_note(ledger: LedgerReader, plan: Plan) -> str:
    """Return a sentence if what a decided batch emitted is withheld, with the command that lets it go out; ""
    if it goes out.
    """
    stream = plan.stream
    if ledger.charge(stream.pipeline).goes_out(stream.generation, plan.seq):
        return ""
    promote = f"tidegate generation promote {stream.pipeline} {stream.generation}"
    return f"{stream} is not in charge: batch {plan.seq} is withheld. To put it in charge: {promote}"


def _publish(app: App, lease: LeasedLedger, plan: Plan, open_session: OpenSession | None) -> None:
    attempt = lease.attempt(plan.stream, plan.seq)
    if attempt is None:
        raise missing_of_head(lease, plan.stream, plan.seq, "attempt")
    pipeline = planned_pipeline(plan)
    lacking = unpublished_sinks(lease, plan)
    sinks = app.sinks(plan.stream, pipeline, open_session)
    # Before anything is sent: a file that cannot be read then fails a try that another one repeats.
    ages = emission_ages(pipeline, sinks, plan, attempt)
    for sink in sinks:
        if sink.name in lacking:
            records = publish_to(lease, sink, plan, attempt)
            # Sink by sink: a try that dies here offers the batch again, and the sink's progress skips it.
            lease.add_publication(plan.seq, sink.name, records)
    if ages is not None:
        # The machine's clock: readers get the emissions in real time, whatever interval the batch is of.
        lease.set_metrics(plan.seq, "", ages.metrics_at(current_ms()))
        if (finding := stale_publication(lease, plan)) is not None:
            logger.warning("%s", finding)


def publish_to(lease: LeasedLedger, sink: OpenSink[Any], plan: Plan, attempt: Attempt) -> int:
    """Publish a decided batch to one sink, and return the number of its records. Raises what the sink raises,
    and LakeDamaged.
    """
    try:
        outbox = sink.outbox(plan, attempt)
        # A sink never sees an empty batch, so its progress may be at an older batch than the head.
        if outbox.emitted:
            sink.deliver(lease, outbox, lease.last_published(plan.stream, sink.name))
    except SinkAhead:  # sinks get batches in order; one whom a newer try has overtaken cannot note it
        logger.info("%s has batch %d of %s already, and later ones", sink.name, plan.seq, plan.stream)
    except LakeDamaged as error:
        instead = f"If it is lost for good: {plan.stream.recover_command('give-up')}"
        raise LakeDamaged(error.what, f"{error.fix} {instead}") from error
    except SinkRefused as error:
        instead = f"If the sink can never take the batch: {plan.stream.recover_command('give-up')}"
        raise SinkRefused(error.what, f"{error.fix} {instead}") from error
    return outbox.emitted


def check_progress(app: App, stream: Stream) -> None:
    """Find out whether each sink still knows what was published to it. Sends nothing.

    Raises TopicMissing, TopicRecreated, ProgressLost, Fenced, and what keeps it from asking.
    """
    for sink in published_sinks(app, stream):
        sink.check_progress()


def published_sinks(app: App, stream: Stream) -> list[OpenSink[Any]]:
    """Return the sinks of the last committed batch; none before the first."""
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    return app.sinks(stream, planned_pipeline(plan)) if plan is not None else []
