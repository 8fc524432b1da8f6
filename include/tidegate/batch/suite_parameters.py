"""What a suite can take by `$PARAMETER`: batch, clock, counts, and those of the batches before."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from tidegate import core
from tidegate.app.root import App
from tidegate.ledger import Attempt, Plan

MOST_BATCHES = 20
"""How many batches before it a batch is compared with."""

COUNTS = {
    "read": "records that were read",
    "used": "records that were used",
    "quarantined": "records in quarantine",
    "deduplicated": "records that were dropped as repetitions",
    "late": "records that came too late for their window",
    "emitted": "emissions of the stage that is looked at, deletions included",
}
"""What is counted of a batch, and what each counts."""


def suite_parameters(app: App, plan: Plan, attempt: Attempt, stages: tuple[str, str]) -> dict[str, float]:
    """Name -> value. `stages`: the first one, which reads, and the one that is looked at.

    Of the batches before: `previous_read` of the last one, `mean_read`, `min_read` and `max_read` of at most
    20. Before there is any they are not there.
    """
    values: dict[str, float] = {"batch": plan.seq, "clock": plan.clock_ms}
    values |= _counts(attempt, stages)
    before = [
        _counts(facts.attempt, stages)
        for facts in app.ledger.batches(plan.stream, plan.seq, MOST_BATCHES)
        if facts.attempt is not None
    ]
    for name in COUNTS if before else ():
        numbers = [counts[name] for counts in before]
        values |= {
            f"previous_{name}": numbers[0],
            f"mean_{name}": fmean(numbers),
            f"min_{name}": min(numbers),
            f"max_{name}": max(numbers),
        }
    return values


def _counts(attempt: Attempt, stages: tuple[str, str]) -> Mapping[str, float]:
    whole, (reading, audited) = attempt.stage_counts(""), map(attempt.stage_counts, stages)
    return {
        "read": whole.get("read", 0),
        "used": reading.get("used", 0),
        "quarantined": reading.get("quarantined", 0),
        "deduplicated": reading.get("deduplicated", 0),
        "late": reading.get("late-record-drop", 0),
        "emitted": core.outgoing(audited),
    }
