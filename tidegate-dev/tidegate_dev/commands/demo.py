"""`tidegate demo`: run the demo, and show its batches and whether the output is the expected one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import out, show

if TYPE_CHECKING:
    from tidegate_dev.demo.run import DemoRun, SampleResult

_DIFFERENT = 1


@click.command()
@click.option("--send", "only_send", is_flag=True, help="Only send events, to the broker in TIDEGATE_KAFKA.")
@as_json
def demo(only_send: bool, as_json: bool) -> None:
    """Run the whole line on this machine: Kafka, Spark, Airflow, two waves of events, and check the result.

    Exit code 1 when what came out is not what had to.
    """
    from tidegate.settings import Settings
    from tidegate_dev.demo.run import project_folder, run_demo, send_wave
    from tidegate_dev.jars import BROKER, ensure_jars

    settings = Settings.from_environment()
    if only_send:
        send_wave(settings.kafka().servers, 1, click.echo)
        return
    ensure_jars(BROKER, settings.home)
    result = run_demo(settings.home, project_folder(), _progress_printer())
    if as_json:
        show([_sample_object(sample) for sample in result.samples], True)
    else:
        for sample in result.samples:
            _print_result(sample)
    sys.exit(0 if result.equal else _DIFFERENT)


def _print_result(result: SampleResult) -> None:
    """Print a sample's batches side by side, and the verdict."""
    from rich.markup import escape

    from tidegate_dev.demo.run import verdict

    show(_sample_rows(result), False, f"What became of the events in {result.sample.topic}")
    word = "[green]EQUAL[/]" if result.proof.equal else "[red]DIFFERENT[/]"
    out.print(f"{word}: {escape(verdict(result))}\n", highlight=False)


def _progress_printer() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: click.echo(f"[{time.monotonic() - began:5.1f} s] {text}", err=True)


def _sample_rows(result: SampleResult) -> list[dict[str, Any]]:
    """Return the batches side by side."""
    columns = [_run_column(run) for run in result.runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [
        {"": name, **{f"run {n}": column.get(name, "0") for n, column in enumerate(columns, start=1)}}
        for name in names
    ]


def _run_column(run: DemoRun) -> dict[str, str]:
    """Return name -> text of a batch. The number of emissions is followed by their reasons and what is
    held back.
    """
    from tidegate.cli.batch import report_rows

    reasons = {
        f"emitted: {name.removeprefix('emitted.')}": f"{count:.0f}"
        for name, count in sorted(run.report.counts.items())
        if name.startswith("emitted.")
    }
    pending = sum(run.report.held_back.values())
    column = {}
    for row in report_rows(run.report):
        column[row[""]] = row["value"]
        if row[""] == "emitted":
            column |= reasons | {"keys that hold something back": str(pending)}
    return column | {"seconds, trigger to end": f"{run.seconds:.1f}"}


def _sample_object(result: SampleResult) -> dict[str, Any]:
    """Return a sample for programs."""
    from tidegate.cli.batch import report_object
    from tidegate_dev.demo.run import verdict

    return {
        "pipeline": result.sample.pipeline,
        "equal": result.proof.equal,
        "verdict": verdict(result),
        "runs": [report_object(run.report) | {"total_seconds": run.seconds} for run in result.runs],
    }
