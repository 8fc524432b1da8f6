"""Run a batch that a user starts by hand, and put its report into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate import inspect
from tidegate.app import App, stream_of
from tidegate.batch import Outcome, ReplayRequest, Trigger, run_batch, withheld_note
from tidegate.cli.master import own_session
from tidegate.cli.options import RunOptions, epoch_ms
from tidegate.cli.output import say, steps_shown
from tidegate.clock import current_ms
from tidegate.ledger.report import STEPS
from tidegate.model.pipeline import Pipeline
from tidegate.quality.beside import CheckBeside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark.driver import DriverJvm


@dataclass(frozen=True)
class FinishedRun:
    """The result of a run by hand.

    Args:
        outcome: The batch that it worked on, or why there was nothing to do.
        report: The batch's report; None if there was nothing to do.
        withheld: A sentence if what the batch emitted does not go out; "" if it does.
    """

    outcome: Outcome
    report: inspect.BatchReport | None
    withheld: str

    @property
    def sentence(self) -> str:
        """The note of the outcome, as the beginning of a sentence."""
        note = self.outcome.note
        return f"{note[0].upper()}{note[1:]}"

    def as_object(self) -> dict[str, Any]:
        """Return the run as JSON: a note, and the batch; `"batch": null` if there is none."""
        note = {"note": self.outcome.note}
        if self.report is None:
            return note | {"batch": None}
        return note | {"withheld": bool(self.withheld)} | report_object(self.report)

    def say_withheld(self) -> None:
        """Print that what the batch emitted does not go out, if so."""
        if self.withheld:
            say(self.withheld)


def run_trigger(
    app: App,
    pipeline: Pipeline,
    trigger: Trigger,
    quality: CheckBeside,
    jvm: DriverJvm | None = None,
    quiet: bool = False,
) -> FinishedRun:
    """Run one batch.

    Args:
        quality: Started only if the pipeline has checks, when the Spark session is opened.
        jvm: The JVM of a Spark that the command starts for itself; None: a new one.
        quiet: Show no progress.
    """
    with steps_shown(quiet=quiet) as progress, own_session(app, stream_of(pipeline), jvm) as spark:

        def open_session(records: int) -> SparkSession:
            if pipeline.quality:
                # Beside a JVM that starts, the check is not what the batch waits for.
                quality.start(yields=spark.starts_here)
            return spark.open(records)

        outcome = run_batch(app, pipeline, trigger, open_session, progress, spark.end, quality.check)
    if (plan := outcome.plan) is None:
        return FinishedRun(outcome, None, "")
    withheld = withheld_note(app.ledger, plan)
    return FinishedRun(outcome, inspect.batch_report(app.ledger, plan.stream, plan.seq), withheld)


def report_object(report: inspect.BatchReport) -> dict[str, Any]:
    """Return a batch's report for programs: counts by metric name, seconds by step, records by sink."""
    return {
        "batch": report.plan.seq,
        "came_in": report.came_in,
        "fates": report.fates,
        "sources": report.sources,
        "quarantined": report.quarantined,
        "quarantine_reasons": report.reasons,
        "columns": report.columns,
        "undeclared_fields": {"sampled": report.sampled, "records": report.fields},
        "counts": report.counts,
        "stages": report.stages,
        "seconds": report.seconds,
        "published": report.published,
        "ranges": [vars(range_) for range_ in report.plan.ranges],
    }


_FATES = {
    "used": "used",
    "removed": "removed by filter",
    "quarantined": "quarantined",
    "deduplicated": "deduplicated",
    "expired-window-record-drop": "late, and dropped",
    "nothing-to-explode": "without an element to explode",
    "tombstones-ignored": "tombstones that repeat",
}
"""Labels of `BatchReport.fates` for people. The fates add up to the records that came in."""


def _fates(report: inspect.BatchReport) -> dict[str, float]:
    """Return the number of records that came in, and of each fate; rare fates only if they occurred."""
    rows: dict[str, float] = {"records read": report.counts.get("read", 0)}
    if report.counts.get("exploded"):
        rows["more by explode"] = report.counts["exploded"]
    for fate, number in report.fates.items():
        if number or fate in ("used", "quarantined", "deduplicated", "expired-window-record-drop"):
            rows[_FATES[fate]] = number
        if fate == "used" and report.counts.get("tombstones"):
            rows["of these, tombstones"] = report.counts["tombstones"]
        if fate == "expired-window-record-drop" and report.counts.get("late-quarantined"):
            rows["of these, in quarantine"] = report.counts["late-quarantined"]
        if fate == "expired-window-record-drop" and report.counts.get("late-emitted"):
            rows["of these, emitted"] = report.counts["late-emitted"]
    return rows


def _source_rows(report: inspect.BatchReport) -> list[dict[str, Any]]:
    """Return rows that hint at a typo in `columns`."""
    rows = [{"": "column without a value", "value": name} for name in report.columns_without_value]
    for name, records in report.fields.items():
        rows.append({"": "field not declared", "value": f"{name} ({records} of {report.sampled} sampled)"})
    return rows


def report_rows(report: inspect.BatchReport) -> list[dict[str, Any]]:
    """Return a batch's report as rows of a table: the fates of the records, then the seconds per step."""
    counts = report.counts
    names = _fates(report) | {
        "suppressed as unchanged": counts.get("idempotent-update-skip", 0),
        "filtered by where": counts.get("filtered", 0),
        "emitted": counts.get("emitted", 0),
    }
    if report.late_in_stages > report.late:
        names["late in later stages"] = report.late_in_stages - report.late
    if report.reasons:
        names["put into quarantine, by all stages"] = report.quarantined
        names |= {f"of these, {reason}": number for reason, number in report.reasons.items()}
    rows: list[dict[str, Any]] = [{"": name, "value": f"{value:.0f}"} for name, value in names.items()]
    rows += [{"": f"read from {name}", "value": str(fates["read"])} for name, fates in report.sources.items()]
    rows += _source_rows(report)
    if len(report.stages) > 1:
        emitted = {stage: counts.get("emitted", 0) for stage, counts in report.stages.items()}
        rows += [{"": f"emitted by {stage}", "value": f"{n:.0f}"} for stage, n in emitted.items()]
    rows += [{"": f"published to {sink}", "value": str(n)} for sink, n in report.published.items()]
    rows += [
        {"": f"{r.topic}[{r.partition}] offsets", "value": f"{r.start}-{r.end}"} for r in report.plan.ranges
    ]
    seconds = {step: report.seconds[step] for step in STEPS if step in report.seconds}
    return rows + [{"": f"seconds, {step}", "value": f"{duration:.2f}"} for step, duration in seconds.items()]


def trigger_now(
    run_id: str, options: RunOptions, drain: bool = False, replay: ReplayRequest | None = None
) -> Trigger:
    """Return the trigger of a batch that a user starts by hand.

    Args:
        run_id: The id of the run in the ledger.
        drain: Read nothing, and emit what is held back.
        replay: The quarantined records to read instead of the source.
    """
    # The user is the trigger: "now" is resolved here, once, and stored in the plan.
    now_ms = current_ms()
    until_ms = epoch_ms(options.until) if options.until else None
    # As in the DAG: records after --until are left to the next batch, and must not be late for it.
    default_ms = now_ms if until_ms is None else min(until_ms, now_ms)
    return Trigger(
        run_id,
        epoch_ms(options.clock) if options.clock else default_ms,
        until_ms,
        now_ms,
        drain,
        replay=replay,
        any_clock=options.force,
        from_start=options.from_start,
    )
