"""Step 3, validate: refuse a batch before anything of it is visible.

First, emissions that a database refuses are moved to quarantine. Then three things can refuse the batch, in
this order: too many records in quarantine or late (`apply_record_rules`), a sink that would not take an
emission (`check_outboxes`), and a critical expectation of a quality suite (`_verdicts`). Then no offset has
moved, and the next try checks the same attempt again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.batch.outboxes import check_outboxes, without_refused
from tidegate.batch.record_rules import Alert, apply_record_rules
from tidegate.batch.suites import CheckedSuite, checked_suite, stage_facts, suite_parameters
from tidegate.batch_counts import REFUSED_ROW
from tidegate.errors import Halted, QualityFailed
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, LeasedLedger, Plan, QualityResult
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.quality import QualityCheck
from tidegate.model.trusted import require_trusted_modules
from tidegate.quality.audit import Audit, AuditedRows, PagePlace, audited_rows
from tidegate.quality.facts import needs_of
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import Verdict, page_place, verdict_table

logger = logging.getLogger(__name__)
Report = Callable[[Verdict], object]
"""A function that gets the verdict of each check in detail."""
Check = Callable[[Audit], Verdict]
"""A function that evaluates a suite: see `quality.gate.check`."""


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
