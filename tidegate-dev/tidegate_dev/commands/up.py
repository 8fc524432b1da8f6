"""`tidegate up`: start the local stack in the background, with the first events of the demo."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidegate_dev.stack import StackInfo


@click.command()
def up() -> None:
    """Start Kafka, Spark and Airflow here, with the demo's first events, and leave them running."""
    from tidegate.ledger import migrate_database
    from tidegate.settings import Settings
    from tidegate_dev import stack
    from tidegate_dev.airflow_client import AirflowClient
    from tidegate_dev.demo.run import project_folder, send_wave
    from tidegate_dev.demo.samples import SAMPLES
    from tidegate_dev.demo.topics import STOCK, VISITS, create_topics
    from tidegate_dev.jars import BROKER, ensure_jars

    settings = Settings.from_environment()
    home = settings.home
    if not os.environ.get("TIDEGATE_LEDGER"):  # only its own: whoever sets another one migrates that
        migrate_database(settings.ledger)
    click.echo("Starting Kafka, Spark and Airflow …", err=True)
    ensure_jars(BROKER, home)
    project = project_folder()
    info, was_up = stack.up(home, project)
    click.echo("It is up already." if was_up else "It is up.")
    if {STOCK, VISITS} & create_topics(info.bootstrap_servers):
        send_wave(info.bootstrap_servers, 0, click.echo)
    airflow = AirflowClient(info.airflow_url, info.username, info.password)
    pipelines = Path(os.environ.get("TIDEGATE_PIPELINES") or project / "include" / "pipelines")
    # Only what the folder has becomes a DAG.
    samples = [sample for sample in SAMPLES if (pipelines / f"{sample.pipeline}.yaml").is_file()]
    for sample in samples:
        airflow.wait_dag(sample.pipeline)
        airflow.unpause(sample.pipeline)
    names = " and ".join(sample.pipeline for sample in samples)
    dags = f"The DAGs {names} run now" if samples else f"The DAGs are those of {pipelines}"
    variables = _variables(home, info, stack.sink_url(home))
    for line in (
        f"  Airflow   {info.airflow_url}   user {info.username}, password {info.password}",
        f"  Kafka     {info.bootstrap_servers}",
        f"{dags}. For the tidegate command:",
        f"  {export_line(variables)}",
        "`make down` ends it.",
    ):
        click.echo(line)


def export_line(variables: Mapping[str, str]) -> str:
    """Return the shell's line that sets the variables, whatever their values contain."""
    return f"export {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}"


def _variables(home: Path, info: StackInfo, sink_url: str) -> dict[str, str]:
    """Return the variables with which the `tidegate` command uses the running stack."""
    variables = {"TIDEGATE_HOME": str(home), "TIDEGATE_KAFKA": info.bootstrap_servers}
    if info.spark_url is not None:
        variables["TIDEGATE_SPARK_MASTER"] = info.spark_url
    if not os.environ.get("TIDEGATE_SQL"):
        variables["TIDEGATE_SQL"] = sink_url
    return variables
