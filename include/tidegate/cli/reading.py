"""state, emissions, quarantine."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import steps
from tidegate.cli.show import as_json, show
from tidegate.ledger import Stream

_SHOWN = 50
limit = click.option("--limit", default=_SHOWN, show_default=True, help="Rows to show; 0 for all.")
generation = click.option("--generation", type=int, help="Default: the one in the pipeline file.")
batch = click.option("--batch", type=int, help="Only this batch.")


@click.command()
@click.argument("pipeline")
@click.option("--key", help="Only this key.")
@click.option("--as-of", type=int, help="As it was after this batch.")
@generation
@limit
@as_json
def state(
    pipeline: str, key: str | None, as_of: int | None, generation: int | None, limit: int, as_json: bool
) -> None:
    """Show the last known state of each key of PIPELINE, now or as of a batch."""
    app, stream = _stream(pipeline, generation)
    rows = steps.read_state(app, stream, as_of)
    if key is not None and rows.num_columns:
        rows = rows.filter(pc.equal(rows["key"], key))
    _show(rows, limit, as_json, ("key", "value", "timestamp", "topic", "partition", "offset", "updated_seq"))


@click.command()
@click.argument("pipeline")
@batch
@generation
@limit
@as_json
def emissions(pipeline: str, batch: int | None, generation: int | None, limit: int, as_json: bool) -> None:
    """Show what PIPELINE sent out."""
    app, stream = _stream(pipeline, generation)
    rows = steps.read_emissions(app, stream, batch)
    _show(rows, limit, as_json, ("seq", "key", "value", "reason", "timestamp", "source"))


@click.command()
@click.argument("pipeline")
@batch
@generation
@limit
@as_json
def quarantine(pipeline: str, batch: int | None, generation: int | None, limit: int, as_json: bool) -> None:
    """List the input of PIPELINE that could not be used, with position and reason."""
    app, stream = _stream(pipeline, generation)
    rows = steps.read_quarantine(app, stream, batch)
    _show(
        rows, limit, as_json, ("seq", "topic", "partition", "offset", "reason", "key", "value", "timestamp")
    )


def _stream(pipeline: str, generation: int | None) -> tuple[steps.App, Stream]:
    app = steps.App.from_environment()
    if generation is not None:
        return app, Stream(pipeline, generation)
    return app, steps.stream_of(app.pipeline(pipeline))


def _show(rows: pa.Table, limit: int, json_wanted: bool, columns: tuple[str, ...]) -> None:
    shown = rows.slice(0, limit) if limit else rows
    listed: list[dict[str, Any]] = shown.select(columns).to_pylist() if rows.num_columns else []
    title = f"{rows.num_rows} rows" + (f", the first {limit}" if 0 < limit < rows.num_rows else "")
    show(listed, json_wanted, title)
