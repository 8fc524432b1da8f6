"""test, simulate: pipelines without Kafka or Airflow."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.options import as_json


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--cuts", default=0, help="Also cut each case after every record, and at this many random places."
)
@click.option("--seed", default=1, show_default=True, help="Of the random cuts.")
@as_json
def test(paths: tuple[Path, ...], cuts: int, seed: int, as_json: bool) -> None:
    """Run case files (or all in folders), without Kafka or Airflow; exit 1 with a diff if any differs."""
    from tidegate.cli import cases

    cases.test(paths, cuts, seed, as_json)


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "input_file",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="JSON lines: {key, value, timestamp, …} or {tick: epoch ms}; - for standard input.",
)
@click.option("--explain", is_flag=True, help="First, what became of each record in each stage.")
def simulate(pipeline: Path, input_file: Path, explain: bool) -> None:
    """Print what the PIPELINE file emits for an input, as JSON lines, with the reason of each emission."""
    from tidegate.cli import cases

    cases.simulate(pipeline, input_file, explain)
