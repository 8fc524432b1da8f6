"""`tidegate plan`: show what the next batch would read, and write nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import RunOptions, as_json, from_start, pipeline_argument, until
from tidegate.cli.output import out, show, show_object, warn
from tidegate.numerals import counted

if TYPE_CHECKING:
    from tidegate.inspect.read import StateEstimate
    from tidegate.ledger.records import OffsetRange
    from tidegate.model.pipeline import Pipeline


@click.command()
@pipeline_argument
@until
@click.option("--estimate", is_flag=True, help="Also how large each stage's state is, and can become.")
@from_start
@as_json
def plan(pipeline: str, estimate: bool, as_json: bool, **options: Any) -> None:
    """Show what the next batch of PIPELINE would read. Nothing is written."""
    from tidegate.app import App, stream_of
    from tidegate.batch import draft, new_topics, old_record_warnings, stalled_transactions
    from tidegate.cli.batch import trigger_now
    from tidegate.inspect.read import estimate_state
    from tidegate.ledger.planned import planned_pipeline
    from tidegate.model.reading import reading_of

    app = App.for_reading()
    loaded = app.pipeline(pipeline)
    head = app.ledger.head(stream_of(loaded))
    waiting = app.ledger.open_plan(head.stream)
    next_plan = waiting or draft(app, loaded, head, trigger_now("dry run", RunOptions(**options)))
    # a batch that is planned is computed as it was planned, whatever the file says now
    planned = planned_pipeline(waiting) if waiting else loaded
    rows = range_rows(planned, next_plan.ranges)
    topics = new_topics(loaded.sources, head, next_plan.ranges)
    states = estimate_state(app, loaded, next_plan) if estimate else []
    reading = reading_of(planned).described
    if as_json:
        state = {"state": [vars(estimate_) for estimate_ in states]} if estimate else {}
        show_object({"ranges": rows, "new_topics": topics, "reading": reading} | state)
        return
    what = f"Batch {head.seq + 1} of {head.stream} would read {counted(next_plan.span, 'offset')}"
    if waiting:
        what = f"Batch {waiting.seq} of {head.stream} is planned already, by {waiting.run_id}, and goes first"
    show(rows, False, what)
    if topics:
        out.print(f"New topics, read from their beginning: {', '.join(topics)}.")
    out.print(reading)
    old = old_record_warnings(app, head.stream, loaded, next_plan.ranges, next_plan.clock_ms)
    for warning in (*stalled_transactions(app, loaded), *old):
        warn(warning)
    if estimate:
        out.print()
        show([_estimate_row(state) for state in states], False, "State, now and at most after this batch")


def range_rows(pipeline: Pipeline, ranges: Iterable[OffsetRange]) -> list[dict[str, Any]]:
    """Return one row per topic-partition that a batch reads; with several sources, it names the source."""
    return [
        {
            **({"source": pipeline.sources.name_of(range_.topic)} if pipeline.named_sources else {}),
            "topic": range_.topic,
            "partition": range_.partition,
            "from": range_.start,
            "to": range_.end,
            "offsets": range_.span,
        }
        for range_ in ranges
    ]


def _estimate_row(state: StateEstimate) -> dict[str, Any]:
    from tidegate.inspect.read import MEASURED_ROWS

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
