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


def named_file(app: App, pipeline: str, number: int | None) -> tuple[Path, Pipeline]:
    """Return the path and the pipeline of a file, or of its copy for the generation in which a call goes on.

    Raises SettingsInvalid if there is no such generation.
    """
    from tidegate.generations import require_generation
    from tidegate.ledger import Stream

    loaded, path = app.pipeline(pipeline), path_of(app, pipeline)
    if number is None:
        return path, loaded
    require_generation(app, Stream(loaded.pipeline, number))
    return copy_with(path, loaded, number)


def require_file_in_charge(app: App, pipeline: Pipeline, origin: Stream, number: int | None) -> None:
    """Raise UsageError if a file is that of another generation than `origin`, which has begun: its text is
    not that of the batches that are repeated.

    Args:
        number: the generation in which a call goes on, whose own file may be named as well.
    """
    from tidegate.app import stream_of
    from tidegate.yaml.load import load_pipelines

    own = stream_of(pipeline)
    if own == origin or own.generation == number or not is_begun(app, own):
        return
    files = {stream_of(loaded): name for name, loaded in load_pipelines(app.settings.pipelines)[0].items()}
    fix = (
        f"Name its file: {files[origin]}."
        if origin in files
        else f"Write its file: generation: {origin.generation}."
    )
    raise click.UsageError(
        f"This is the file of generation {own.generation} of {own.pipeline}, and generation "
        f"{origin.generation} is in charge. {fix}"
    )


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
