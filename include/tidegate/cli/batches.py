"""The commands `plan`, `run` and `drain`."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate import inspect
from tidegate.app import App, stream_of
from tidegate.batch import (
    Outcome,
    ReplayRequest,
    Trigger,
    draft,
    old_record_warnings,
    run_batch,
    stalled_transactions,
)
from tidegate.cli.options import RunOptions, epoch_ms
from tidegate.cli.show import err, out, show, steps_shown
from tidegate.inspect.estimate import MEASURED_ROWS, StateEstimate, estimate_state
from tidegate.ledger.report import STEPS
from tidegate.quality import CheckBeside
from tidegate.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(pipeline: str, options: RunOptions, estimate: bool, as_json: bool) -> None:
    """Show what the next batch of PIPELINE would read. Writes nothing.

    Args:
        estimate: Also estimate the size of the state after the batch.

    Raises SettingsInvalid, PipelineInvalid, and each error that would halt the batch when it is planned.
    """
    app = App.for_reading()
    loaded = app.pipeline(pipeline)
    head = app.ledger.head(stream_of(loaded))
    waiting = app.ledger.open_plan(head.stream)
    next_plan = waiting or draft(app, loaded, head, trigger_now("dry run", options))
    rows = [
        {
            "topic": range_.topic,
            "partition": range_.partition,
            "from": range_.start,
            "to": range_.end,
            "offsets": range_.span,
        }
        for range_ in next_plan.ranges
    ]
    states = estimate_state(app, loaded, next_plan) if estimate else []
    if estimate and as_json:
        print(json.dumps({"ranges": rows, "state": [vars(estimate_) for estimate_ in states]}))
        return
    what = f"Batch {head.seq + 1} of {head.stream} would read {next_plan.span} offsets"
    if waiting:
        what = f"Batch {waiting.seq} of {head.stream} is planned already, by {waiting.run_id}, and goes first"
    show(rows, as_json, what)
    old = old_record_warnings(app, head.stream, loaded, next_plan.ranges, next_plan.clock_ms)
    for warning in (*stalled_transactions(app, loaded), *old):
        err.print(warning, style="yellow", markup=False, highlight=False)
    if estimate:
        out.print()
        show([_estimate_row(state) for state in states], False, "State, now and at most after this batch")


def _estimate_row(state: StateEstimate) -> dict[str, Any]:
    how = "measured" if state.measured else f"a default: fewer than {MEASURED_ROWS:,} rows to measure"
    return {
        "stage": state.stage,
        "rows": f"{state.rows:,}",
        "on disk, MB": f"{state.bytes / 1e6:,.1f}",
        "bytes per row": f"{state.bytes_per_row:,.1f}",
        "": how,
        "rows at most": f"{state.rows_at_most:,}",
        "on disk at most, MB": f"{state.bytes_at_most / 1e6:,.1f}",
    }


def run(pipeline: str, options: RunOptions, as_json: bool, quality: CheckBeside) -> None:
    """Run one batch of PIPELINE, all five steps, without Airflow.

    Args:
        quality: The process that evaluates the suites; the caller can start it early.

    Raises what the steps raise, such as LeaseHeld if another run works on the stream.
    """
    app = App.from_environment()
    loaded = app.pipeline(pipeline)
    trigger = trigger_now(options.run_id or f"cli__{uuid4().hex[:12]}", options)
    outcome, report = run_trigger(app, loaded, trigger, quality, quiet=as_json)
    if as_json:
        print(json.dumps({"note": outcome.note} | (report_object(report) if report else {"batch": None})))
    elif report is None:
        out.print(outcome.note)
    else:
        show(report_rows(report), False, f"Batch {report.plan.seq} of {report.plan.stream}")


def drain(pipeline: str, clock: datetime | None, force: bool, as_json: bool) -> None:
    """Emit everything that the stages of PIPELINE hold back, in a batch that reads nothing.

    Args:
        clock: The clock of the batch; None for now.
        force: Allow a clock in the future.
    """
    app = App.from_environment()
    loaded = app.pipeline(pipeline)
    while True:
        trigger = trigger_now(f"drain__{uuid4().hex[:12]}", RunOptions(clock, force=force), drain=True)
        with CheckBeside() as quality:
            outcome, report = run_trigger(app, loaded, trigger, quality, quiet=as_json)
        if report is None or report.plan.drain:
            break  # otherwise it was a batch that had been planned before, which must run first
    emissions = int(report.counts.get("emitted", 0)) if report else 0
    if as_json:
        batch = report_object(report) if report else {"batch": None}
        print(json.dumps({"note": outcome.note, "emitted": emissions} | batch))
    elif report is None:
        out.print(f"{outcome.note[0].upper()}{outcome.note[1:]}.")
    else:
        out.print(f"{emissions} emissions went out in batch {report.plan.seq} of {report.plan.stream}.")


def run_trigger(
    app: App, pipeline: Pipeline, trigger: Trigger, quality: CheckBeside, quiet: bool
) -> tuple[Outcome, inspect.BatchReport | None]:
    """Run one batch. Return its outcome, and its report; no report if there was nothing to do.

    Args:
        quality: Started only if the pipeline has checks, when the Spark session is opened.
        quiet: Show no progress.
    """
    from tidegate.engine.session import OwnSession

    settings, name = app.settings, app.session_name(stream_of(pipeline))
    spark = OwnSession(settings.spark_master, settings.spark_memory, name)
    # a session of its own, which ends with the command
    with steps_shown(quiet=quiet) as progress, spark:

        def open_session(records: int) -> SparkSession:
            if pipeline.quality:
                quality.start()
            return spark.open(records)

        outcome = run_batch(app, pipeline, trigger, open_session, progress, spark.end, quality.check)
    plan = outcome.plan
    return outcome, inspect.batch_report(app.ledger, plan.stream, plan.seq) if plan else None


def report_object(report: inspect.BatchReport) -> dict[str, Any]:
    """Return a batch's report for programs: counts by metric name, seconds by step, records by sink."""
    return {
        "batch": report.plan.seq,
        "came_in": report.came_in,
        "fates": report.fates,
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
        if fate == "quarantined":
            rows |= {f"quarantined: {reason}": records for reason, records in report.reasons.items()}
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
    if counts.get("refused"):
        names["quarantined by an expectation"] = counts["refused"]
    if counts.get("emitted-too-large"):
        names["quarantined as too large to send"] = counts["emitted-too-large"]
    if counts.get("emitted-refused-timestamp"):
        names["quarantined for a timestamp that the topic refuses"] = counts["emitted-refused-timestamp"]
    rows: list[dict[str, Any]] = [{"": name, "value": f"{value:.0f}"} for name, value in names.items()]
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
    now_ms = time.time_ns() // 1_000_000
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
