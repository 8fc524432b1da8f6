"""Remedy `accept-gap`: continue after offsets that Kafka has deleted before they were read."""

from __future__ import annotations

from tidegate.batch.offsets import first_start
from tidegate.errors import Halted
from tidegate.ledger import Head, OffsetRange, Plan
from tidegate.ledger.planned import planned_pipeline
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
    next_offsets = {(planned.topic, planned.partition): planned.start for planned in ranges if planned.span}
    next_offsets.update(head.offsets)
    source_plan = plan or situation.ledger.plan(situation.stream, head.seq)
    if source_plan is None:
        return []  # nothing was planned yet, so the stream lacks no record
    with situation.app.log(planned_pipeline(source_plan).source.connection) as log:
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
