"""The files of a pipeline's generations, as `tidegate generation` finds and copies them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.ledger import Stream
    from tidegate.model.pipeline import Pipeline

_GENERATION = re.compile(r"^generation:[^#\n]*", re.MULTILINE)
_PIPELINE = re.compile(r"^pipeline:.*$", re.MULTILINE)


def path_of(app: App, pipeline: str) -> Path:
    """Return the path of a pipeline's file, by its name or path."""
    return (
        Path(pipeline)
        if pipeline.endswith((".yaml", ".yml"))
        else app.settings.pipelines / f"{pipeline}.yaml"
    )


def is_begun(app: App, stream: Stream) -> bool:
    """Return whether a generation exists, with a batch or as the one that publishes."""
    if stream not in app.ledger.streams():
        return False
    charge, head = app.ledger.charge(stream.pipeline), app.ledger.head(stream)
    is_empty = charge.withholds(stream.generation) and not head.seq
    return not is_empty or app.ledger.open_plan(stream) is not None


def copied(app: App, path: Path, pipeline: Pipeline) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a copy with the next generation's number. The file is not
    written yet.
    """
    from tidegate.ledger import Stream

    taken = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline.pipeline]
    number = max(taken) + 1
    # the number of a dropped generation is never used again
    while app.ledger.is_dropped(Stream(pipeline.pipeline, number)):
        number += 1
    copy, loaded = copy_with(path, pipeline, number)
    if copy.exists():
        raise click.UsageError(f"{copy} already exists: use its name instead of {path.stem}, or remove it.")
    return copy, loaded


def copy_with(path: Path, pipeline: Pipeline, number: int) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of the copy for a generation: its file, if there is one."""
    from tidegate.yaml.load import load_pipeline, parse_pipeline

    if pipeline.generation == number:
        return path, pipeline
    copy = path.with_name(f"{pipeline.pipeline}_g{number}.yaml")
    if copy.exists():
        return copy, load_pipeline(copy)
    line = f"generation: {number}"
    text, replaced = _GENERATION.subn(line, pipeline.text, count=1)
    if not replaced:
        text = _PIPELINE.sub(lambda line_before: f"{line_before[0]}\n{line}", text, count=1)
    return copy, parse_pipeline(text, str(copy))
