"""`tidegate run`: Spark's JVM, or else the quality check, starts before everything else."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tidegate.cli.options import RunOptions, as_json, clock, force, from_start, pipeline_argument, until
from tidegate.cli.output import out, show, show_object
from tidegate.garbage import not_collected

if TYPE_CHECKING:
    from tidegate.spark.driver import DriverJvm

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
    from tidegate.spark.driver import DriverJvm

    with CheckBeside() as quality, DriverJvm() as jvm:
        # Beside a JVM that starts, a third process would only hold up the other two: the check starts with
        # the session.
        if not _start_own_spark(jvm) and _seems_to_have_suite(pipeline):
            quality.start()

        with not_collected():  # modules are never garbage
            from tidegate.app import App  # these take as long as the rest of a small batch
            from tidegate.cli.batch import report_rows, run_trigger, trigger_now
        gc.freeze()  # imported objects live as long as the process, so collections need not look at them

        app, run_options = App.from_environment(), RunOptions(**options)
        trigger = trigger_now(run_options.run_id or f"cli__{uuid4().hex[:12]}", run_options)
        finished = run_trigger(app, app.pipeline(pipeline), trigger, quality, jvm, quiet=as_json)
    report = finished.report
    if as_json:
        show_object(finished.as_object())
    elif report is None:
        out.print(finished.outcome.note)
    else:
        show(report_rows(report), False, f"Batch {report.plan.seq} of {report.plan.stream}")
        finished.say_withheld()


def _start_own_spark(jvm: DriverJvm) -> bool:
    """Start the JVM of the Spark that the command is going to start for itself: it takes as long as the
    command's imports.

    Returns whether it is a Spark of this machine. If the guess is wrong, the JVM is ended, and Spark starts
    later.
    """
    from tidegate.errors import SetupFailed
    from tidegate.settings import OWN_SPARK, Settings
    from tidegate.spark.driver import driver_settings
    from tidegate.spark_token import kept_server

    settings = Settings.from_environment()
    master = settings.spark_master
    if master is None and kept_server(settings.home) is None:
        master = OWN_SPARK
    if master is None or not master.startswith("local"):
        return False
    with suppress(SetupFailed):  # it is raised where a batch needs Spark
        jvm.start(driver_settings(master, settings.spark_memory, records=0))
    return True


def _seems_to_have_suite(pipeline: str) -> bool:
    """Return whether the text of the files contains `quality:`.

    If the guess is wrong, the check only starts later, or for nothing.
    """
    from tidegate.settings import Settings
    from tidegate.yaml.folder import DEFAULTS_FILE

    folder = Settings.from_environment().pipelines
    files = (Path(pipeline), folder / f"{pipeline}.yaml", folder / DEFAULTS_FILE)
    return any(_HAS_SUITE.search(file.read_bytes()) for file in files if file.is_file())
