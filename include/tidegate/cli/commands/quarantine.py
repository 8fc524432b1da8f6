"""quarantine list, count, export: input that could not be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.cli.options import as_json, generation, instant, pipeline_argument

_BY = ("reason", "topic", "batch")
_FILTERS = (
    pipeline_argument,
    click.option("--reason", "reasons", multiple=True, help="Only this one, such as malformed; repeatable."),
    click.option("--topic", "topics", multiple=True, help="Only records of this topic; repeatable."),
    click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; repeatable."),
    click.option("--batch", "batches", metavar="A..B", help="Only batches A to B, both included; or one: A."),
    click.option(
        "--since", type=instant, help="Only records from this instant on (UTC), by their timestamp."
    ),
    click.option("--until", type=instant, help="Only records before this instant (UTC), by their timestamp."),
    generation,
)


def filtered(command: Any) -> Any:
    """PIPELINE, and the options that say which records of its quarantine are asked for."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Look at the input of a pipeline that could not be used, and at emissions that a sink would refuse.

    Each has its position in Kafka, the reason, and the record whole.
    """


@quarantine.command(name="list")
@filtered
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Records to show."
)
@as_json
def list_(limit: int, as_json: bool, **which: Any) -> None:
    """Show records in quarantine of PIPELINE: the newest batch first, those of a batch by position.

    For people one line each, cut to the terminal; with --json one object a line, as `export` writes it.
    """
    from tidegate.cli import quarantine

    quarantine.show_list(limit, as_json, **which)


@quarantine.command()
@filtered
@click.option("--by", type=click.Choice(_BY), multiple=True, help="Default: reason; repeatable.")
@as_json
def count(by: tuple[Any, ...], as_json: bool, **which: Any) -> None:
    """Count records in quarantine of PIPELINE, with the first and last batch and timestamp of each count.

    Neither keys nor values are read.
    """
    from tidegate.cli import quarantine

    quarantine.show_counts(by, as_json, **which)


@quarantine.command()
@filtered
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="A file that ends with .jsonl or .parquet.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def export(path: Path, force: bool, **which: Any) -> None:
    """Write records in quarantine of PIPELINE to a file, whole, as JSON lines or Parquet."""
    from tidegate.cli import quarantine

    quarantine.export(path, force, **which)
