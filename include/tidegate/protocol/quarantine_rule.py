"""Whether a computed batch has put more into quarantine than its pipeline bears with."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.errors import QuarantineExceeded
from tidegate.lake.quarantine import RowCondition, reason_codes, row_groups
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline

log = logging.getLogger(__name__)
Alert = Callable[[str], object]
"""What is told of a batch that has put too much into quarantine, in a sentence."""
ALERT = "quarantine.alert"
"""The metric: 1 where the batch is beyond `quarantine.alert`, else 0."""


def apply_quarantine_rule(
    app: App, lease: LeasedLedger, plan: Plan, attempt: Attempt, alert: Alert | None = None
) -> None:
    """Warn of a batch, or stop it, that puts too much into quarantine. Counts are of records, not emissions.

    `alert` is called once for the batch: again in another try only where this one dies before the ledger has
    the metric.

    Raises QuarantineExceeded, LakeDamaged, LakeUnavailable. A person has just looked at what a replay has:
    its unusable rest is told by the command.
    """
    rule = planned_pipeline(plan).quarantine
    if rule is None or plan.replay is not None:
        return
    counts = attempt.stage_counts("")
    quarantined = int(counts.get("quarantined", 0))
    came_in = int(counts.get("read", 0) + counts.get("exploded", 0))
    stops = rule.stop is not None and rule.stop.passed_by(quarantined, came_in)
    alerts = stops or (rule.alert is not None and rule.alert.passed_by(quarantined, came_in))
    found = f"{quarantined} of {came_in} records of batch {plan.seq} of {plan.stream} cannot be used"
    why = _reasons(app, plan, attempt) if alerts else ""
    if alerts and alert is not None and not lease.metrics(plan.stream, plan.seq).get(("", ALERT)):
        alert(f"{found}: {why}")
    lease.set_metrics(plan.seq, "", {ALERT: float(alerts)})
    if not alerts:
        return
    if stops:
        raise QuarantineExceeded(
            f"{found}, which is more than `quarantine.stop` allows: {why}",
            "Nothing was published. Correct the producer or the pipeline; or, to let it through, raise "
            "`quarantine.stop`.",
        )
    log.warning(
        "Quarantine: %s: %s. `tidegate quarantine list %s --batch %d` has them once the batch is committed",
        *(found, why, plan.stream.pipeline, plan.seq),
    )


def _reasons(app: App, plan: Plan, attempt: Attempt) -> str:
    """How many there are of each reason, the most frequent first."""
    store, counts = app.lake(plan.stream).store, Counter[str]()
    for file in app.manifest(plan.stream, attempt.manifest).of("quarantine"):
        for group in row_groups(store, file, RowCondition()):
            codes = reason_codes(group.read(["reason"])["reason"])
            counts.update({row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()})
    return ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
