"""Remedy `drop-plan`: forget a planned batch that no retry gets through."""

from __future__ import annotations

from tidegate.recovery.remedy import Proposal
from tidegate.recovery.situation import Situation


class DropPlan:
    """Forget the batch that is planned and not decided, so that the next run plans it anew."""

    name = "drop-plan"

    def propose(self, situation: Situation) -> Proposal | None:
        """Where the planned batch has failed; where it is chosen, for any planned batch."""
        plan = situation.open_plan
        if plan is None:
            return None
        start = f"batch {plan.seq} "
        causes = [cause.text for cause in situation.causes if cause.what.startswith(start)]
        if not causes and not situation.is_chosen(self.name):
            return None
        cause = causes[0] if causes else f"batch {plan.seq} is planned, and no step of it has failed"
        effects = (
            f"Batch {plan.seq} of {situation.stream} is forgotten, with what was computed of it.",
            "The next run plans it anew, with the pipeline file, lookups and offsets as they are then.",
        )
        return Proposal(self.name, f"{cause[:1].upper()}{cause[1:]}", effects, lambda: drop_plan(situation))


def drop_plan(situation: Situation) -> tuple[str, ...]:
    """Forget the planned batch, and say so."""
    with situation.leased() as lease:
        seq = lease.drop_plan()
    return (f"Batch {seq} is forgotten; the next run plans it anew." if seq else "No batch is planned.",)
