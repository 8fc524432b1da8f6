"""Step 3, validate: refuse a batch before anything of it is visible.

First, emissions that a database refuses are moved to quarantine. Then three things can refuse the batch, in
this order: too many records in quarantine or late (`apply_record_rules`), a sink that would not take an
emission (`check_outboxes`), and a critical expectation of a quality suite (`_verdicts`). Then no offset has
moved, and the next try checks the same attempt again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import pyarrow.compute as pc

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.batch.outboxes import check_outboxes, without_refused
from tidegate.batch.suites import CheckedSuite, checked_suite, stage_facts, suite_parameters
from tidegate.batch_counts import (
    COLUMNS,
    FIELDS,
    KEPT_LATE,
    LATE,
    REFUSED_ROW,
    came_in,
    counts_of_stages,
    in_all_stages,
    in_quarantine,
)
from tidegate.errors import Halted, LateExceeded, Permanent, QualityFailed, QuarantineExceeded
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, LeasedLedger, Plan, QualityResult
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import REASON, source_counts
from tidegate.model.pipeline import Pipeline
from tidegate.model.quality import QualityCheck
from tidegate.model.quarantine_rules import LateRule, QuarantineRule
from tidegate.model.trusted import require_trusted_modules
from tidegate.numerals import counted
from tidegate.quality.audit import Audit, AuditedRows, PagePlace, audited_rows
from tidegate.quality.facts import needs_of
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import Verdict, page_place, verdict_table
from tidegate.storage.quarantine_files import RowBounds, reason_codes, row_groups

logger = logging.getLogger(__name__)
Report = Callable[[Verdict], object]
"""A function that gets the verdict of each check in detail."""
Check = Callable[[Audit], Verdict]
"""A function that evaluates a suite: see `quality.gate.check`."""
Alert = Callable[[str], object]
"""A function that gets a sentence about a batch that passes a bound."""
QUARANTINE_ALERT = "quarantine.alert"
"""The metric: 1 where the batch is beyond `quarantine.alert`, else 0."""
LATE_ALERT = "late.alert"
"""The metric: 1 where the batch is beyond `late.alert`, else 0."""


def validate_batch(
    app: App,
    plan: Plan,
    run_id: str,
    report: Report | None = None,
    check: Check | None = None,
    alert: Alert | None = None,
) -> str:
    """Check a computed batch, and return a sentence on the verdicts. A batch that has passed is not checked
    again.

    Args:
        app: the settings, ledger and lake.
        plan: the batch; it must be computed.
        run_id: the run that works on it.
        report: gets the verdict of each check.
        check: evaluates a suite; None: in this process.
        alert: gets a sentence if too many records are in quarantine, or late.

    Raises QuarantineExceeded or LateExceeded if too many records cannot be used or are late, QualityFailed if
    a critical expectation is not met, SinkRefused if a SQL sink could not hold an emission, TimestampRefused
    if a topic would not take one, SettingsInvalid if a suite is missing that is not pinned. The batch is then
    neither committed nor published.
    """
    attempt = app.ledger.attempt(plan.stream, plan.seq)
    if attempt is None:
        raise Halted(
            f"Batch {plan.seq} of {plan.stream} is not computed",
            "Clear `compute`, if that was only marked as a success; or trigger a new run, which goes on with "
            "the batch.",
        )
    if attempt.validated:
        return f"batch {plan.seq} has passed before"
    pipeline = planned_pipeline(plan)
    with leased_for(app, plan, run_id, "validate") as lease, timed(lease, plan.seq, "validate"):
        with failpoint("validate.sinks"), app.clusters:
            attempt = _without_refused(app, lease, plan, pipeline, attempt)
            apply_record_rules(app, lease, plan, attempt, alert)
            check_outboxes(app, plan, pipeline, attempt)
        with failpoint("validate.quality"):
            verdicts = _verdicts(app, lease, plan, pipeline, attempt, check)
        passed = all(verdict.passed for verdict in verdicts)
        lease.set_metrics(plan.seq, "", {"quality.passed": float(passed)})
        for verdict in verdicts:
            _tell(verdict, app.settings.data_docs)
            if report is not None:
                report(verdict)
        stopping = [verdict for verdict in verdicts if verdict.stops]
        if stopping:
            raise QualityFailed(
                f"Batch {plan.seq} of {plan.stream} does not pass its quality suite: "
                + "; ".join(_reason(verdict, app.settings.data_docs) for verdict in stopping),
                "Nothing was published. Correct the data or the suite and clear this task; or correct the "
                "pipeline.",
            )
        lease.set_validated(attempt, True)
    return "; ".join(verdict.summary for verdict in verdicts) or "no quality suite is declared"


def _without_refused(
    app: App, lease: LeasedLedger, plan: Plan, pipeline: Pipeline, attempt: Attempt
) -> Attempt:
    """Return the attempt without emissions that a sink refuses, as the ledger has it from now on."""
    remaining = without_refused(app, plan, pipeline, attempt)
    if remaining is not attempt:
        lease.replace_files(remaining)
    for stage, counts in remaining.counts.items():
        if REFUSED_ROW in counts:
            lease.set_metrics(plan.seq, stage, {REFUSED_ROW: counts[REFUSED_ROW]})
    return remaining


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


def _verdicts(
    app: App, lease: LeasedLedger, plan: Plan, pipeline: Pipeline, attempt: Attempt, check: Check | None
) -> list[Verdict]:
    """Return the verdict of each check. All verdicts are stored in one transaction, also failed ones."""
    # A check imports these modules, which runs their code: so the settings have to allow them first.
    require_trusted_modules(module for check in pipeline.checks for module in check.modules)
    verdicts, results = [], []
    for prepared in prepared_checks(app, plan, pipeline, attempt):
        verdict = (check or _checked_here)(prepared.audit)
        verdicts.append(verdict)
        results += prepared.results(verdict, attempt)
    if results:
        lease.add_quality(plan.seq, results)
    return verdicts


def _checked_here(audit: Audit) -> Verdict:
    from tidegate.quality.gate import check  # late: Great Expectations takes seconds to import

    return check(audit)


@dataclass(frozen=True)
class PreparedCheck:
    """A check, ready to be evaluated. `number` is its place among the pipeline's checks, from 1 on."""

    number: int
    check: QualityCheck
    target: str
    suite: CheckedSuite
    audit: Audit
    try_number: int

    def results(self, verdict: Verdict, attempt: Attempt) -> list[QualityResult]:
        """Return the rows of the ledger for a verdict: one for each expectation."""
        return [
            QualityResult(
                attempt=attempt.name,
                try_number=self.try_number,
                check_number=self.number,
                expectation=result.number,
                suite=self.check.suite,
                suite_digest=self.suite.digest,
                target=self.target,
                type=result.type,
                column_names=result.columns,
                severity=result.severity.value,
                passed=result.passed,
                observed=result.observed,
                evaluated_rows=result.rows,
                unexpected_rows=result.unexpected,
                unexpected_share=result.share,
                failing=result.failing,
                error=result.error,
                note=result.note,
                page=verdict.page,
            )
            for result in verdict.expectations
        ]


def prepared_checks(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> Iterator[PreparedCheck]:
    """Yield the checks in their order, ready to be evaluated. Raises SettingsInvalid, LakeDamaged,
    LakeUnavailable.
    """
    earlier = app.ledger.quality(plan.stream, plan.seq) if pipeline.checks else []
    # Verdicts of earlier tries stay in the ledger, and each try has its own page.
    try_number = max((result.try_number for result in earlier), default=0) + 1
    for number, check in enumerate(pipeline.checks, start=1):
        suite = checked_suite(check, app.settings.expectations, earlier)
        stage = pipeline.checked_stage(check)
        parameters = suite_parameters(app, plan, attempt, stage.name, suite.suite)
        place = PagePlace(
            app.settings.data_docs,
            plan.stream.pipeline,
            plan.stream.generation,
            datetime.fromtimestamp(plan.clock_ms / 1000, timezone.utc).date(),
            plan.seq,
            number,
            try_number,
        )
        rows = audited(app, plan, pipeline, check, attempt)
        needs = needs_of(map(asdict, suite.suite.expectations))
        facts = stage_facts(app, plan, attempt, pipeline, stage, needs)
        target = target_of(pipeline, check)
        title = f"{check.suite} on {target}"
        audit = Audit(title, suite.suite, rows, parameters, check.modules, facts, place)
        yield PreparedCheck(number, check, target, suite, audit, try_number)


def target_of(pipeline: Pipeline, check: QualityCheck) -> str:
    """Return the name of the data that a check evaluates.

    Example: `the emissions of latest`, or `the state of the sink table`.
    """
    if check.sink is not None:
        return f"the {check.rows} of the sink {check.sink}"
    return f"the {check.rows} of {pipeline.checked_stage(check).name}"


def audited(app: App, plan: Plan, pipeline: Pipeline, check: QualityCheck, attempt: Attempt) -> AuditedRows:
    """Return the rows that a check evaluates. Raises LakeDamaged, LakeUnavailable."""
    stage = pipeline.checked_stage(check)
    if check.rows == "state":
        files = app.manifest(plan.stream, attempt.manifest).files_of("state", stage.name)
    else:
        files = app.outbox(plan, stage, attempt).files
    with failpoint("validate.read"):
        return audited_rows(pipeline, check, app.lake(plan.stream).store, files)


def _tell(verdict: Verdict, docs: str) -> None:
    """Log a table for people; louder where something is not as it should be."""
    level = logging.INFO if verdict.passed else logging.WARNING
    logger.log(level, "%s", verdict_table(verdict, docs))


def _reason(verdict: Verdict, docs: str) -> str:
    """Return why a verdict stops a batch, and where to look."""
    findings = "; ".join(f"{result.title}: {result.finding}" for result in verdict.failed(Severity.CRITICAL))
    where = f" (see {page_place(docs, verdict.page)})" if verdict.page is not None else ""
    return f"{verdict.title}: {findings}{where}"
