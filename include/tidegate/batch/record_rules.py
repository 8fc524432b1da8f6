"""What became of the records of a computed batch, and whether more are unusable or late than is allowed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.errors import LateExceeded, Permanent, QuarantineExceeded
from tidegate.lake.quarantine_files import RowCondition, reason_codes, row_groups
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import REASON, SOURCE_COLUMNS, SOURCE_FIELDS
from tidegate.spec.quarantine_rules import LateRule, QuarantineRule

log = logging.getLogger(__name__)
Alert = Callable[[str], object]
"""A function that gets a sentence about a batch that passes a bound."""
QUARANTINE_ALERT = "quarantine.alert"
"""The metric: 1 where the batch is beyond `quarantine.alert`, else 0."""
LATE_ALERT = "late.alert"
"""The metric: 1 where the batch is beyond `late.alert`, else 0."""


@dataclass(frozen=True)
class _Excess:
    """Records that a rule of the pipeline file bounds: how many there are of those that came in."""

    rule: QuarantineRule | LateRule
    metric: str
    records: int
    came_in: int
    finding: str
    error: Permanent

    @property
    def stops(self) -> bool:
        return self.rule.stop is not None and self.rule.stop.passed_by(self.records, self.came_in)

    @property
    def alerts(self) -> bool:
        alert = self.rule.alert
        return self.stops or (alert is not None and alert.passed_by(self.records, self.came_in))


def apply_record_rules(
    app: App, lease: LeasedLedger, plan: Plan, attempt: Attempt, alert: Alert | None = None
) -> None:
    """Log what became of the batch's records. Warn of the batch, or stop it, if too many of them are in
    quarantine or late. Counts are of records, not of emissions. The ledger gets the quarantine's reasons.

    `alert` is called once for each bound: again in another try only where this one dies before the ledger has
    the metric.

    Raises QuarantineExceeded, LateExceeded, LakeDamaged, LakeUnavailable. A person has just looked at what a
    replay has, so that is not bounded.
    """
    reasons = _reasons(app, plan, attempt)
    if reasons:
        lease.set_metrics(plan.seq, "", {f"{REASON}{reason}": float(n) for reason, n in reasons.items()})
    why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    _log_records(plan, attempt, why)
    _log_columns(plan, attempt)
    if plan.replay is not None:
        return
    excesses = list(_bounded(plan, attempt, why))
    for excess in excesses:
        before = lease.metrics(plan.stream, plan.seq).get(("", excess.metric))
        if excess.alerts and alert is not None and not before:
            alert(excess.finding)
        lease.set_metrics(plan.seq, "", {excess.metric: float(excess.alerts)})
    for excess in excesses:
        if excess.stops:
            raise excess.error
        if excess.alerts:
            log.warning("%s, which is more than `%s` allows", excess.finding, excess.metric)


def _bounded(plan: Plan, attempt: Attempt, why: str) -> list[_Excess]:
    pipeline, counts = planned_pipeline(plan), attempt.stage_counts("")
    came_in = int(counts.get("read", 0) + counts.get("exploded", 0))
    of_batch = f"of {came_in} records of batch {plan.seq} of {plan.stream}"
    excesses = []
    if pipeline.quarantine is not None:
        quarantined = int(counts.get("quarantined", 0))
        finding = f"{quarantined} {of_batch} cannot be used: {why}"
        error: Permanent = QuarantineExceeded(
            f"{finding}, which is more than `quarantine.stop` allows",
            "Nothing was published. Correct the producer or the pipeline; or, to let it through, raise "
            "`quarantine.stop`.",
        )
        excesses.append(_Excess(pipeline.quarantine, QUARANTINE_ALERT, quarantined, came_in, finding, error))
    if pipeline.late is not None:
        late = int(counts.get("expired-window-record-drop", 0))
        finding = f"{late} {of_batch} are late, and were dropped"
        error = LateExceeded(
            f"{finding}, which is more than `late.stop` allows",
            "Nothing was published. Correct the producer's timestamps; or raise `grace` (or `keep`) and "
            "`generation`; or, to let it through, raise `late.stop`.",
        )
        excesses.append(_Excess(pipeline.late, LATE_ALERT, late, came_in, finding, error))
    return excesses


def _log_records(plan: Plan, attempt: Attempt, why: str) -> None:
    """A warning where nothing of what came in could be used, whatever the bounds are; else a note."""
    whole = attempt.stage_counts("")
    first = attempt.stage_counts(planned_pipeline(plan).stages[0].name)
    came_in, used = int(whole.get("read", 0) + whole.get("exploded", 0)), int(first.get("used", 0))
    quarantined, late = int(whole.get("quarantined", 0)), int(whole.get("expired-window-record-drop", 0))
    lost = f"{quarantined} in quarantine{f' ({why})' if why else ''}, {late} late"
    if came_in and not used and (quarantined or late):
        log.warning(
            "No record of batch %d of %s could be used: %d came in, %s. See that topics, columns, key and "
            "timestamp of the source are right",
            *(plan.seq, plan.stream, came_in, lost),
        )
    else:
        log.info("Batch %d of %s: %d records came in, %s", plan.seq, plan.stream, came_in, lost)


def _log_columns(plan: Plan, attempt: Attempt) -> None:
    """Log hints at a typo in `columns`, as a warning if a column has no value and another field exists, or no
    column has a value.
    """
    columns, fields = attempt.stage_counts(SOURCE_COLUMNS), attempt.stage_counts(SOURCE_FIELDS)
    missing = [name for name, records in columns.items() if not records]
    undeclared = [name for name in fields if name]
    if not missing and not undeclared:
        return
    is_suspicious = bool(missing) and (bool(undeclared) or len(missing) == len(columns))
    log.log(
        logging.WARNING if is_suspicious else logging.INFO,
        "Batch %d of %s: no record has a value of the declared columns: %s. Fields that are not declared, in "
        "%d sampled records: %s",
        *(plan.seq, plan.stream, ", ".join(missing) or "none", int(fields.get("", 0))),
        ", ".join(undeclared) or "none",
    )


def _reasons(app: App, plan: Plan, attempt: Attempt) -> Counter[str]:
    """Return the number of records in quarantine by reason."""
    store, counts = app.lake(plan.stream).store, Counter[str]()
    for file in app.manifest(plan.stream, attempt.manifest).files_of("quarantine"):
        for group in row_groups(store, file, RowCondition()):
            codes = reason_codes(group.read(["reason"])["reason"])
            counts.update({row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()})
    return counts
