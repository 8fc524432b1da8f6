"""Step 1, plan: finish what was left unpublished, then fix what the next batch reads."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tidegate.broker import KafkaLog, TopicView
from tidegate.core import FUTURE_MS
from tidegate.errors import TopicMissing
from tidegate.failpoints import failpoint
from tidegate.ledger import Head, LeasedLedger, Plan, Run
from tidegate.spec import Pipeline, Source
from tidegate.steps.app import App, stream_of
from tidegate.steps.lease import leased
from tidegate.steps.publish import publish_decided
from tidegate.steps.ranges import plan_ranges


@dataclass(frozen=True)
class Trigger:
    """Why a batch runs, and when. Instants are epoch ms.

    `clock_ms` is what the batch takes as now; a backfill's lies in the past, so `now_ms` says when the
    trigger itself was. `interval_end_ms` null reads all that is there.
    """

    run_id: str
    clock_ms: int
    interval_end_ms: int | None = None
    now_ms: int | None = None

    @property
    def believed_until_ms(self) -> int:
        """A record from later than this is a mistake, and not just one that a later interval will read."""
        return max(self.clock_ms, self.now_ms or self.clock_ms) + FUTURE_MS


@dataclass(frozen=True)
class Outcome:
    """The batch that a run works on, or, when there is none, the reason in `note`."""

    plan: Plan | None
    note: str


def plan_batch(app: App, pipeline: Pipeline, trigger: Trigger) -> Outcome:
    """Plan the run's batch, or find the one that it, or a run before it, already planned.

    Raises LeaseHeld while another run is at work, and what `steps.ranges` and `broker` raise.
    """
    stream = stream_of(pipeline)
    known = app.ledger.run(stream, trigger.run_id)
    if known is not None:
        return _found_again(app, pipeline, known)
    with leased(app.ledger, stream, trigger.run_id) as held:
        failpoint("plan.leased")
        publish_decided(app, held)
        failpoint("plan.leftover_published")
        waiting = held.open_plan(stream)
        if waiting is not None:
            held.add_run(Run(trigger.run_id, waiting.seq, f"adopted from {waiting.run_id}"))
            return Outcome(waiting, f"goes on with batch {waiting.seq}, planned by {waiting.run_id}")
        began = time.monotonic()
        plan = draft(app, pipeline, held.head(stream), trigger)
        if plan.span == 0 and plan.seq > 1:
            return _nothing_new(held, plan, trigger)
        failpoint("plan.before_write")
        held.add_plan(plan)
        failpoint("plan.after_write")
        held.set_metrics(plan.seq, "", {"seconds.plan": time.monotonic() - began})
        return Outcome(plan, f"batch {plan.seq}: {plan.span} offsets in {len(plan.ranges)} partitions")


def draft(app: App, pipeline: Pipeline, head: Head, trigger: Trigger) -> Plan:
    """The plan of the next batch. Reads Kafka, writes nothing: the dry run."""
    with app.log() as log:
        views = [log.view(topic) for topic in pipeline.source.topics]
        first = _first_starts(log, views, pipeline.source) if head.seq == 0 else {}
        upper = None
        if trigger.interval_end_ms is not None:
            upper = _offsets_at(
                log, views, trigger.interval_end_ms, believed_until_ms=trigger.believed_until_ms
            )
        ranges = plan_ranges(head, views, first, upper, pipeline.source.max_records)
    return Plan(
        stream=head.stream,
        seq=head.seq + 1,
        run_id=trigger.run_id,
        clock_ms=trigger.clock_ms,
        believed_until_ms=trigger.believed_until_ms,
        ranges=ranges,
        topic_ids={**head.topic_ids, **{view.topic: view.topic_id for view in views}},
        spec_text=pipeline.text,
        spec_hash=pipeline.hash,
    )


def _found_again(app: App, pipeline: Pipeline, run: Run) -> Outcome:
    stream = stream_of(pipeline)
    if run.seq is None:
        return Outcome(None, run.note)
    plan = app.ledger.plan(stream, run.seq)
    if plan is None:
        raise TopicMissing(f"The plan of batch {run.seq} is gone", "Trigger a new run.")
    return Outcome(plan, f"batch {run.seq} was planned before; nothing is planned again")


def _nothing_new(held: LeasedLedger, plan: Plan, trigger: Trigger) -> Outcome:
    note = f"nothing new to read: batches up to {plan.seq - 1} cover all records before the interval's end"
    held.add_run(Run(trigger.run_id, None, note))
    held.release()
    return Outcome(None, note)


def _first_starts(log: KafkaLog, views: list[TopicView], source: Source) -> dict[tuple[str, int], int]:
    """Where the very first batch starts, as the pipeline file says."""
    if source.start == "earliest":
        return {}
    latest = {(view.topic, p): end for view in views for p, end in view.stable_ends.items()}
    return latest if source.start == "latest" else latest | _offsets_at(log, views, source.start)


def _offsets_at(
    log: KafkaLog, views: list[TopicView], timestamp_ms: int, believed_until_ms: int | None = None
) -> dict[tuple[str, int], int]:
    """Where an instant falls in each partition. Only a hint: timestamps need not rise with offsets.

    A record from after `believed_until_ms` does not count: it would hold back all that comes after it
    until its time has come. It is read, and quarantined.
    """
    return {
        (view.topic, partition): offset
        for view in views
        for partition, (offset, at_ms) in log.offsets_at(
            view.topic, sorted(view.starts), timestamp_ms
        ).items()
        if believed_until_ms is None or at_ms <= believed_until_ms
    }
