"""history, state, emissions, explain: how batches went, what they have left, and why."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.options import as_json, batch, generation, of_stream, pipeline_argument, stage


@click.command()
@of_stream
@click.option("--before", type=int, help="Only batches before this one.")
def history(before: int | None, **common: Any) -> None:
    """Show the batches of PIPELINE, the newest first: counts, seconds per step, and what failed."""
    from tidegate.cli import history

    history.history(before, **common)


@click.command()
@of_stream
@click.option("--key", help="Only this key.")
@click.option("--as-of", type=int, help="As it was after this batch.")
@stage
def state(key: str | None, as_of: int | None, stage: str | None, **common: Any) -> None:
    """Show the last known state of each key of PIPELINE, and of each of its windows, now or as of a batch."""
    from tidegate.cli import reading

    reading.state(key, as_of, stage, **common)


@click.command()
@of_stream
@batch
@stage
def emissions(batch: int | None, stage: str | None, **common: Any) -> None:
    """Show what PIPELINE sent out."""
    from tidegate.cli import reading

    reading.emissions(batch, stage, **common)


@click.command()
@pipeline_argument
@click.argument("key")
@click.option("--batch", type=int, help="This batch; default: the newest.")
@click.option(
    "--offsets", metavar="TOPIC/PARTITION/START-END", help="The batches that read these; END excluded."
)
@click.option("--stage", help="Only this stage; default: each one.")
@generation
@as_json
def explain(
    pipeline: str,
    key: str,
    batch: int | None,
    offsets: str | None,
    stage: str | None,
    generation: int | None,
    as_json: bool,
) -> None:
    """Tell why KEY of PIPELINE was emitted, or not: what came in, what was known, and what went out.

    The batch is decided again from what it read and what it started from; nothing is written.
    """
    from tidegate.cli import explain

    explain.explain(pipeline, key, batch, offsets, stage, generation, as_json)
