"""The rules for records in quarantine and for late ones: a batch with too many is reported, or refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.batch_counts import (
    COLUMNS,
    FIELDS,
    KEPT_LATE,
    LATE,
    came_in,
    counts_of_stages,
    in_all_stages,
    in_quarantine,
)
from tidegate.errors import LateExceeded, Permanent, QuarantineExceeded
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import REASON, source_counts
from tidegate.model.quarantine_rules import LateRule, QuarantineRule
from tidegate.numerals import counted
from tidegate.storage.quarantine_files import RowBounds, reason_codes, row_groups

logger = logging.getLogger(__name__)
Alert = Callable[[str], object]
"""A function that gets a sentence about a batch that passes a bound."""
QUARANTINE_ALERT = "quarantine.alert"
"""The metric: 1 where the batch is beyond `quarantine.alert`, else 0."""
LATE_ALERT = "late.alert"
"""The metric: 1 where the batch is beyond `late.alert`, else 0."""


@dataclass(frozen=True)
class _Excess:
    """The records that a rule of the pipeline file bounds, of all that came in."""

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
    """Log the fates of the batch's records, and warn of the batch, or stop it, if too many are in quarantine
    or late.

    Records are counted, and emissions that a sink would refuse. The ledger gets the reasons of quarantine.
    `alert` is called once for each bound: another try calls it again only if this one dies before the ledger
    has the metric.

    Raises QuarantineExceeded, LateExceeded, LakeDamaged, LakeUnavailable.
    """
    reasons = _reasons(app, plan, attempt)
    if reasons:
        lease.set_metrics(plan.seq, "", {f"{REASON}{reason}": float(n) for reason, n in reasons.items()})
    why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    _log_records(plan, attempt, why)
    _log_columns(plan, attempt)
    if plan.replay is not None:
        return  # a person has just looked at these records
    excesses = list(_bounded(plan, attempt, why))
    # Record and alert each bound before one of them stops the batch.
    for excess in excesses:
        before = lease.metrics(plan.stream, plan.seq).get(("", excess.metric))
        if excess.alerts and alert is not None and not before:
            alert(excess.finding)
        lease.set_metrics(plan.seq, "", {excess.metric: float(excess.alerts)})
    for excess in excesses:
        if excess.stops:
            raise excess.error
        if excess.alerts:
            logger.warning("%s, which is more than `%s` allows", excess.finding, excess.metric)


def _reasons(app: App, plan: Plan, attempt: Attempt) -> Counter[str]:
    """Return the number of records in quarantine by reason."""
    store, counts = app.lake(plan.stream).store, Counter[str]()
    for file in app.manifest(plan.stream, attempt.manifest).files_of("quarantine"):
        # A row group at a time, and only its reasons: quarantine may be larger than memory.
        for group in row_groups(store, file, RowBounds()):
            codes = reason_codes(group.read(["reason"])["reason"])
            counts.update({row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()})
    return counts


def _bounded(plan: Plan, attempt: Attempt, why: str) -> list[_Excess]:
    """Return the records that the pipeline's rules bound. `why` has the reasons of quarantine, counted."""
    pipeline, records = planned_pipeline(plan), came_in(attempt.stage_counts(""))
    batch = f"Batch {plan.seq} of {plan.stream} got {counted(records, 'record')}"
    excesses = []
    if pipeline.quarantine is not None:
        quarantined = in_quarantine(attempt.counts)
        finding = f"{batch} and put {quarantined} into quarantine: {why}"
        error: Permanent = QuarantineExceeded(
            f"{finding}, which is more than `quarantine.stop` allows",
            "Nothing was published. Correct the producer or the pipeline; or, to let it through, raise "
            "`quarantine.stop`.",
        )
        excesses.append(_Excess(pipeline.quarantine, QUARANTINE_ALERT, quarantined, records, finding, error))
    if pipeline.late is not None:
        late = in_all_stages(attempt.counts, LATE)
        is_dropped = late > in_all_stages(attempt.counts, *KEPT_LATE)
        finding = f"{batch}, and {late} were late{' and dropped' if is_dropped else ''}"
        error = LateExceeded(
            f"{finding}, which is more than `late.stop` allows",
            "Nothing was published. Correct the producer's timestamps; or raise `grace` (or `keep`) and "
            "`generation`; or, to let it through, raise `late.stop`.",
        )
        excesses.append(_Excess(pipeline.late, LATE_ALERT, late, records, finding, error))
    return excesses


def _log_records(plan: Plan, attempt: Attempt, why: str) -> None:
    """Log the counts: as a warning if no record could be used, whatever the bounds are."""
    whole = attempt.stage_counts("")
    records = came_in(whole)
    late = in_all_stages(attempt.counts, LATE)
    lost = f"{in_quarantine(attempt.counts)} in quarantine{f' ({why})' if why else ''}, {late} late"
    if records and _uses_nothing(whole):
        logger.warning(
            "No record of batch %d of %s could be used: %d came in, %s. See that topics, columns, key and "
            "timestamp of the source are right",
            *(plan.seq, plan.stream, records, lost),
        )
        return
    logger.info("Batch %d of %s: %d records came in, %s", plan.seq, plan.stream, records, lost)
    for stage, counts in counts_of_stages(attempt.counts).items():
        if _uses_nothing(counts):
            logger.warning(
                "The stage %s could use nothing of batch %d of %s: %s. See that its key and window are right",
                *(stage, plan.seq, plan.stream, lost),
            )


def _uses_nothing(counts: Mapping[str, float]) -> bool:
    return not counts.get("used") and bool(counts.get("quarantined") or counts.get(LATE))


def _log_columns(plan: Plan, attempt: Attempt) -> None:
    """Log hints at a typo in `columns`, as a warning if a column has no value and another field exists, or no
    column has a value.
    """
    fields = source_counts(attempt, FIELDS)
    for source, columns in source_counts(attempt, COLUMNS).items():
        _log_columns_of_source(plan, source, columns, fields.get(source, {}))


def _log_columns_of_source(
    plan: Plan, source: str, columns: Mapping[str, float], fields: Mapping[str, float]
) -> None:
    missing = [name for name, records in columns.items() if not records]
    undeclared = [name for name in fields if name]
    if not missing and not undeclared:
        return
    is_suspicious = bool(missing) and (bool(undeclared) or len(missing) == len(columns))
    logger.log(
        logging.WARNING if is_suspicious else logging.INFO,
        "Batch %d of %s: no record of `%s` has a value of the declared columns: %s. Fields that are not "
        "declared, in %d sampled records: %s",
        *(plan.seq, plan.stream, source, ", ".join(missing) or "none", int(fields.get("", 0))),
        ", ".join(undeclared) or "none",
    )
