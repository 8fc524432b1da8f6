"""The commands `state` and `emissions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidegate import inspect
from tidegate.app import App, stream_of
from tidegate.cli.show import show
from tidegate.ledger import Stream

_WINDOW = ("window_start", "window_end")
_POSITION = ("timestamp", "topic", "partition", "offset")
_STATE = ("key", *_WINDOW, "value", "digest", "pending", "due_at", *_POSITION, "updated_seq")
_EMISSIONS = ("seq", "key", *_WINDOW, "value", "reason", "timestamp", "at", "source")
_SPARSE = {*_WINDOW, "digest", "pending", "due_at"}


def state(key: str | None, as_of: int | None, stage: str | None, **common: Any) -> None:
    """Show the last known state of each key of PIPELINE, and of each of its windows, now or as of a batch.

    Args:
        key: Only this key.
        as_of: After this batch; None for the head.
        common: The arguments of `_show`.
    """

    def read(app: App, stream: Stream) -> pa.Table:
        return inspect.read_state(app, stream, as_of, stage, key)

    _show(read, _STATE, **common)


def emissions(batch: int | None, stage: str | None, **common: Any) -> None:
    """Show what PIPELINE emitted.

    Args:
        batch: Only this batch; None for all.
        common: The arguments of `_show`.
    """
    _show(lambda app, stream: inspect.read_emissions(app, stream, batch, stage), _EMISSIONS, **common)


def _show(
    read: Callable[[App, Stream], pa.Table],
    columns: Sequence[str],
    pipeline: str,
    generation: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the rows that `read` returns for a stream. A table for people leaves out empty columns."""
    rows = read(*open_stream(pipeline, generation))
    names = [name for name in columns if name in rows.column_names]
    if not as_json:
        names = [name for name in names if name not in _SPARSE or rows[name].null_count < len(rows[name])]
    shown = rows.slice(0, limit) if limit and names else rows
    title = f"{rows.num_rows} rows" + (f", the first {limit}" if 0 < limit < rows.num_rows else "")
    show(shown.select(names).to_pylist(), as_json, title)


def open_stream(pipeline: str, generation: int | None) -> tuple[App, Stream]:
    """Return the app for reading, and the stream of a pipeline's file, or of the generation that is given."""
    app = App.for_reading()
    return app, stream_named(app, pipeline, generation)


def stream_named(app: App, pipeline: str, generation: int | None) -> Stream:
    """Return the stream of a pipeline's file, or of the generation that is given."""
    return stream_of(app.pipeline(pipeline)) if generation is None else Stream(pipeline, generation)
