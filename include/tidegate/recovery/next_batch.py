"""Remedies for the beginning of the next batch: offsets that Kafka has deleted before they were read
(`accept-gap`), a plan that fails in every retry (`drop-plan`), a clock that is ahead of now (`lower-clock`,
decision 81).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate import kernel
from tidegate.batch.offsets import first_start
from tidegate.batch.publish import publish_decided
from tidegate.batch.still_batch import decide_still_batch, still_plan
from tidegate.batch_counts import LATE, in_all_stages
from tidegate.clock import current_ms
from tidegate.errors import Halted
from tidegate.kernel.timers import lower_entries
from tidegate.ledger import Clocks, Head, LeasedLedger, LedgerReader, OffsetRange, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.records import Times
from tidegate.ledger.stream_condition import CLOCK_AHEAD_MS, instant_text
from tidegate.numerals import batches_named, counted
from tidegate.recovery.remedy import Proposal, Situation


class AcceptGap:
    """Move the head past offsets that are lost."""

    name = "accept-gap"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if retention has deleted records that were not read yet.

        Raises Halted if the planned batch has read its records already: then none of them is lost.
        """
        gaps = _gaps(situation, situation.head, situation.open_plan)
        if not gaps:
            return None
        lost = ", ".join(f"{gap.topic}[{gap.partition}] offsets {gap.start} to {gap.end - 1}" for gap in gaps)
        effects = [f"The records of {lost} count as lost; the ledger records it."]
        if (plan := situation.open_plan) is not None:
            _require_unread(situation, plan)
            effects.append(f"Batch {plan.seq}, which was to read them, is forgotten.")
        effects.append(f"The next run of {situation.stream} reads what comes after them.")
        cause = f"Retention deleted {lost} before they were read."
        return Proposal(self.name, cause, tuple(effects), lambda: accept_gap(situation))


def accept_gap(situation: Situation) -> tuple[str, ...]:
    """Move the head past the lost offsets, and return a sentence for each gap. Raises Halted, LeaseHeld."""
    with situation.leased() as lease:
        # Under the lease everything is read anew: a run may have read the records since the proposal.
        head, plan = lease.head(lease.stream), lease.open_plan(lease.stream)
        gaps = _gaps(situation, head, plan)
        if not gaps:
            return ("There is no gap any more; nothing was done.",)
        if plan is not None:
            _require_unread(situation, plan)
        dropped = lease.drop_plan()  # its ranges contain the lost offsets
        lease.accept_gap(gaps)
    done = [
        f"Accepted as lost: {gap.topic}[{gap.partition}] offsets {gap.start} to {gap.end - 1}."
        for gap in gaps
    ]
    if dropped:
        done.append(f"Batch {dropped}, which was to read them, is forgotten; the next run plans it anew.")
    return tuple(done)


def _gaps(situation: Situation, head: Head, plan: Plan | None) -> list[OffsetRange]:
    """Return the offsets that the stream reads next and that Kafka does not have any more."""
    ranges = plan.ranges if plan else ()
    # The head's offsets win; a plan's start counts only for partitions that the head does not have.
    next_offsets = {planned.place: planned.start for planned in ranges if planned.span}
    next_offsets.update(head.offsets)
    source_plan = plan or situation.ledger.plan(situation.stream, head.seq)
    if source_plan is None:
        return []  # nothing was planned yet, so the stream lacks no record
    with situation.app.log(planned_pipeline(source_plan).sources.connection) as log:
        views = [log.view(topic) for topic in sorted({topic for topic, _ in next_offsets})]
    return [
        OffsetRange(view.topic, partition, first, start)
        for view in views
        for partition, start in view.starts.items()
        # A partition that was added is read from 0 on: what retention has deleted of it since is a gap.
        if (first := next_offsets.get((view.topic, partition), first_start(head, view, partition, {})))
        < start
    ]


def _require_unread(situation: Situation, plan: Plan) -> None:
    """Raise Halted if the planned batch has read its records, since then none of them is lost."""
    if situation.ledger.attempt(plan.stream, plan.seq) is not None:
        raise Halted(
            f"Batch {plan.seq} of {plan.stream} has read its records already: none of them is lost",
            f"Run the pipeline again, so that it goes through; then, if {plan.stream.recover_command()} "
            "still finds a gap, accept it. To give the batch up all the same: "
            f"{plan.stream.recover_command('drop-plan')}",
        )


class DropPlan:
    """Drop the batch that is planned and not decided, so that the next run plans it anew."""

    name = "drop-plan"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if the planned batch has failed; for any planned batch, if the remedy is
        chosen.
        """
        plan = situation.open_plan
        if plan is None:
            return None
        start = f"batch {plan.seq} "
        causes = [cause.text for cause in situation.causes if cause.what.startswith(start)]
        # A batch that is just at work is planned, too: without a failure only a person may drop it.
        if not causes and not situation.is_chosen(self.name):
            return None
        cause = causes[0] if causes else f"batch {plan.seq} is planned, and no step of it has failed"
        effects = (
            f"Batch {plan.seq} of {situation.stream} is forgotten, with what was computed of it.",
            "The next run plans it anew, with the pipeline file, lookups and offsets as they are then.",
        )
        return Proposal(self.name, f"{cause[:1].upper()}{cause[1:]}", effects, lambda: drop_plan(situation))


def drop_plan(situation: Situation) -> tuple[str, ...]:
    """Drop the planned batch, and return a sentence about it. Raises LeaseHeld while a run is at work."""
    with situation.leased() as lease:
        seq = lease.drop_plan()
    return (f"Batch {seq} is forgotten; the next run plans it anew." if seq else "No batch is planned.",)


@dataclass(frozen=True)
class _Lowered:
    """The corrected clocks and times of stages.

    `first_seq` is the first batch whose clock was ahead. It is None if the ledger no longer has the batches
    that show the correct clock; now is then used instead.
    """

    clocks: Clocks
    times: Times
    first_seq: int | None


class LowerClock:
    """Decide a batch that reads and emits nothing, with the last correct clock, and state that fits to it."""

    name = "lower-clock"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if the clock of the head, or of the planned batch, is ahead of now."""
        now_ms, head, plan = current_ms(), situation.head, situation.open_plan
        clock_ms = max(head.clocks.values(), default=-1)
        # The open plan may be the one with the typo, while the head's clocks are still correct.
        planned_ms = plan.clock_ms if plan is not None else -1
        if max(clock_ms, planned_ms) <= now_ms + CLOCK_AHEAD_MS:
            return None
        cause = (
            f"The clock of {situation.stream} is {instant_text(max(clock_ms, planned_ms))}, later than now."
        )
        effects = list(_effects(situation, now_ms)) if clock_ms > now_ms + CLOCK_AHEAD_MS else []
        if plan is not None:
            effects.insert(0, f"Batch {plan.seq}, which is planned, is forgotten, and planned anew.")
        return Proposal(self.name, cause, tuple(effects), lambda: _lower_clock(situation))


def _effects(situation: Situation, now_ms: int) -> Iterator[str]:
    head = situation.head
    lowered = _lowered(situation.ledger, head, now_ms)
    clock_ms = max(lowered.clocks.values())
    back_to = instant_text(clock_ms) if clock_ms >= 0 else "none, as before the first batch"
    yield (
        f"Batch {head.seq + 1} reads and emits nothing: from it on, the clock is {back_to}. Stages' times "
        "and timers that are ahead of now go back, too: what is held back goes out as if it had come then."
    )
    if lowered.first_seq is None:
        yield (
            "The ledger no longer has the batches from before the clock was ahead. So the clock is now, and "
            "records that wait and belong to windows that are over now are late."
        )
        return
    late = _late_records(situation.ledger, range(lowered.first_seq, head.seq + 1), head)
    yield (
        f"It does not undo what {batches_named(lowered.first_seq, head.seq)} did by the wrong clock: what "
        "went out too early stays. A window that was closed opens again with its next record, and consumers "
        f"get a second result of it. What was dropped as late, {counted(late, 'record')}, is not read again. "
        "To compute all of that anew, raise `generation`."
    )


def _late_records(ledger: LedgerReader, seqs: range, head: Head) -> int:
    attempts = [ledger.attempt(head.stream, seq) for seq in seqs]
    return sum(in_all_stages(attempt.counts, LATE) for attempt in attempts if attempt is not None)


def _lowered(ledger: LedgerReader, head: Head, now_ms: int) -> _Lowered:
    """Return the clocks of the last batch before which no clock was ahead of the time of its planning."""
    last = ledger.attempt(head.stream, head.seq)
    times: Times = last.times if last is not None else {}
    # Backwards to the newest batch with a clock that was no later than its own planning.
    for seq in range(head.seq, 0, -1):
        (batch, *_) = ledger.batches(head.stream, before=seq + 1, limit=1)
        if batch.plan is None or batch.planned_at is None:
            break
        latest_ms = min(batch.planned_at * 1000, now_ms) + CLOCK_AHEAD_MS  # both may be of a wrong clock
        # Its clocks afterwards may be correct, or, if not, those with which it began.
        for clocks, first_seq in ((batch.plan.clocks_after, seq + 1), (batch.plan.clocks, seq)):
            if max(clocks.values(), default=-1) <= latest_ms:
                before = ledger.attempt(head.stream, first_seq - 1)
                right = before.times if before is not None else {}
                return _Lowered(_lower_clocks(head, clocks), _lower_times(times, right, now_ms), first_seq)
    at_now = {stage: dict.fromkeys(places, now_ms) for stage, places in times.items()}
    clocks = {place: min(clock, now_ms) for place, clock in head.clocks.items()}
    return _Lowered(clocks, _lower_times(times, at_now, now_ms), None)


def _lower_clocks(head: Head, right: Clocks) -> Clocks:
    """Return the head's clocks, no later than the correct ones. A newer partition gets the smallest of
    these.
    """
    # Too early is safe: the next batches raise a clock; too late would drop records as late.
    least = min(right.values(), default=-1)
    return {place: min(clock, right.get(place, least)) for place, clock in head.clocks.items()}


def _lower_times(times: Times, right: Times, now_ms: int) -> Times:
    return {
        stage: {
            place: right.get(stage, {}).get(place, -1) if time > now_ms else time
            for place, time in places.items()
        }
        for stage, places in times.items()
    }


def _lower_clock(situation: Situation) -> tuple[str, ...]:
    app, done = situation.app, []
    with situation.leased() as lease, app.clusters:
        publish_decided(app, lease)
        head, now_ms = lease.head(lease.stream), current_ms()
        # A plan is immutable and contains its clock, so it can only be dropped.
        if (dropped := lease.drop_plan()) is not None:
            done.append(f"Batch {dropped} is forgotten; the next run plans it anew.")
        if max(head.clocks.values(), default=-1) > now_ms + CLOCK_AHEAD_MS:
            lowered = _lowered(lease, head, now_ms)
            _decide(situation, lease, head, lowered, now_ms)
            publish_decided(app, lease)
            clock = instant_text(max(lowered.clocks.values()))
            done.append(f"Batch {head.seq + 1} of {lease.stream} has set the clock back to {clock}.")
    return tuple(done) or ("The clock is not ahead of now any more; nothing was done.",)


def _decide(situation: Situation, lease: LeasedLedger, head: Head, lowered: _Lowered, now_ms: int) -> None:
    """Decide the batch that has the lowered clocks, times and state."""
    before = lease.plan(lease.stream, head.seq)
    assert before is not None, "the ledger has the head's plan"
    # A plan raises each partition's clock to its own: so its clock must not be above any of them.
    floor = min(lowered.clocks.values())
    plan = replace(
        still_plan(head, before, lease.lease.holder),
        clock_ms=floor,
        believed_until_ms=floor + kernel.FUTURE_MS,
        clocks=lowered.clocks,
    )

    def lower(name: str, stage: kernel.Stage, rows: pa.Table) -> pa.Table:
        return lower_entries(stage, rows, _place_times(lowered, name), now_ms, floor)

    decide_still_batch(situation.app, lease, plan, lower, lowered.times)


def _place_times(lowered: _Lowered, stage: str) -> Mapping[tuple[str, int], int]:
    """Return the time of each topic-partition: the larger of the stage's time and the clock."""
    times = lowered.times.get(stage, {})
    return {place: max(clock, times.get(place, -1)) for place, clock in lowered.clocks.items()}
