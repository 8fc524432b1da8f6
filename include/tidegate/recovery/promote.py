"""Remedy `promote`: put another generation in charge of one whose last batches cannot be published."""

from __future__ import annotations

from uuid import uuid4

from tidegate.app import App, leased
from tidegate.generations import Approval, promote, rollback
from tidegate.generations.promotion import require_approval, require_ready
from tidegate.ledger import Stream
from tidegate.recovery.give_up import give_up_unsent
from tidegate.recovery.remedy import Proposal, Situation
from tidegate.recovery.unsent import first_unsent


class Promote:
    """Give up what the generation in charge cannot publish, and put another one in charge.

    The other one is that of `--generation`. If that one is in charge, it is the generation that was in charge
    before, or else the newest.
    """

    name = "promote"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if the generation in charge has a decided batch that cannot be published."""
        app, pipeline = situation.app, situation.stream.pipeline
        charge = situation.ledger.charge(pipeline)
        if charge.generation is None:
            return None
        replaced = Stream(pipeline, charge.generation)
        other = _other(situation, replaced, charge.previous)
        batch = first_unsent(app, situation.ledger, replaced)
        if other is None or batch is None or not (batch.failure or situation.is_chosen(self.name)):
            return None
        is_back = other.generation == charge.previous
        effects = (
            f"What {replaced} has decided is offered once more to its sinks.",
            "What they refuse is exported, and given up.",
            f"{other} is in charge from then on, and publishes what it has withheld.",
            *(("It goes on where it stopped, as after a rollback.",) if is_back else ()),
        )

        def put_in_charge() -> tuple[str, ...]:
            by, run_id = situation.options.by, f"recover__{uuid4().hex[:8]}"
            approval = Approval(by, replaced.generation) if by is not None else None
            # A rollback needs no approval: that generation was in charge before.
            if not is_back:
                require_approval(app, other, charge, approval)
            # Before anything is given up: no record may be lost for a promotion that is then refused.
            require_ready(app, app.ledger.head(other), app.ledger.head(replaced), may_be_behind=is_back)
            done = _give_up(app, replaced)
            if is_back:
                rollback(app, pipeline, run_id)
            else:
                promote(app, other, run_id, approval=approval)
            return (*done, f"{other} is in charge.")

        return Proposal(self.name, f"{replaced}: {batch.cause}", effects, put_in_charge, other)


def _give_up(app: App, replaced: Stream) -> list[str]:
    with leased(app, replaced, f"recover__{uuid4().hex[:8]}") as lease, app.clusters:
        done = give_up_unsent(app, lease)
        lease.release()
    return done


def _other(situation: Situation, replaced: Stream, previous: int | None) -> Stream | None:
    """Return the generation that would take charge; None if there is none."""
    if situation.stream != replaced:
        return situation.stream
    streams = [stream for stream in situation.ledger.streams() if stream.pipeline == replaced.pipeline]
    candidates = [stream for stream in streams if stream != replaced and situation.ledger.head(stream).seq]
    earlier = [stream for stream in candidates if stream.generation == previous]
    return next(iter(earlier or candidates[-1:]), None)
