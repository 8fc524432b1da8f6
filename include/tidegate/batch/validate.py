"""Step 3, validate: the quality gate, and what sinks will not take. Nothing is visible yet; a failure leaves
it so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.batch.checks import prepared_checks
from tidegate.batch.record_rules import Alert, apply_record_rules
from tidegate.errors import Halted, QualityFailed
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.quality.audit import Audit
from tidegate.quality.suite import Severity
from tidegate.quality.table import page_place, verdict_table
from tidegate.quality.verdict import Verdict
from tidegate.spec import Pipeline, require_trusted_modules

log = logging.getLogger(__name__)
Report = Callable[[Verdict], object]
Check = Callable[[Audit], Verdict]
"""See `quality.gate.check`."""


def validate_batch(
    app: App,
    plan: Plan,
    run_id: str,
    report: Report | None = None,
    check: Check | None = None,
    alert: Alert | None = None,
) -> str:
    """Evaluate the pipeline's checks on the batch. Returns a sentence on the verdicts; `report` gets each
    verdict in detail, and `alert` a sentence on a batch with too much in quarantine, or late. `check`
    evaluates a suite; None: in this process.

    Raises QuarantineExceeded or LateExceeded where too much cannot be used or is late, QualityFailed when a
    critical expectation is not met, SinkRefused when a SQL sink could not hold an emission, TimestampRefused
    when a topic would not take one, SettingsInvalid where a suite is missing that is not pinned; the batch is
    then neither committed nor published.
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
        apply_record_rules(app, lease, plan, attempt, alert)
        with failpoint("validate.sinks"), app.clusters:
            _check_sinks(app, plan, pipeline, attempt)
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


def _verdicts(
    app: App, lease: LeasedLedger, plan: Plan, pipeline: Pipeline, attempt: Attempt, check: Check | None
) -> list[Verdict]:
    """Return the verdict of each check. All verdicts are stored in one transaction, also failed ones."""
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


def _tell(verdict: Verdict, docs: str) -> None:
    """A table for people, in the log; louder where something is not as it should be."""
    level = logging.INFO if verdict.passed else logging.WARNING
    log.log(level, "%s", verdict_table(verdict, docs))


def _reason(verdict: Verdict, docs: str) -> str:
    """Return why a verdict stops a batch, and where to look."""
    findings = "; ".join(f"{result.title}: {result.finding}" for result in verdict.failed(Severity.CRITICAL))
    where = f" (see {page_place(docs, verdict.page)})" if verdict.page is not None else ""
    return f"{verdict.title}: {findings}{where}"


def _check_sinks(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> None:
    for sink in app.sinks(plan.stream, pipeline):
        outbox = sink.outbox(plan, attempt)
        if outbox.emitted:
            sink.check_outbox(outbox)
