"""Remedy `drop-plan`: drop the plan of a batch that fails in every retry."""

from __future__ import annotations

from tidegate.recovery.remedy import Proposal, Situation


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
