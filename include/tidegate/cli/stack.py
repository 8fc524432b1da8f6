"""The commands `demo`, `up` and `down`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape

import tidegate.demo
from tidegate.cli.batches import report_object, report_rows
from tidegate.cli.show import err, out, show
from tidegate.demo import SampleResult, run_demo
from tidegate.demo.events import stock_events
from tidegate.demo.run import DemoRun
from tidegate.demo.samples import SAMPLES
from tidegate.demo.topics import STOCK, VISITS, create_topics, send
from tidegate.demo.verdict import verdict
from tidegate.demo.visits import SPANS_MS, visit_events
from tidegate.errors import SettingsInvalid
from tidegate.ledger import migrate_database
from tidegate.local import stack as local
from tidegate.local.airflow_client import AirflowClient
from tidegate.local.jars import BROKER, ensure_jars
from tidegate.settings import Settings

_DIFFERENT = 1


def demo(only_send: bool, as_json: bool) -> None:
    """Run everything on this machine: Kafka, Airflow, two waves of events, and a check of the result.

    Exits with 1 if the result is not the expected one.

    Args:
        only_send: Only send the second wave of events.
    """
    settings = Settings.from_environment()
    if only_send:
        _send_wave(settings.kafka().servers, 1)
        return
    migrate_database(settings.ledger)
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
    show(_sample_rows(result), False, f"What became of the events in {result.sample.topic}")
    word = "[green]EQUAL[/]" if result.proof.equal else "[red]DIFFERENT[/]"
    out.print(f"{word}: {escape(verdict(result))}\n", highlight=False)


def up() -> None:
    """Start Kafka, Spark and Airflow on this machine with the demo's first events, and leave them running."""
    settings = Settings.from_environment()
    home = settings.home
    migrate_database(settings.ledger)
    err.print("Starting Kafka, Spark and Airflow …", highlight=False)
    ensure_jars(BROKER, home)
    info, was_up = local.up(home, project_folder())
    out.print("It is up already." if was_up else "It is up.")
    if {STOCK, VISITS} & create_topics(info.bootstrap_servers):
        _send_wave(info.bootstrap_servers, 0)
    airflow = AirflowClient(info.airflow_url, info.username, info.password)
    for sample in SAMPLES:
        airflow.wait_dag(sample.pipeline)
        airflow.unpause(sample.pipeline)
    variables = {"TIDEGATE_HOME": str(home), "TIDEGATE_KAFKA": info.bootstrap_servers}
    if info.spark_url is not None:
        variables["TIDEGATE_SPARK_MASTER"] = info.spark_url
    if not os.environ.get("TIDEGATE_SQL"):
        variables["TIDEGATE_SQL"] = local.sink_url(home)
    for line in (
        f"  Airflow   {info.airflow_url}   user {info.username}, password {info.password}",
        f"  Kafka     {info.bootstrap_servers}",
        f"The DAGs {' and '.join(sample.pipeline for sample in SAMPLES)} run now. For the tidegate command:",
        f"  export {' '.join(f'{name}={value}' for name, value in variables.items())}",
        "`make down` ends it.",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _send_wave(servers: str, wave: int) -> None:
    """Send the events of a wave. The visits end now, since their batches use the clock."""
    begin_ms = time.time_ns() // 1_000_000 - sum(SPANS_MS[: wave + 1])
    for topic, events in ((STOCK, stock_events(wave)), (VISITS, visit_events(wave, begin_ms))):
        out.print(f"{send(servers, topic, events)} events went into the topic {topic}.", highlight=False)


def down() -> None:
    """End what `up` has started."""
    was_up = local.down(Settings.from_environment().home)
    out.print("It is down." if was_up else "Nothing was up.")


def project_folder() -> Path:
    """Return the folder with `dags/` and the samples: this folder, if it is a checkout, else the wheel's.

    Raises SettingsInvalid if there is neither.
    """
    installed = Path(tidegate.demo.__file__).with_name("project")
    for folder in (Path.cwd(), installed):
        if (folder / "dags" / "pipelines.py").is_file():
            return folder
    raise SettingsInvalid(
        f"{Path.cwd()} is not a checkout of tidegate", "Change to the folder that has dags/ in it."
    )


def _progress_printer() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: err.print(
        f"[{time.monotonic() - began:5.1f} s] {text}", markup=False, highlight=False
    )


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
    return {
        "pipeline": result.sample.pipeline,
        "equal": result.proof.equal,
        "verdict": verdict(result),
        "runs": [report_object(run.report) | {"total_seconds": run.seconds} for run in result.runs],
    }
