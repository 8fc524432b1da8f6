"""`tidegate drain`: emit what the stages hold back."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import click

from tidegate.cli.options import RunOptions, as_json, clock, force, pipeline_argument
from tidegate.cli.output import out, show_object
from tidegate.numerals import counted


@click.command()
@pipeline_argument
@clock
@force
@as_json
def drain(pipeline: str, clock: datetime | None, force: bool, as_json: bool) -> None:
    """Emit everything that the stages of PIPELINE hold back, in a batch that reads nothing."""
    from tidegate.app import App
    from tidegate.cli.batch import run_trigger, trigger_now
    from tidegate.quality.beside import CheckBeside

    app = App.from_environment()
    loaded = app.pipeline(pipeline)
    while True:
        trigger = trigger_now(f"drain__{uuid4().hex[:12]}", RunOptions(clock, force=force), drain=True)
        with CheckBeside() as quality:
            finished = run_trigger(app, loaded, trigger, quality, quiet=as_json)
        report = finished.report
        if report is None or report.plan.drain:
            break  # otherwise it was a batch that had been planned before, which must run first
    emissions = int(report.counts.get("emitted", 0)) if report else 0
    if as_json:
        show_object(finished.as_object() | {"emitted": emissions})
    elif report is None:
        out.print(f"{finished.sentence}.")
    else:
        verb = "withheld in" if finished.withheld else "went out in"
        out.print(f"{counted(emissions, 'emission')} {verb} batch {report.plan.seq} of {report.plan.stream}.")
        finished.say_withheld()
