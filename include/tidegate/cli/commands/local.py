"""demo, up, down: a whole line on this machine."""

from __future__ import annotations

import click

from tidegate.cli.options import as_json


@click.command()
@click.option("--send", "only_send", is_flag=True, help="Only send events, to the broker in TIDEGATE_KAFKA.")
@as_json
def demo(only_send: bool, as_json: bool) -> None:
    """Run the whole line on this machine: Kafka, Spark, Airflow, two waves of events, and check the result.

    Exit code 1 when what came out is not what had to.
    """
    from tidegate.cli import stack

    stack.demo(only_send, as_json)


@click.command()
def up() -> None:
    """Start Kafka, Spark and Airflow here, with the demo's first events, and leave them running."""
    from tidegate.cli import stack

    stack.up()


@click.command()
def down() -> None:
    """End what `up` started."""
    from tidegate.cli import stack

    stack.down()
