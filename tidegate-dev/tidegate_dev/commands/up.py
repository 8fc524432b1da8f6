"""`tidegate up`: start the local stack in the background, with the first events of the demo."""

from __future__ import annotations

import os
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
    migrate_database(settings.ledger)
    click.echo("Starting Kafka, Spark and Airflow …", err=True)
    ensure_jars(BROKER, home)
    info, was_up = stack.up(home, project_folder())
    click.echo("It is up already." if was_up else "It is up.")
    if {STOCK, VISITS} & create_topics(info.bootstrap_servers):
        send_wave(info.bootstrap_servers, 0, click.echo)
    airflow = AirflowClient(info.airflow_url, info.username, info.password)
    for sample in SAMPLES:
        airflow.wait_dag(sample.pipeline)
        airflow.unpause(sample.pipeline)
    variables = _variables(home, info, stack.sink_url(home))
    for line in (
        f"  Airflow   {info.airflow_url}   user {info.username}, password {info.password}",
        f"  Kafka     {info.bootstrap_servers}",
        f"The DAGs {' and '.join(sample.pipeline for sample in SAMPLES)} run now. For the tidegate command:",
        f"  export {' '.join(f'{name}={value}' for name, value in variables.items())}",
        "`make down` ends it.",
    ):
        click.echo(line)


def _variables(home: Path, info: StackInfo, sink_url: str) -> dict[str, str]:
    """Return the variables with which the `tidegate` command uses the running stack."""
    variables = {"TIDEGATE_HOME": str(home), "TIDEGATE_KAFKA": info.bootstrap_servers}
    if info.spark_url is not None:
        variables["TIDEGATE_SPARK_MASTER"] = info.spark_url
    if not os.environ.get("TIDEGATE_SQL"):
        variables["TIDEGATE_SQL"] = sink_url
    return variables
