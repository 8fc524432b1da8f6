"""Step 1, plan: finish what was left unpublished, then fix what the next batch reads.

A plan is written once, before the batch reads anything, and never changes. It has the ranges of offsets, the
topics' ids and leader epochs, the clock, the versions of lookups, schemas and suites, and the pipeline as
text and compiled. A retry, and every later step, use the plan that is in the ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from tidegate.app.lease import failures_noted, leased
from tidegate.app.root import LONG_DONE, App, is_long_done, stream_of
from tidegate.app.tables import check_tables
from tidegate.batch.intervals import describe_cover
from tidegate.batch.lookups import changed_tables, pinned_lookups
from tidegate.batch.offsets import (
    check_head_epochs,
    check_partitions,
    first_starts,
    interval_ends,
    limit_ends,
    limit_records,
    plan_ranges,
    standing_still,
    with_epochs,
)
from tidegate.batch.pipeline_files import (
    finish_orphaned_streams,
    head_plan,
    require_compatible,
    require_start_over,
)
from tidegate.batch.publish import publish_decided
from tidegate.batch.schemas import with_writers
from tidegate.batch.suites import pinned
from tidegate.batch.topics import new_topics, source_topics
from tidegate.batch.trigger import ReplayRequest, Trigger
from tidegate.batch.warnings import old_record_warnings, stalled_in
from tidegate.errors import BackwardsRefused, TopicMissing
from tidegate.ledger import Attempt, Clocks, Head, LeasedLedger, OffsetRange, Plan, Run, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.compiled import compile_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.numerals import counted
from tidegate.sinks.port import TimestampBounds

logger = logging.getLogger(__name__)
_BUFFERED = "suppression-buffer-records"
"""The count of keys with a buffered value."""


@dataclass(frozen=True)
class Outcome:
    """The result of planning: the batch that a run works on, or no batch and the reason.

    Args:
        plan: the batch; None if the run has nothing to do.
        note: a sentence for the log, and the reason if there is no batch.
        metrics: `lag` (offsets) and `age_seconds`, also if the run has nothing to do.
    """

    plan: Plan | None
    note: str
    metrics: Mapping[str, float] = field(default_factory=dict)


def plan_batch(app: App, pipeline: Pipeline, trigger: Trigger) -> Outcome:
    """Plan the run's batch, or return the batch that this run, or a run before it, has planned already.

    First it publishes what earlier batches have decided, also of generations without a pipeline file.

    Raises LeaseHeld while another run is at work, BackwardsRefused, and what `draft` raises.

    Example:
        outcome = plan_batch(app, app.pipeline("orders"), Trigger("manual", clock_ms))
        if outcome.plan is not None:
            compute_batch(app, outcome.plan, "manual", open_session)
    """
    stream = stream_of(pipeline)
    run = app.ledger.run(stream, trigger.run_id)
    if run is not None:  # a retry: the plan is in the ledger, since Airflow erases XCom when a retry starts
        return _outcome_of_run(app, stream, run)
    finish_orphaned_streams(app, pipeline, trigger.run_id)
    with leased(app, stream, trigger.run_id) as lease, app.clusters:
        # No batch is planned before its predecessor is published: so at most one decided batch waits.
        publish_decided(app, lease)
        head = lease.head(stream).seq
        # What a person asks to replay, and cannot be replayed, says nothing about the stream.
        noted = failures_noted(lease, head + 1, "plan") if trigger.replay is None else nullcontext()
        with noted:
            # An undecided plan goes first (decision 3): a new clock would change what its timers emit.
            open_plan = lease.open_plan(stream)
            if open_plan is not None:
                return _adopt(lease, trigger, open_plan)
            for sink in app.sinks(stream, pipeline):
                # Before the plan exists: later, each run would go on with the plan and halt at this sink.
                sink.check_settings()
            if not head:
                check_tables(app, stream, pipeline)
            return _plan_next(app, lease, pipeline, trigger)


def _outcome_of_run(app: App, stream: Stream, run: Run) -> Outcome:
    """Return the outcome of a run that has planned its batch, or found nothing to do, in an earlier try."""
    if run.seq is None:
        return Outcome(None, run.note)
    plan = app.ledger.plan(stream, run.seq)
    if plan is None and is_long_done(app.ledger, stream, run):
        return Outcome(None, LONG_DONE)
    if plan is None:
        raise TopicMissing(f"The plan of batch {run.seq} no longer exists", "Trigger a new run.")
    return Outcome(plan, f"batch {run.seq} was planned before; nothing is planned again")


def _adopt(lease: LeasedLedger, trigger: Trigger, plan: Plan) -> Outcome:
    """Let the run work on a batch that another run has planned and not decided: it is used unchanged."""
    lease.add_run(Run(trigger.run_id, plan.seq, f"adopted from {plan.run_id}"))
    return Outcome(plan, f"goes on with batch {plan.seq}, planned by {plan.run_id}")


def _plan_next(app: App, lease: LeasedLedger, pipeline: Pipeline, trigger: Trigger) -> Outcome:
    """Plan the batch after the head, and store it; or store that the run has no batch."""
    began = time.monotonic()
    head = lease.head(lease.stream)
    if trigger.drain and head.seq == 0:
        return _no_batch(lease, trigger, "nothing was read yet, so nothing is held back")
    if trigger.replay is not None:
        return _plan_replay(app, lease, pipeline, trigger, trigger.replay)
    plan, source_view = _draft(app, pipeline, head, trigger, may_register=True)
    _log_what_is_unusual(app, pipeline, head, plan, source_view)
    metrics = ({} if source_view is None else {"lag": float(source_view.waiting)}) | _age(lease, plan)
    # The very first batch is made even if it reads nothing: the head then knows all partitions.
    has_work = plan.span > 0 or head.seq == 0 or trigger.drain or trigger.repeats is not None
    has_work = has_work or bool(changed_tables(pipeline, plan, lambda: head_plan(app, head)))
    if not has_work and not clock_may_fire(pipeline, plan, lease.attempt(plan.stream, head.seq)):
        note = describe_cover(app, pipeline, head, trigger)
        return replace(_no_batch(lease, trigger, note, plan.clocks_after), metrics=metrics)
    _check_direction(lease, plan, trigger)
    lease.add_plan(plan)
    lease.set_metrics(plan.seq, "", {"seconds.plan": time.monotonic() - began} | metrics)
    topics = new_topics(pipeline.sources, head, plan.ranges)
    return Outcome(plan, f"batch {plan.seq}: {_described(plan)}{_new_topics(topics)}", metrics)


def _plan_replay(
    app: App, lease: LeasedLedger, pipeline: Pipeline, trigger: Trigger, request: ReplayRequest
) -> Outcome:
    """Plan a batch that reads records of quarantine and nothing of Kafka. Their resolution is stored, too."""
    began = time.monotonic()
    head = lease.head(lease.stream)
    if head.seq == 0:
        return _no_batch(lease, trigger, "nothing was read yet, so nothing is in quarantine")
    plan, _ = _draft(app, pipeline, head, trigger, may_register=True)
    plan, resolution, skipped = request.planned(app, lease, pipeline, head, plan)
    if resolution is None:
        return _no_batch(lease, trigger, f"nothing to replay: no record in quarantine is open{skipped}")
    lease.add_plan(plan, resolution)
    lease.set_metrics(plan.seq, "", {"seconds.plan": time.monotonic() - began})
    return Outcome(
        plan, f"batch {plan.seq}: replays {counted(plan.most_records, 'record')} of quarantine{skipped}"
    )


def _no_batch(lease: LeasedLedger, trigger: Trigger, note: str, clocks: Clocks | None = None) -> Outcome:
    """Store that the run has no batch, and release the lease.

    `clocks` become the head's: later records meet them as if there had been an empty batch.
    """
    lease.add_run(Run(trigger.run_id, None, note), clocks)
    lease.release()
    return Outcome(None, note)


def draft(app: App, pipeline: Pipeline, head: Head, trigger: Trigger) -> Plan:
    """Return the plan of the next batch, and write nothing: the dry run.

    It reads Kafka, the lookups' tables and schema registries. Raises PipelineChanged, StartOverRefused,
    TriggerInvalid, SchemaRefused, SchemaUnknown, LookupMissing, and what `plan_ranges` and Kafka raise.
    """
    return _draft(app, pipeline, head, trigger, may_register=False)[0]


@dataclass(frozen=True)
class _SourceView:
    """The state of the source in Kafka.

    Args:
        ranges: the offsets to read.
        topic_ids: topic -> the id that Kafka gave it.
        waiting: the number of offsets from the starts on that can be read now.
        stalled: a message for each open transaction that keeps later records from being read.
    """

    ranges: tuple[OffsetRange, ...]
    topic_ids: dict[str, str]
    waiting: int
    stalled: list[str]


def _draft(
    app: App, pipeline: Pipeline, head: Head, trigger: Trigger, may_register: bool
) -> tuple[Plan, _SourceView | None]:
    """Fix all that the batch depends on. Return its plan, and the view of the source (None: Kafka was not
    asked).
    """
    trigger.check_clock()
    # The pipeline, with suites and functions as they are now, has to fit the state of the head's batch.
    pipeline = pinned(app, pipeline)
    before = head_plan(app, head)
    require_compatible(before, pipeline)
    pipeline = _with_planned_sinks(app, head.stream, pipeline, before, may_register)
    # The offsets. A drain and a replay read nothing of Kafka: each partition stays where the head has it.
    asks_kafka = not (trigger.drain or trigger.replay or trigger.repeats)
    source_view = _view_source(app, pipeline, head, trigger) if asks_kafka else None
    cut = before.cut_partitions if before is not None else frozenset()
    ranges = standing_still(head, cut) if source_view is None else source_view.ranges
    if trigger.repeats is not None:
        ranges = trigger.repeats.plan.ranges
    topics = dict.fromkeys(range_.topic for range_ in ranges)
    pipeline = pipeline.with_sources(pipeline.sources.with_topics(list(topics)))
    # After the ends are fixed: the schema of each record before them is registered then.
    pipeline = with_writers(
        app, pipeline, before, reads=trigger.replay is not None or any(range_.span for range_ in ranges)
    )
    plan = Plan(
        stream=head.stream,
        seq=head.seq + 1,
        run_id=trigger.run_id,
        clock_ms=trigger.clock_ms,
        believed_until_ms=trigger.believed_until_ms,
        ranges=ranges,
        topic_ids=head.topic_ids if source_view is None else source_view.topic_ids,
        spec_text=pipeline.text,
        spec_compiled=compile_pipeline(pipeline),
        drain=trigger.drain,
        lookups=pinned_lookups(app, pipeline, before.lookups if before is not None else {}),
        clocks=head.clocks_of(range_.place for range_ in ranges),
        timestamps=_timestamp_bounds(app, head.stream, pipeline),
    )
    if trigger.repeats is not None:
        plan = trigger.repeats.planned(head, plan)
    if not (pipeline.start_over or trigger.from_start):
        require_start_over(app, pipeline, head, plan)
    return plan, source_view


def _view_source(app: App, pipeline: Pipeline, head: Head, trigger: Trigger) -> _SourceView:
    """Ask Kafka what there is, and fix the ranges of all sources: from the head to the interval's end, or as
    far as the trigger and `max_records` allow.
    """
    sources = pipeline.sources
    with app.log(sources.connection) as log:
        views = [log.view(topic) for topic in source_topics(log, sources, head)]
        first = first_starts(log, views, sources) if head.seq == 0 else {}
        ranges = plan_ranges(head, views, first, interval_ends(log, views, trigger))
        if trigger.until_offsets is not None:
            check_partitions(views, trigger.until_offsets)
            ranges = limit_ends(ranges, trigger.until_offsets)
        # Last: partitions that the trigger leaves out must not use up a share of `max_records`.
        ranges = limit_records(ranges, sources, trigger)
        check_head_epochs(log, head, views)
        ranges = with_epochs(log, views, ranges)
        stalled = stalled_in(log, views)
    ends = {(view.topic, partition): end for view in views for partition, end in view.stable_ends.items()}
    # Lag ends at the last stable offset, since no batch could read the records from there on.
    waiting = sum(max(0, ends[range_.place] - range_.start) for range_ in ranges)
    topic_ids = {**head.topic_ids, **{view.topic: view.topic_id for view in views}}
    for sink in app.sinks(head.stream, pipeline):
        sink.check_source(topic_ids)
    return _SourceView(ranges, topic_ids, waiting, stalled)


def _with_planned_sinks(
    app: App, stream: Stream, pipeline: Pipeline, before: Plan | None, may_register: bool
) -> Pipeline:
    """Return the pipeline with what a plan fixes about sinks beside the file: the schemas of their
    messages.
    """
    previous = {sink.name: sink for sink in planned_pipeline(before).sinks} if before is not None else {}
    opened = [sink for sink in app.sinks(stream, pipeline) if sink.gets_emissions]
    sinks = [sink.planned(previous.get(sink.name), may_register) for sink in opened]
    return pipeline.model_copy(update={"sinks": tuple(sinks)})


def _timestamp_bounds(app: App, stream: Stream, pipeline: Pipeline) -> dict[str, TimestampBounds]:
    """Return topic -> the timestamps that it accepts now, for sinks that quarantine other timestamps."""
    bounds: dict[str, TimestampBounds] = {}
    for sink in app.sinks(stream, pipeline):
        bounds |= sink.timestamp_bounds()
    return bounds


def clock_may_fire(pipeline: Pipeline, plan: Plan, before: Attempt | None) -> bool:
    """Return whether the clock alone can make a stage emit.

    That is so if a stage runs by it, has a buffered value, may have a heartbeat or a final value after an
    early one, or state that may expire, and the clock advances in a partition that is not cut.

    Args:
        before: the attempt of the previous batch.
    """
    # A clock that advances in no partition has fired all its timers in an earlier batch.
    if plan.clocks_after == plan.clocks or not any(
        stage.timed and stage.emit.clock == "run" for stage in pipeline.stages
    ):
        return False
    return before is not None and any(
        before.stage_counts(stage.name).get(name, 0) > 0
        for stage in pipeline.stages
        for name in (
            (_BUFFERED, "state-rows") if stage.emit.fires_without_buffer or stage.ttl else (_BUFFERED,)
        )
    )


def _check_direction(lease: LeasedLedger, plan: Plan, trigger: Trigger) -> None:
    """Raise BackwardsRefused if the intervals of a backfill do not come in order.

    Its records would meet a stream time that is later than theirs. The rest of a cut interval has met no
    later time, whichever run reads it. A scheduled run is never refused: it continues from the head, whatever
    the clocks have done.
    """
    clocks = [plan.clocks[range_.place] for range_ in plan.ranges if range_.span]
    if trigger.backfill and plan.clock_ms < max(clocks, default=-1):
        # A refusal is final, so it must not come from a try that was overtaken since: that one is Fenced.
        lease.renew()
        raise BackwardsRefused(
            f"The backfill {trigger.run_id} of {plan.stream} goes backwards: batches up to {plan.seq - 1} "
            "are of a later interval, and do not cover this one yet",
            "Nothing is lost: later runs read what is left, in order. Backfill from the oldest interval on, "
            "not with --run-backwards; or raise `generation` to process all of it again.",
        )


def _log_what_is_unusual(
    app: App, pipeline: Pipeline, head: Head, plan: Plan, source_view: _SourceView | None
) -> None:
    added = [range_ for range_ in plan.ranges if range_.place not in head.offsets]
    if topics := new_topics(pipeline.sources, head, plan.ranges):
        logger.info("%s%s", plan.stream, _new_topics(topics))
    for range_ in added if head.seq else ():
        logger.info(
            "%s[%d] is new; it is read from offset %d on", range_.topic, range_.partition, range_.start
        )
    stalled = source_view.stalled if source_view is not None else []
    for warning in (*stalled, *old_record_warnings(app, head.stream, pipeline, plan.ranges, plan.clock_ms)):
        logger.warning("%s", warning)


def _age(lease: LeasedLedger, plan: Plan) -> dict[str, float]:
    """Return how far the newest record that was read is behind the clock; empty before the first batch."""
    # -1: no time was applied to the partition yet.
    times = [at for stage in lease.times(plan.stream).values() for at in stage.values() if at >= 0]
    return {"age_seconds": (plan.clock_ms - max(times)) / 1000} if times else {}


def _described(plan: Plan) -> str:
    if plan.drain:
        return "reads nothing, emits what is buffered"
    text = f"{counted(plan.span, 'offset')} in {counted(len(plan.ranges), 'partition')}"
    cut = len(plan.cut_partitions)
    return f"{text}, in {cut} of them not to the interval's end: its clock waits there" if cut else text


def _new_topics(topics: Sequence[str]) -> str:
    """Return what a plan says of the topics that its pattern has found; empty without any."""
    return f"; new topics, read from their beginning: {', '.join(topics)}" if topics else ""
