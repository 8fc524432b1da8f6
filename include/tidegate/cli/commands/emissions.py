"""`tidegate emissions`: show what a stream has emitted."""

from __future__ import annotations

import click

from tidegate.cli.options import batch, of_stream, open_stream, stage
from tidegate.cli.output import show_rows_of

_COLUMNS = ("seq", "key", "window_start", "window_end", "value", "reason", "timestamp", "at", "source")


@click.command()
@of_stream
@batch
@stage
def emissions(
    batch: int | None,
    stage: str | None,
    pipeline: str,
    generation: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show what PIPELINE sent out."""
    from tidegate.inspect import read_emissions
    from tidegate.inspect.read import erasure_notes

    app, stream = open_stream(pipeline, generation)
    notes = erasure_notes(app, stream, batch)
    if batch is None and (expired := app.ledger.expired(stream, "outbox").seq):
        notes.append(f"The emissions of batches up to {expired} have expired.")
    for note in notes:
        # Not among the rows: programs read these.
        click.echo(note, err=True)
    show_rows_of(read_emissions(app, stream, batch, stage), _COLUMNS, limit, as_json)
