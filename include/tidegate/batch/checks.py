"""A pipeline's checks of a computed batch: what each is evaluated on, and what its verdict is kept as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from tidegate.app.root import App
from tidegate.app.stage_facts import stage_facts
from tidegate.batch.suite_parameters import suite_parameters
from tidegate.batch.suites import CheckedSuite, checked_suite
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, Plan, QualityResult
from tidegate.quality.audit import Audit, PagePlace
from tidegate.quality.audited import AuditedRows, audited_rows
from tidegate.quality.builtin import needs_of
from tidegate.quality.verdict import Verdict
from tidegate.spec import Pipeline, QualityCheck


@dataclass(frozen=True)
class PreparedCheck:
    """A check, ready to be evaluated. `number`: its place among the pipeline's, from 1 on."""

    number: int
    check: QualityCheck
    target: str
    suite: CheckedSuite
    audit: Audit
    try_number: int

    def results(self, verdict: Verdict, attempt: Attempt) -> list[QualityResult]:
        """The verdict, as the ledger keeps it."""
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
    try_number = max((result.try_number for result in earlier), default=0) + 1
    for number, check in enumerate(pipeline.checks, start=1):
        yield _prepared(app, plan, pipeline, attempt, (number, check), earlier, try_number)


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


def _prepared(
    app: App,
    plan: Plan,
    pipeline: Pipeline,
    attempt: Attempt,
    numbered: tuple[int, QualityCheck],
    earlier: Sequence[QualityResult],
    try_number: int,
) -> PreparedCheck:
    number, check = numbered
    suite = checked_suite(check, app.settings.expectations, earlier)
    target = target_of(pipeline, check)
    parameters = {}
    if any(spec.parameters for spec in suite.suite.expectations):
        stages = pipeline.stages[0].name, pipeline.checked_stage(check).name
        parameters = suite_parameters(app, plan, attempt, stages)
    place = PagePlace(
        app.settings.data_docs,
        plan.stream.pipeline,
        plan.stream.generation,
        datetime.fromtimestamp(plan.clock_ms / 1000, timezone.utc).date(),
        plan.seq,
        number,
        try_number,
    )
    rows, facts = audited(app, plan, pipeline, check, attempt), None
    needs = needs_of(asdict(spec) for spec in suite.suite.expectations)
    if needs.is_any:
        facts = stage_facts(app, plan, attempt, pipeline, pipeline.checked_stage(check), needs)
    title = f"{check.suite} on {target}"
    audit = Audit(title, suite.suite, rows, parameters, check.modules, facts, place)
    return PreparedCheck(number, check, target, suite, audit, try_number)
