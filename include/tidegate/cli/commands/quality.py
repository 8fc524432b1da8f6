"""check, quality learn: what suites say of what is committed, and suites that say it."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.options import as_json, generation, pipeline_argument, stage

_SUITE = "A suite by its name, in the folder of expectations"


@click.command()
@pipeline_argument
@click.option(
    "--batch",
    "batches",
    metavar="A..B",
    help="Batches A to B, both included; or one: A. Default: the newest.",
)
@click.option(
    "--state", "of_state", is_flag=True, help="The whole state after a batch, not what it sent out."
)
@click.option(
    "--suite", "suites", multiple=True, help=f"{_SUITE}; repeatable. Default: the pipeline's own checks."
)
@stage
@click.option(
    "--expectation",
    "only",
    multiple=True,
    metavar="TYPE",
    help="Only expectations of this type, or TYPE(COLUMN); repeatable.",
)
@click.option("--bisect", is_flag=True, help="Find the first batch that breaks an expectation.")
@generation
@as_json
def check(pipeline: str, **options: Any) -> None:
    """Evaluate quality suites over what PIPELINE has sent out, or over its state, without running anything.

    Exit code 2 where something critical is not met; with --bisect where a batch is found. Over batches
    --bisect looks at one after the other; over states it halves, and takes for granted that what is broken
    stays broken.
    """
    from tidegate.cli import check

    check.check(pipeline, **options)


@click.group()
def quality() -> None:
    """Quality suites of Great Expectations."""


@quality.command()
@pipeline_argument
@stage
@click.option("--suite", help=f"{_SUITE}, which is written. Default: the pipeline's name.")
@click.option(
    "--batches",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="The newest batches that are looked at.",
)
@click.option(
    "--rows",
    type=click.IntRange(100, 10_000_000),
    default=100_000,
    show_default=True,
    help="About how many emissions are looked at, of all these batches.",
)
@click.option("--force", is_flag=True, help="Replace the suite if it is there.")
@generation
@as_json
def learn(pipeline: str, **options: Any) -> None:
    """Propose a suite for PIPELINE: what all its emissions so far have in common, with some room.

    What it has seen passes it. Read it before you use it: that something was so is no reason that it has to.
    """
    from tidegate.cli import learn

    learn.learn(pipeline, **options)
