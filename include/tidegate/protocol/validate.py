"""Step 3, validate: the quality gate, and what sinks will not take. Nothing is visible yet; a failure leaves
it so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.app.lease import leased_for, timed
from tidegate.app.root import App
from tidegate.errors import Halted, QualityFailed
from tidegate.failpoints import failpoint
from tidegate.ledger import Attempt, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.quality.audited import AuditedRows, audited_rows
from tidegate.spec import Pipeline, QualityCheck

if TYPE_CHECKING:
    from tidegate.quality import Verdict

log = logging.getLogger(__name__)
Report = Callable[["Verdict"], object]
Check = Callable[[Path, pa.Table, Path, str], "Verdict"]
"""See `quality.gate.check`."""


def validate_batch(
    app: App, plan: Plan, run_id: str, report: Report | None = None, check: Check | None = None
) -> str:
    """Check the outbox against the pipeline's suite. Returns what was found, in a sentence; `report` gets the
    verdict in detail, if there is one. `check`: where the suite is evaluated; None: in this process.

    Raises QualityFailed when the suite says stop, SinkRefused when a SQL sink could not hold an emission,
    TimestampRefused when a topic would not take one;
    the batch is then neither committed nor published.
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
    with leased_for(app.ledger, plan, run_id, "validate") as held, timed(held, plan.seq, "validate"):
        with failpoint("validate.sinks"), app.clusters:
            _check_sinks(app, plan, pipeline, attempt)
        with failpoint("validate.quality"):
            passed, stops, found = _check(app, plan, pipeline, attempt, report, check)
        held.set_metrics(plan.seq, "", {"quality.passed": float(passed)})
        if stops:
            raise QualityFailed(
                f"Batch {plan.seq} of {plan.stream} does not pass its quality suite: {found}",
                "Nothing was published. Correct the data or the suite and clear this task; or correct the "
                f"pipeline, then `tidegate doctor {plan.stream.pipeline} --drop-plan` and run again.",
            )
        if not passed:
            log.warning("Quality: %s (on_failure: warn, so the batch goes on)", found)
        held.set_validated(attempt, True)
    return found


def _check(
    app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt, report: Report | None, check: Check | None
) -> tuple[bool, bool, str]:
    """Whether all is well, whether it stops the batch, and what was found."""
    stops, texts, passed = False, [], True
    for number, quality in enumerate(pipeline.quality, start=1):
        with failpoint("validate.read"):
            values = _audited(app, plan, pipeline, quality, attempt).table()
        result = (check or _checked_here)(
            app.settings.expectations / f"{quality.suite}.json",
            values,
            app.settings.home / "data_docs" / pipeline.pipeline,
            f"{plan.stream.pipeline}-g{plan.stream.generation}-batch-{plan.seq}-{number}",
        )
        if report is not None:
            report(result)
        passed = passed and result.passed
        stops = stops or (quality.on_failure != "warn" and not result.passed)
        texts.append(result.summary)
    return passed, stops, "; ".join(texts) or "no quality suite is declared"


def _audited(app: App, plan: Plan, pipeline: Pipeline, check: QualityCheck, attempt: Attempt) -> AuditedRows:
    stage = pipeline.checked_stage(check)
    if check.of == "state":
        files = app.manifest(plan.stream, attempt.manifest).of("state", stage.name)
    else:
        files = app.outbox(plan, stage, attempt).files
    return audited_rows(pipeline, check, app.lake(plan.stream).store, files)


def _checked_here(suite_file: Path, values: pa.Table, docs: Path, run: str) -> Verdict:
    from tidegate.quality.gate import check  # late: Great Expectations takes seconds to import

    return check(suite_file, values, docs, run)


def _check_sinks(app: App, plan: Plan, pipeline: Pipeline, attempt: Attempt) -> None:
    for sink in app.sinks(plan.stream, pipeline):
        outbox = app.outbox(plan, sink.stage, attempt)
        if outbox.emitted:
            sink.check_outbox(outbox)
