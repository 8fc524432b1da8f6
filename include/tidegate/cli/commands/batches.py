"""validate, plan, run, drain, status, compact: the life of a pipeline's batches."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tidegate.cli.options import (
    RunOptions,
    as_json,
    clock,
    force,
    from_start,
    pipeline_argument,
    pipeline_names,
    until,
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@as_json
def validate(files: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files; without FILES, all of the pipelines folder."""
    from tidegate.cli import pipelines

    pipelines.validate(files, as_json)


@click.command()
@pipeline_argument
@until
@click.option("--estimate", is_flag=True, help="Also how large each stage's state is, and can become.")
@from_start
@as_json
def plan(pipeline: str, estimate: bool, as_json: bool, **options: Any) -> None:
    """Show what the next batch of PIPELINE would read. Nothing is written."""
    from tidegate.cli import batches

    batches.plan(pipeline, RunOptions(**options), estimate, as_json)


@click.command()
@pipeline_argument
@clock
@until
@click.option("--run-id", help="A name; running it again goes on with the same batch.")
@force
@from_start
@as_json
def run(pipeline: str, as_json: bool, **options: Any) -> None:
    """Run one batch of PIPELINE, all five steps, without Airflow."""
    from tidegate.cli import run as batch

    batch.run(pipeline, RunOptions(**options), as_json)


@click.command()
@pipeline_argument
@clock
@force
@as_json
def drain(pipeline: str, clock: datetime | None, force: bool, as_json: bool) -> None:
    """Emit everything that the stages of PIPELINE hold back, in a batch that reads nothing."""
    from tidegate.cli import batches

    batches.drain(pipeline, clock, force, as_json)


@click.command()
@as_json
def status(as_json: bool) -> None:
    """Show every pipeline's head: last batch, offsets, lag, what is planned, who is at work."""
    from tidegate.cli import status

    status.status(as_json)


@click.command()
@click.argument("pipelines", nargs=-1, shell_complete=pipeline_names)
@click.option("--dry-run", is_flag=True, help="Say what would be done, do nothing.")
@as_json
def compact(pipelines: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Fold the state of PIPELINES now, or of all where it is due; then remove files that nobody reads.

    Safe beside running batches; a pipeline that fails stops no other. State can be read as of any batch
    of the last TIDEGATE_TIME_TRAVEL days.
    """
    from tidegate.cli import compact

    compact.compact(pipelines, dry_run, as_json)
