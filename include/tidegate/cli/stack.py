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
from tidegate.errors import SettingsInvalid
from tidegate.local import stack as local
from tidegate.settings import Settings


@click.command()
@as_json
def demo(as_json: bool) -> None:
    """Run the whole line on this machine: Kafka, Airflow, two waves of events, and check the result."""
    result = run_demo(Settings.from_environment().home, project_folder(), _teller())
    rows = _demo_rows(result)
    show(rows, as_json, "What became of the events")
    records = sum(map(len, result.published.values()))
    if as_json:
        sys.exit(0 if result.equal else 1)
    if not result.equal:
        out.print(f"[red]DIFFERENT[/]: {_difference(result)}")
        sys.exit(1)
    out.print(
        f"[green]EQUAL[/]: a read_committed consumer sees {records} records of {len(result.published)} keys, "
        "each key's in order: exactly the availability changes computed from the input on their own."
    )


@click.command()
def up() -> None:
    """Start Kafka and Airflow on this machine, and leave them running."""
    home = Settings.from_environment().home
    err.print("Starting Kafka and Airflow …", highlight=False)
    info, was_up = local.up(home, project_folder())
    out.print("It is up already." if was_up else "It is up.")
    out.print(
        f"  Airflow   {info.airflow_url}   user {info.username}, password {info.password}", markup=False
    )
    out.print(f"  Kafka     {info.bootstrap_servers}", markup=False)
    out.print("`make down` ends it.", markup=False)


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
