"""`tidegate state`: show the last state row of each key."""

from __future__ import annotations

import click

from tidegate.cli.options import of_stream, open_stream, stage
from tidegate.cli.output import show_rows_of

_COLUMNS = (
    *("key", "side", "window_start", "window_end", "value", "digest", "pending", "due_at"),
    *("timestamp", "topic", "partition", "offset", "updated_seq"),
)


@click.command()
@of_stream
@click.option("--key", help="Only this key.")
@click.option("--as-of", type=int, help="As it was after this batch.")
@stage
def state(
    key: str | None,
    as_of: int | None,
    stage: str | None,
    pipeline: str,
    generation: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the last known state of each key of PIPELINE, and of each of its windows, now or as of a batch."""
    from tidegate.inspect import read_state
    from tidegate.inspect.read import erasure_notes

    app, stream = open_stream(pipeline, generation)
    if as_of is not None and key is None:
        for note in erasure_notes(app, stream, as_of):
            # Not among the rows: programs read these.
            click.echo(note, err=True)
    show_rows_of(read_state(app, stream, as_of, stage, key), _COLUMNS, limit, as_json)
