"""demo, up, down."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegate.cli.batches import report_rows
from tidegate.cli.show import as_json, err, out, show
from tidegate.demo import DemoResult, run_demo
from tidegate.demo.events import WAVES, stock_events
from tidegate.demo.run import PIPELINE
from tidegate.demo.topics import STOCK, create_topics, send
from tidegate.errors import SettingsInvalid
from tidegate.local import stack as local
from tidegate.local.airflow_client import AirflowClient
from tidegate.settings import Settings


@click.command()
@click.option("--send", "only_send", is_flag=True, help="Only send events, to the broker in TIDEGATE_KAFKA.")
@as_json
def demo(only_send: bool, as_json: bool) -> None:
    """Run the whole line on this machine: Kafka, Airflow, two waves of events, and check the result."""
    settings = Settings.from_environment()
    if only_send:
        sent = send(settings.require_kafka().servers, stock_events(1))
        out.print(f"{sent} events are in the topic {STOCK}.")
        return
    result = run_demo(settings.home, project_folder(), _teller())
    show(_demo_rows(result), as_json, "What became of the events")
    if not as_json:
        _tell_verdict(result)
    sys.exit(0 if result.equal else 1)


def _tell_verdict(result: DemoResult) -> None:
    if not result.equal:
        out.print(f"[red]DIFFERENT[/]: {_difference(result)}")
        return
    records = sum(map(len, result.published.values()))
    out.print(
        f"[green]EQUAL[/]: a read_committed consumer sees {records} records of {len(result.published)} keys, "
        "each key's in order: exactly the availability changes computed from the input on their own."
    )


@click.command()
def up() -> None:
    """Start Kafka and Airflow on this machine, with the demo's first events, and leave them running."""
    home = Settings.from_environment().home
    err.print("Starting Kafka and Airflow …", highlight=False)
    info, was_up = local.up(home, project_folder())
    if STOCK in create_topics(info.bootstrap_servers):
        send(info.bootstrap_servers, stock_events(0))
    airflow = AirflowClient(info.airflow_url, info.username, info.password)
    airflow.wait_dag(PIPELINE)
    airflow.unpause(PIPELINE)
    for line in (
        "It is up already." if was_up else "It is up.",
        f"  Airflow   {info.airflow_url}   user {info.username}, password {info.password}",
        f"  Kafka     {info.bootstrap_servers}, with {WAVES[0]} events in the topic {STOCK}",
        f"The DAG {PIPELINE} runs every five minutes. For the tidegate command:",
        f"  export TIDEGATE_HOME={home} TIDEGATE_KAFKA={info.bootstrap_servers}",
        "`make down` ends it.",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


@click.command()
def down() -> None:
    """End what `up` started."""
    was_up = local.down(Settings.from_environment().home)
    out.print("It is down." if was_up else "Nothing was up.")


def project_folder() -> Path:
    """The checkout: where `dags/` is. Raises SettingsInvalid elsewhere."""
    here = Path.cwd()
    if not (here / "dags" / "pipelines.py").is_file():
        raise SettingsInvalid(
            f"{here} is not a checkout of tidegate", "Change to the folder that has dags/ in it."
        )
    return here


def _teller() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: err.print(
        f"[{time.monotonic() - began:5.1f} s] {text}", markup=False, highlight=False
    )


def _demo_rows(result: DemoResult) -> list[dict[str, Any]]:
    """The batches side by side."""
    columns = [{row[""]: row["value"] for row in report_rows(run.report)} for run in result.runs]
    for column, run in zip(columns, result.runs, strict=True):
        column["seconds, trigger to end"] = f"{run.seconds:.1f}"
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [
        {"": name, **{f"run {n}": column.get(name, "") for n, column in enumerate(columns, start=1)}}
        for name in names
    ]


def _difference(result: DemoResult) -> str:
    keys = result.expected.keys() | result.published.keys()
    wrong = sorted(key for key in keys if result.expected.get(key) != result.published.get(key))
    key = wrong[0]
    return (
        f"{len(wrong)} keys differ, the first is {key}: "
        f"expected {result.expected.get(key)}, got {result.published.get(key)}"
    )
