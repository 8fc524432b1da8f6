"""`tidegate quality`: propose a suite from history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import as_json, generation, open_stream, pipeline_argument, stage
from tidegate.cli.output import out, say, show, show_object, steps_shown
from tidegate.errors import SettingsInvalid
from tidegate.numerals import batches_named, counted

if TYPE_CHECKING:
    from tidegate.quality.proposals import Proposal


@click.group()
def quality() -> None:
    """Quality suites of Great Expectations."""


@quality.command()
@pipeline_argument
@stage
@click.option(
    "--suite",
    help="A suite by its name, in the folder of expectations, which is written. "
    "Default: the pipeline's name.",
)
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
def learn(
    pipeline: str,
    stage: str | None,
    suite: str | None,
    batches: int,
    rows: int,
    force: bool,
    generation: int | None,
    as_json: bool,
) -> None:
    """Propose a suite for PIPELINE: what all its emissions so far have in common, with some room.

    What it has seen passes it. Read it before you use it: that something was so is no reason that it has to.
    """
    from tidegate import inspect

    app, stream = open_stream(pipeline, generation)
    name = suite or stream.pipeline
    file = app.settings.expectations / f"{name}.json"
    if file.exists() and not force:  # checked first, since reading the batches takes long
        raise SettingsInvalid(
            f"{file} already exists", "Name another suite with --suite, or give --force to replace it."
        )
    from tidegate.quality.gate import check as evaluate  # late: Great Expectations takes seconds to import

    with steps_shown(quiet=as_json) as progress:
        progress(f"read batches of {stream}")
        learned = inspect.learn_suite(app, stream, evaluate, stage, batches, rows)
    document = learned.suite(name)
    inspect.write_suite(file, document, force)
    if as_json:
        show_object(
            {"file": str(file), **document, "refuted": [proposal.written for proposal in learned.refuted]}
        )
        return
    named = batches_named(learned.first, learned.last)
    title = f"From {counted(learned.rows, 'emission')} of {named} of {stream}"
    show([_row(proposal) for proposal in learned.proposals], False, title)
    for proposal in learned.refuted:
        out.print(f"Left out, since it did not hold: {proposal.type}", markup=False, soft_wrap=True)
    for line in (
        f"Written: {file}",
        "Read it, then name it in the pipeline file:",
        f"  quality: {{suite: {name}}}",
    ):
        say(line)


def _row(proposal: Proposal) -> dict[str, str]:
    kwargs = json.dumps(dict(proposal.kwargs), ensure_ascii=False, default=str)
    return {
        "expectation": proposal.type,
        "with": kwargs if len(kwargs) <= 60 else f"{kwargs[:59]}…",
        "severity": proposal.severity or "critical",
        "from": proposal.source,
    }
