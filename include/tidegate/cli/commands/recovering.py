"""recover: repair a stream that cannot continue."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.options import as_json, pipeline_argument

CHOICES = (
    *("accept-gap", "drop-plan", "lower-clock", "move", "restore-progress"),
    *("send-again", "give-up", "promote", "forget", "adopt-ledger"),
)
"""The names of the remedies; help does not wait for their import."""


def _progress(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Sink -> batch, of texts such as `kafka:topic=7`."""
    progress = {}
    for text in given:
        sink, _, seq = text.rpartition("=")
        if not sink or not seq.isdecimal():
            raise click.BadParameter(f"{text} is not SINK=BATCH, as in kafka:availability=7.")
        progress[sink] = int(seq)
    return progress


@click.command()
@pipeline_argument
@click.option("--generation", type=int, help="Default: the one in the pipeline file, or in charge.")
@click.option("--choose", type=click.Choice(CHOICES), help="Show only what this remedy would do.")
@click.option("--from-batch", type=int, metavar="N", help="The batch from which on batches are sent again.")
@click.option(
    "--progress",
    multiple=True,
    metavar="SINK=BATCH",
    callback=_progress,
    help="The newest batch that a sink has as a whole, where the sink does not show it; repeatable.",
)
@click.option(
    "--sink", "sinks", multiple=True, metavar="SINK", help="Only this sink, whatever it fails of; repeatable."
)
@click.option(
    "--checkpoints",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="For move: lines of `partition,old offset,new offset`.",
)
@click.option(
    "--old-connection", metavar="NAME", help="For move: the connection of the cluster that was read before."
)
@click.option("--yes", is_flag=True, help="Do what --choose shows. The ledger records it.")
@click.option("--by", metavar="NAME", help="Who decides it; default: your login.")
@as_json
def recover(
    pipeline: str,
    generation: int | None,
    choose: str | None,
    from_batch: int | None,
    progress: dict[str, int],
    sinks: tuple[str, ...],
    checkpoints: Path | None,
    old_connection: str | None,
    yes: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Repair PIPELINE where its batches cannot continue: name the cause, and what can be done about it.

    Without --choose it shows each cause that it finds, and each remedy with its effects. With --choose it
    shows what that remedy would do. Only with --yes does it act. Exit codes: 0 nothing needs a repair, or
    it is repaired; 1 a retry can help; 2 it cannot; 3 a run is at work; 4 something needs a repair, and
    nothing was done.
    """
    if yes and choose is None:
        raise click.UsageError("--yes goes with --choose.")
    from tidegate.cli import recover
    from tidegate.recovery import Options

    options = Options(choose, from_batch, progress, sinks, by, checkpoints, old_connection)
    recover.recover(pipeline, generation, options, yes, by, as_json)
