"""generation new, list, diff, promote, rollback, drop: two generations of a pipeline side by side."""

from __future__ import annotations

from datetime import datetime

import click

from tidegate.cli.options import as_json, instant, pipeline_names

number = click.argument("number", metavar="GENERATION", type=int)
net = click.option(
    "--net", is_flag=True, help="Send only what differs from what consumers have, as one batch of its own."
)


@click.group()
def generation() -> None:
    """Try another generation of a pipeline beside the running one, and let it take its place.

    One generation of a pipeline is in charge: what it decides goes out. The others read, compute and commit
    as it does, and withhold what they would send.
    """


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@click.option("--from-batch", type=int, help="Begin with the state after this batch of the one in charge.")
@click.option("--as-of", type=instant, help="Begin with the state as it was at this instant (UTC).")
@as_json
def new(pipeline: str, from_batch: int | None, as_of: datetime | None, as_json: bool) -> None:
    """Make another generation of PIPELINE, which withholds what it decides until it is promoted.

    PIPELINE's own file is copied to one with the next number, to be edited; or name a file that has another
    number already. It begins empty, and reads the source from its start; or with the state of the generation
    in charge, which the file has to fit, and where that was then.
    """
    if from_batch is not None and as_of is not None:
        raise click.UsageError("--from-batch and --as-of name one state each: give one of them.")
    from tidegate.cli import generations

    generations.new(pipeline, from_batch, as_of, as_json)


@generation.command(name="list")
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@as_json
def list_(pipeline: str | None, as_json: bool) -> None:
    """Show the generations of every pipeline (or PIPELINE): which is in charge, and what of each goes out."""
    from tidegate.cli import generations

    generations.show_all(pipeline, as_json)


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@click.option("--against", type=int, help="Another generation; default: the one in charge.")
@click.option("--examples", default=10, show_default=True, help="Keys to show of each sink.")
@as_json
def diff(pipeline: str, number: int, against: int | None, examples: int, as_json: bool) -> None:
    """Show what consumers would have of GENERATION of PIPELINE, and what they have of the one in charge.

    Both outputs are folded by key up to the last batches at which both have read the same.
    """
    from tidegate.cli import generation_diff

    generation_diff.diff(pipeline, number, against, examples, as_json)


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@net
@click.option(
    "--approved-by", metavar="NAME", help="Who has approved it; needed where a file has `approve_promotion`."
)
@as_json
def promote(pipeline: str, number: int, net: bool, approved_by: str | None, as_json: bool) -> None:
    """Put GENERATION of PIPELINE in charge: what it has withheld goes out, from its start, then the rest.

    Safe to run again, which also finishes one that was killed.
    """
    from tidegate.cli import generations

    generations.promote(pipeline, number, net, approved_by, as_json)


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@net
@as_json
def rollback(pipeline: str, net: bool, as_json: bool) -> None:
    """Put the generation of PIPELINE in charge again that was before: it goes on where it stopped."""
    from tidegate.cli import generations

    generations.rollback(pipeline, net, as_json)


@generation.command()
@click.argument("pipeline", shell_complete=pipeline_names)
@number
@click.confirmation_option(prompt="Its state and its outboxes will be gone for good. Go on?")
def drop(pipeline: str, number: int) -> None:
    """Give up GENERATION of PIPELINE, which is not in charge. What it has published stays."""
    from tidegate.cli import generations

    generations.drop(pipeline, number)
