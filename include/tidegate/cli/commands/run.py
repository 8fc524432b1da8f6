"""`tidegate run`: its quality check starts its imports before everything else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from tidegate.cli.options import RunOptions, as_json, clock, force, from_start, pipeline_argument, until
from tidegate.cli.output import out, show
from tidegate.garbage import not_collected

_HAS_SUITE = re.compile(rb"^quality:", re.MULTILINE)


@click.command()
@pipeline_argument
@clock
@until
@click.option("--run-id", help="A name; running it again goes on with the same batch.")
@force
@from_start
@as_json
def run(pipeline: str, as_json: bool, **options: Any) -> None:
    """Run one batch of PIPELINE, all five steps, without Airflow."""
    from tidegate.quality.beside import CheckBeside

    with CheckBeside() as quality:
        if _seems_to_have_suite(pipeline):
            quality.start()

        with not_collected():  # modules are never garbage
            from tidegate.app import App  # these take as long as the rest of a small batch
            from tidegate.cli.batch import report_object, report_rows, run_trigger, trigger_now

        app, run_options = App.from_environment(), RunOptions(**options)
        trigger = trigger_now(run_options.run_id or f"cli__{uuid4().hex[:12]}", run_options)
        outcome, report = run_trigger(app, app.pipeline(pipeline), trigger, quality, quiet=as_json)
    if as_json:
        print(json.dumps({"note": outcome.note} | (report_object(report) if report else {"batch": None})))
    elif report is None:
        out.print(outcome.note)
    else:
        show(report_rows(report), False, f"Batch {report.plan.seq} of {report.plan.stream}")


def _seems_to_have_suite(pipeline: str) -> bool:
    """Return whether the text of the files contains `quality:`.

    If the guess is wrong, the check only starts later, or for nothing.
    """
    from tidegate.settings import Settings
    from tidegate.yaml.folder import DEFAULTS_FILE

    folder = Settings.from_environment().pipelines
    files = (Path(pipeline), folder / f"{pipeline}.yaml", folder / DEFAULTS_FILE)
    return any(_HAS_SUITE.search(file.read_bytes()) for file in files if file.is_file())
